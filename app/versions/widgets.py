"""Widgets of the versions page: the strip over all versions, and what can be done with the chosen one.

Rule: the chosen version is in the URL. Files are looked for on request, and only what was looked at is said.
"""

from collections.abc import Sequence

import streamlit as st

from app import navigation, services, state, viewer
from app.ui import work
from app.ui.figures import chart
from app.ui.frame import version_input
from app.ui.table_acts import act_button, way_back
from app.ui.view.words import markdown_safe, sentence
from app.ui.work import spinner
from app.versions import pins, text, view
from backend.format import ago, moment_help, things
from backend.lake.model import Pin, TableRef
from backend.lake.retention.answers import Reach, VersionAnswer, judge_version, missing_words
from backend.lake.retention.file_check import SAMPLE, LogSeen
from backend.lake.retention.runs import FilesSeen, RetentionRuns, judge, with_missing
from backend.maintenance.model import Clone

_CHART = "versions_strip"
_SEEN = "_files_seen"  # by table, version: what looking found in this session
_LOG = "_log_seen"


def judged(ref: TableRef) -> RetentionRuns:
    """What is known of every version now, with the files that this viewer had looked for."""
    with spinner("Reading the log …", of=f"retention {ref.uri}"):
        retention = judge(services.lake().retention_facts(ref), services.now())
    seen = st.session_state.get(_LOG, {}).get((ref.uri, retention.facts.latest))
    return with_missing(retention, seen.runs) if seen else retention


def of_broken(ref: TableRef) -> None:
    """Of a table whose latest version cannot be rebuilt: which versions can be."""
    retention = judged(ref)
    if retention.facts.spans and not retention.facts.is_reconstructable(retention.facts.latest):
        st.markdown("**Older versions can still be read:**")
        answers(ref, retention, strip(ref, retention))


def strip(ref: TableRef, retention: RetentionRuns) -> int:
    """The strip and the choice of a version; returns the chosen one."""
    chosen = _chosen(ref, retention)
    figure = view.strip_figure(retention, chosen=chosen, mode=viewer.mode())
    alt = f"{figure.layout.title.text}. {view.legend_sentence(retention)}"
    chart(figure, key=_CHART, alt=alt, on_select=_on_chart)
    binned = " Neighbouring versions are drawn together." if view.is_binned(retention) else ""
    st.caption(f"Click a bar for its last version.{binned}", help=markdown_safe(view.legend_sentence(retention)))
    return chosen


def problems(retention: RetentionRuns) -> None:
    """What the log could not say."""
    for problem in retention.facts.problems[:3]:
        st.warning(markdown_safe(sentence(problem)), icon=":material/warning:")


def _chosen(ref: TableRef, retention: RetentionRuns) -> int:
    latest = retention.facts.latest
    asked = state.whole(state.AT)
    pinned = state.version()
    newest = (
        latest
        if retention.facts.is_reconstructable(latest) or not retention.facts.spans
        else retention.facts.spans[-1][1]
    )
    at = next((v for v in (asked, pinned) if v is not None and v <= latest), newest)
    version_input(ref, at, latest, key="at_input", choose=lambda version: state.put({state.AT: version}))
    return at


def _on_chart() -> None:
    points = st.session_state[_CHART].selection.points
    if points:
        state.put({state.AT: int(points[0]["customdata"][1])})


# the chosen version ----------------------------------------------------------------------------------------------


def answers(ref: TableRef, retention: RetentionRuns, version: int) -> None:
    """What can be done with a version in one line, where it leads, and folded why."""
    now, zone, pinned = services.now(), viewer.timezone(), pins.pins_of(ref)
    answer = judge_version(retention, version, st.session_state.get(_SEEN, {}).get((ref.uri, version)))
    with st.container(border=True, key="verdict"):
        st.markdown(text.verdict_text(answer, retention.facts.latest, zone, now))
        made = "its commit is not in the log" if answer.at is None else f"written to the log {ago(answer.at, now)}"
        st.caption(made[:1].upper() + made[1:], help=moment_help(answer.at, zone) if answer.at else None)
        _links(ref, retention, answer)
        _acts(ref, retention, answer, pinned)
    latest, is_readable = retention.facts.latest, retention.facts.is_reconstructable
    if version != latest and is_readable(version) and is_readable(latest) and answer.restore.verdict is not Reach.NO:
        way_back(ref, latest, version)
    pins.listed(ref, pinned or [])
    with st.expander("Why, and what else can be done with it", key="why"):
        for label, part, reasons in text.answers_once(answer, zone, now):
            help_text = " · ".join(t for t in (text.kind_sentence(part), moment_help(part.until, zone)) if t)
            st.markdown(text.headline(label, part, zone, now), help=help_text if part.until else None)
            if reasons:
                st.caption(markdown_safe(reasons))
        st.caption(markdown_safe(text.log_sentence(answer, zone, now)))
        st.caption(markdown_safe(text.vacuum_sentence(retention.facts, now)))
    _files(ref, retention, answer)


def _links(ref: TableRef, retention: RetentionRuns, answer: VersionAnswer) -> None:
    if answer.run is None or not answer.run.reconstructable:
        return
    version, latest = answer.version, retention.facts.latest
    with st.container(horizontal=True, key="version_links"):
        navigation.table_link(ref.name, f"Open v{version}", {state.VERSION: version})
        if version != latest and retention.facts.is_reconstructable(latest):
            label = f"Changes from v{version} to v{latest}"
            navigation.table_link(ref.name, label, {state.FROM: version, state.TO: latest}, page="changes")


def _acts(ref: TableRef, retention: RetentionRuns, answer: VersionAnswer, pinned: Sequence[Pin] | None) -> None:
    """What a person can have done with the version. `pinned`: None where nobody knows."""
    version, latest = answer.version, retention.facts.latest
    can_be_read = answer.run is not None and answer.run.reconstructable
    with st.container(horizontal=True, key="version_acts"):
        if can_be_read and answer.time_travel.verdict is not Reach.NO:
            act_button(ref, latest, Clone(version=version), key="clone")
        if pinned is not None and (can_be_read or any(pin.version == version for pin in pinned)):
            pins.pin_button(ref, version, pinned)


# files -----------------------------------------------------------------------------------------------------------


def _files(ref: TableRef, retention: RetentionRuns, answer: VersionAnswer) -> None:
    """What is known of the version's files, and buttons that look for them."""
    run = answer.run
    if run is None or not run.reconstructable:
        return
    seen = answer.files
    known = missing_words(seen) if seen else text.file_words(run)
    st.markdown(f":material/folder_open: **Data files**: {markdown_safe(known)}")
    if seen and seen.examples:
        st.caption("Gone: " + ", ".join(markdown_safe(path) for path in seen.examples))
    everything = f"all_{ref.uri}"
    sample, exact = (f"{kind}_{ref.uri}_{answer.version}" for kind in ("sample", "exact"))
    with st.container(horizontal=True, key="look"):
        is_whole = seen is not None and seen.checked >= seen.total
        if seen is None:
            _look(f"Look for its files (at most {SAMPLE})", sample, "removed ones first")
        elif not is_whole:
            _look(f"Look for all {things(seen.total, 'file')}", exact, "each file is asked for")
        _look("Look for the files of every version", everything, "each file once; fills the strip")
    if work.is_asked(sample) or work.is_asked(exact):
        _see_version(ref, answer.version, None if work.is_asked(exact) else SAMPLE)
    elif work.is_asked(everything):
        _see_log(ref, retention.facts.latest)


def _look(label: str, name: str, help_text: str) -> None:
    st.button(label, key=f"look_{name.partition('_')[0]}", icon=":material/search:", help=help_text,
              on_click=work.ask, args=(name,))  # fmt: skip


def _see_version(ref: TableRef, version: int, sample: int | None) -> None:
    def tell(step: FilesSeen) -> tuple[float, str]:
        of = min(step.total, sample or step.total)
        return step.checked / max(1, of), f"{step.checked:,} of {things(of, 'file')} · {step.missing:,} missing"

    seen = work.run(lambda: services.lake().see_files(ref, version, sample=sample), key="files", tell=tell)
    if seen is not None:
        st.session_state.setdefault(_SEEN, {})[ref.uri, version] = seen
        st.rerun()


def _see_log(ref: TableRef, latest: int) -> None:
    def tell(step: LogSeen) -> tuple[float, str]:
        done = step.checked / max(1, step.total)
        return done, f"{step.checked:,} of {things(step.total, 'file')} of every version · {step.missing:,} missing"

    seen = work.run(lambda: services.lake().see_log(ref), key="log", tell=tell)
    if seen is not None and seen.is_done:
        st.session_state.setdefault(_LOG, {})[ref.uri, latest] = seen
        st.rerun()
