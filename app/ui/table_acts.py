"""Acts on a table from any of its pages: a button where the finding stands, one dialog for all, and the way back.

Rule: the dialog says in figures what will happen, then asks; a refusal offers what lifts it. A click asks the stream
host, which looks at the table again, does it, and proves it: the page that asked shows how far it is and the proof.
"""

import re
from contextlib import suppress
from dataclasses import replace

import streamlit as st

from app import cache, errors, navigation, services, state, viewer
from app.ui import dialogs
from app.ui.live import live
from app.ui.view.acts import ACTS, act_title, act_words, job_clock, loss_text, preview_lines, result_lines
from app.ui.view.words import job_words, markdown_safe, sentence
from app.ui.work import follow_job, spinner
from backend.changes.key import key_memory
from backend.changes.model import Question, VersionDiff
from backend.errors import LakehouseError, QueryError
from backend.format import things
from backend.jobs.model import Job, JobState
from backend.lake.files.file_sizes import partition_codes
from backend.lake.history.history import resolve_version
from backend.lake.model import TableRef
from backend.lake.storage.folder import normal_uri
from backend.lake.table.schema import column_names, partition_values
from backend.maintenance.alter import read_column, read_pair
from backend.maintenance.model import (
    ActResult,
    Alter,
    Arguments,
    Clone,
    Drop,
    Intent,
    Lift,
    Optimize,
    Purge,
    Repair,
    Restore,
    Rewind,
    TableAct,
    Vacuum,
    act_job,
)
from backend.search.condition import check_condition
from backend.search.notice import FIRSTS, Measure, Notice
from backend.sql.values import plain_name
from backend.streams.requeue import parse_repairs
from backend.streams.verdict import StreamStatus, why_not_stopped

_ACT = "table_act"
WHOLE = "All of the table"
_ASSIGNED = re.compile(r", (?=(?:\w+|\"[^\"]+\") = )")  # between the values of a finding's repair
_COMPARE_S = 5.0  # so long a viewer waits for rows that nobody asked to compare
_LIFTED_ON = {  # by the verb of what lifts a refusal: the page that does it, and the button to there
    "start": ("stream", "Open stream {}"),
    "unpin": ("versions", "Pins of {}"),
    "versions": ("versions", "Versions of {}"),
    "restore": ("versions", "Restore {} alone"),
    "alter": ("properties", "Properties of {}"),
    "drop": ("properties", "Open {} to drop it"),
    "repair": ("changes", "Repair rows of {}"),
}


def act_button(ref: TableRef, version: int, arguments: Arguments, *, key: str, label: str = "") -> None:
    """Opens the dialog on the next full run; off where nobody may act here. `label`: not the act's own."""
    look, effect = ACTS[arguments.kind], "Says first what it will do, and asks for a reason"
    act = TableAct(ref.uri, ref.name, version, arguments)
    blocked = viewer.why_not(f"{act.kind} job", act.subject)
    dialogs.button(
        _ACT, act, f"{label or look.label}…", key=key, icon=look.icon, effect=effect, blocked=blocked,
        is_destructive=isinstance(arguments, Vacuum | Drop | Purge),
    )  # fmt: skip


def repair_button(ref: TableRef, latest: int, notice: Notice, *, key: str) -> None:
    """Opens the dialog filled in with what repairs the rows of a finding, of its commit alone; nothing where it hurt no
    rows."""
    if notice.repair:
        values = parse_repairs(_ASSIGNED.split(notice.repair))
        act_button(
            ref, latest, Repair(notice.where, values, of_commit=notice.version), key=key, label="Repair these rows"
        )
    elif notice.kind not in (*FIRSTS, Measure.SILENCE, Measure.ADDED):
        label = f"Take back what v{notice.version} did"
        if notice.kind in (Measure.DELETED, Measure.ROWS) and notice.rows is not None:
            label = f"Bring back the {things(notice.rows, 'row')}"
        elif notice.where:
            label = "Take back these rows"
        act_button(ref, latest, Repair(notice.where, of_commit=notice.version), key=key, label=label)


def is_written_here(uri: str) -> bool:
    """Whether a stream writes the table, whoever runs it."""
    streams = (status.declaration for status in cache.streams_reading().streams)
    return any(normal_uri(output.uri) == uri for stream in streams if not stream.is_view for output in stream.outputs)


def act_dialog() -> None:
    """Called once by every page with such buttons: says what was just asked, and opens the dialog that is due."""
    dialogs.dialog(_ACT, _dialog, title=_title, width="large")


def _title(act: TableAct) -> str:
    """ "Restore silver/orders to v12?"."""
    to = f" to v{act.arguments.to_version}" if isinstance(act.arguments, Restore | Rewind) else ""
    return f"{act_title(act.kind, act.name)}{to}?"


def _dialog(act: TableAct) -> None:
    with errors.boundary():
        arguments = _chosen(act)
        if isinstance(arguments, str):
            st.caption(arguments)
            st.button("Preview", key="act_show", icon=":material/visibility:")  # a click elsewhere takes what was typed
            return
        asked = replace(act, arguments=arguments)
        planned, loss = cache.act_preview(viewer.lake(), asked), ""
        if isinstance(arguments, Restore | Rewind) and not planned.refused:
            loss = _loss(viewer.lake().find(act.uri), arguments.to_version, act.version)
        lines = preview_lines(planned, loss)
        st.markdown("\n".join(f"- {markdown_safe(line)}" for line in lines))
        dialogs.ask(
            _ACT,
            f"{sentence(planned.refused)} {sentence(planned.way_out)}".strip(),
            label=ACTS[asked.kind].label,
            typed=act.name if planned.typed else "",
            job=lambda reason: act_job(planned.act, actor=viewer.actor(), reason=reason),
            done=f"{act_title(asked.kind, act.name)}: asked for. Its host does it next.",
            file=lambda reason: Intent.of(planned, reason).file(tuple(lines), now=services.now()),
        )
        if planned.refused:
            cache.act_preview.clear(viewer.lake(), asked)  # whoever does what it says is not refused again
            for lift in planned.lifts:
                _offer(lift)
            if not any(lift.verb == "stop" for lift in planned.lifts):  # that asks for a reason, and has its Cancel
                st.button("Close", key="act_close", on_click=dialogs.close, args=(_ACT,))


def _offer(lift: Lift) -> None:
    """The control that lifts a refusal: here, or the way to it."""
    subject = lift.subjects[0]
    if lift.verb == "stop":
        _stop(lift.subjects)
    elif lift.verb == "cancel":
        jobs, reason = services.store().jobs, "it stood against an act on its table"
        job, label = jobs.get(subject), f"Cancel job {markdown_safe(subject)}"
        why = viewer.why_not(f"cancel {job.kind} job", job.subject, owner=job.actor) if job else None
        help_text = markdown_safe(why) if why else None
        if st.button(label, key="lift_cancel", icon=":material/cancel:", disabled=bool(why), help=help_text):
            jobs.cancel(subject, actor=viewer.actor(), reason=reason, now=services.now())
            st.rerun()
    else:
        page, label = _LIFTED_ON[lift.verb]
        if st.button(markdown_safe(label.format(subject)), key=f"lift_{lift.verb}", icon=":material/arrow_forward:"):
            dialogs.close(_ACT)
            at = lift.subjects[-1] if lift.verb in ("unpin", "restore") else None
            navigation.go(page, {state.STREAM if page == "stream" else state.TABLE: subject, state.AT: at})


def _stop(names: tuple[str, ...]) -> None:
    """Stops the streams that stand against the act; the dialog goes on once they have stopped."""

    def running() -> list[StreamStatus]:
        streams = cache.streams_reading().streams
        return [status for status in streams if status.declaration.name in names and why_not_stopped(status)]

    def stopping() -> None:
        if not (left := running()):
            st.rerun(scope="app")
        waited_for, silent = ", ".join(status.declaration.name for status in left), viewer.why_no_job("stop", names[0])
        st.caption(markdown_safe(f"Stopping {waited_for} … {sentence(silent or '')}"))

    if all(status.desired and status.desired.wants_stop for status in running()):
        live(stopping, key="act_stopping", every_s=1.0)
    elif why := viewer.why_not("stop", *names):
        st.caption(markdown_safe(sentence(why)))
    elif reason := dialogs.reason(_ACT, label=f"Stop {', '.join(names)}"):
        store = services.store()
        store.request_all(names, "stop", reason=reason, actor=viewer.actor(), now=store.now(), overrides={})
        cache.forget_streams()
        st.rerun()


# how far an act is, and what it did ------------------------------------------------------------------------------


def asked_act(ref: TableRef) -> None:
    """The act that this viewer asked for last, on the pages of its table: how far it is, then the proof."""
    job_id = st.session_state.get(dialogs.last_job(_ACT))
    job = services.store().jobs.get(job_id) if job_id else None
    if job and TableAct.parse(job.request).uri == ref.uri:
        show_act(job, page="the table's page")
        if job.state.is_over:
            st.button("Close", key="asked_close", on_click=st.session_state.pop, args=(dialogs.last_job(_ACT),))


def show_act(job: Job, *, page: str) -> None:
    """Of one act what was asked and when, how far it is, or what it did with the proof. `page`: as a sentence calls
    it."""
    act = TableAct.parse(job.request)
    with st.container(border=True, key="one_act"), errors.boundary():
        st.markdown(f"**{markdown_safe(act_title(job.kind, act.name))}** · {markdown_safe(act_words(act))}")
        st.caption(markdown_safe(f"{job.actor}: {job.reason} · {job_clock(job, services.now())}"))
        if not job.state.is_over:
            follow_job(job.job_id, page=page, every_s=1.0)
        elif job.state is JobState.DONE:
            result = ActResult.of(job)
            st.markdown("\n".join(f"- {markdown_safe(line)}" for line in result_lines(result)))
            if result.version is not None:
                navigation.table_link(act.name, "History", {state.VERSION: None}, page="history")
        else:
            words = f"{job.error} {job.hint}".strip() or job_words(job, now=services.now())
            st.error(markdown_safe(words), icon=":material/error:")


# what is chosen in the dialog ------------------------------------------------------------------------------------


def _chosen(act: TableAct) -> Arguments | str:
    """What is asked once that was chosen; a sentence where something is still to be said."""
    match act.arguments:
        case Optimize() as asked:
            asked = asked if asked.purge else _optimize(act, asked)
            label = "Prove each row: read the old files and the new ones again, and compare"
            return replace(asked, prove_rows=st.checkbox(label, key="act_prove_rows"))
        case Restore() as asked:
            label = "Keep today's properties (retention, change feed, owner, …)"
            keeps = st.checkbox(label, value=True, key="act_keeps_properties")
            return replace(asked, keeps_properties=keeps, stops_writers=_stops_writers(act))
        case Clone() as asked:
            help_text = "A name below the same root, or an address below another one."
            target = st.text_input("Where to", key="act_target", placeholder=f"{act.name}_copy", help=help_text) or ""
            shallow = st.checkbox("Shallow: reads the data files of this table", key="act_shallow")
            if not target.strip():
                return "Say where to, then preview it."
            return replace(asked, target=target.strip(), shallow=shallow)
        case Repair() as asked:
            return _repair(act, asked)
        case Alter() as asked:
            return _alter(act) if asked == Alter() else asked
    return act.arguments


def _optimize(act: TableAct, asked: Optimize) -> Optimize:
    """All of it or one partition, laid out by columns or not."""
    snapshot = viewer.lake().snapshot(viewer.lake().find(act.uri))
    partition: dict[str, str | None] = {}
    if snapshot.metadata.partition_columns:
        shown = st.selectbox("Where", [WHOLE, *sorted(partition_codes(snapshot)[1])], key="act_partition")
        partition = {} if shown == WHOLE else partition_values(shown, snapshot.metadata)
    columns = [name for name in column_names(snapshot.metadata) if name not in snapshot.metadata.partition_columns]
    zorder: list[str] = []
    if "delta.clustering" not in snapshot.domains:
        help_text = "ZORDER BY: rows that are near in these columns come to lie in the same files. Rewrites all files."
        zorder = st.multiselect("Lay rows out by", columns, key="act_zorder", help=help_text, max_selections=4)
    return replace(asked, partition=partition, zorder_by=tuple(zorder))


def _stops_writers(act: TableAct) -> bool:
    label = "Stop the streams that write it meanwhile, and start them again after"
    return is_written_here(act.uri) and st.checkbox(label, value=True, key="act_stops_writers")


def _repair(act: TableAct, asked: Repair) -> Repair | str:
    such_as = "SQL over a row: amount < 0" if asked.of_commit is None else "All that the commit changed"
    where = (st.text_input("Which rows", asked.where, key="act_where", placeholder=such_as) or "").strip()
    commit = st.text_input(
        "Only as this commit wrote them", "" if asked.of_commit is None else str(asked.of_commit), key="act_of_commit",
        placeholder="Any commit", help="Rows that others wrote stay. Without new values what it did is taken back: "
        "what it wrote goes, what it took away comes, what was written since stays.",
    )  # fmt: skip
    version = not commit and st.text_input(
        "Take them from version", key="act_from_version", placeholder="118, -5, yesterday",
        help="Rows that satisfy the condition in that version replace those that satisfy it now.",
    )  # fmt: skip
    deletes = not commit and not version and st.checkbox("Delete them", key="act_deletes")
    lines = "" if version or deletes else st.text_area(
        "Their new values", "\n".join(f"{plain_name(column)} = {text}" for column, text in asked.values.items()),
        key="act_values", height=90, placeholder="amount = abs(amount)",
        help="One line a column: column = SQL over the row as it was.",
    )  # fmt: skip
    stops, lake = _stops_writers(act), viewer.lake()
    if not commit and not (where and (version or deletes or lines)):
        return "Say which rows, and what to do with them, then preview it."
    of_commit, from_version = (
        resolve_version(lake, lake.find(act.uri), text, viewer.clock()) if text else None for text in (commit, version)
    )
    values = parse_repairs([line for line in (lines or "").splitlines() if line.strip()])
    return Repair(where, values, from_version, stops_writers=stops, of_commit=of_commit)


def _alter(act: TableAct) -> Alter | str:
    """Properties; of the rest one new column and one new constraint at a time: `weir alter` takes more."""
    metadata = viewer.lake().snapshot(viewer.lake().find(act.uri)).metadata
    example, help_text = "delta.appendOnly = true", "One line a property: key = value"
    given = st.text_area("Set", key="act_set", height=90, placeholder=example, help=help_text)
    unset = st.multiselect("Remove", sorted(metadata.configuration), key="act_unset")
    pairs = [line.partition("=") for line in (given or "").splitlines() if line.strip()]
    asked = Alter({key.strip(): value.strip() for key, _, value in pairs}, tuple(unset))
    before, example = metadata.description or "", "discount decimal(10,2) COMMENT 'of the order'"
    with st.expander("Comment, column, constraint", key="act_more"):
        comment = st.text_input("Comment", before, key="act_comment") or ""
        column = st.text_input("New column", key="act_column", placeholder=example) or ""
        such_as = "positive = amount >= 0"
        constraint = st.text_input("New constraint", key="act_constraint", placeholder=such_as) or ""
        if comment != before:
            asked = replace(asked, comment=comment)
        if column.strip():
            name, kind, text = read_column(column)
            asked = replace(asked, add_columns={name: kind}, column_comments={name: text} if text else {})
        if constraint.strip():
            asked = replace(asked, add_constraints=dict([read_pair(constraint, such_as=such_as)]))
    return "Say what is to change, then preview it." if asked == Alter() else asked


# back to a former version ---------------------------------------------------------------------------------------------


def _loss(
    ref: TableRef, to_version: int, latest: int, since: VersionDiff | None = None, bad: tuple[str, str] | None = None
) -> str:
    """Which rows going back costs, good and bad ones apart. `bad`: the condition that good rows satisfy, and SQL of
    the others; else of the newest finding that is undone and says it of each row."""
    since = since or compared_soon(ref, to_version, latest)
    for notice in [] if bad or since is None else cache.noticed(cache.streams_reading()).of(ref.uri):
        if notice.version > to_version and notice.condition:
            with suppress(QueryError):
                rule = check_condition(notice.condition, viewer.lake().snapshot(ref)).row_rule
                bad = bad or ((rule, f"NOT ({rule})") if rule else None)
    return loss_text(
        since, compared_soon(ref, to_version, latest, bad[1]) if bad and since else None, bad[0] if bad else ""
    )


def way_back(
    ref: TableRef, latest: int, to_version: int, since: VersionDiff | None = None, bad: tuple[str, str] | None = None
) -> None:
    """Back to `to_version`: the table alone, or with the stream that writes it. `since`: what differs between that and
    the latest version, where somebody compared them. `bad`: as of `_loss`."""
    is_streamed = is_written_here(ref.uri)
    with st.container(border=True, key="way_back"):
        st.markdown(f"**Back to v{to_version}**")
        asked = Restore(to_version, keeps_properties=True, stops_writers=is_streamed)
        try:
            planned = cache.act_preview(viewer.lake(), TableAct(ref.uri, ref.name, latest, asked))
        except LakehouseError as exc:
            st.caption(markdown_safe(f"{sentence(exc.message)} {sentence(exc.hint)}"))
            return
        lines = preview_lines(planned, _loss(ref, to_version, latest, since, bad))
        st.markdown("\n".join(f"- {markdown_safe(line)}" for line in lines))
        with st.container(horizontal=True, vertical_alignment="center", key="back_buttons"):
            act_button(ref, latest, Restore(to_version), key="restore")  # a refusal says there what lifts it
            if is_streamed:
                act_button(ref, latest, Rewind(to_version), key="rewind")
            ends: navigation.Params = {state.FROM: latest, state.TO: to_version, state.ACROSS_REPLACE: "true"}
            navigation.table_link(ref.name, f"What going back to v{to_version} changes", ends, page="changes")


def compared_soon(ref: TableRef, first: int, second: int, where: str | None = None) -> VersionDiff | None:
    """Two versions compared, where that is little work and soon done. `where`: which rows, by SQL over one."""
    limits, lake, differences = services.settings().lake, viewer.lake(), cache.differences()
    remembered = key_memory(services.settings().home).known(ref)
    question = Question(
        ref, first, second, remembered_key=remembered, row_limit=limits.diff_rows, max_bytes=limits.diff_max_bytes,
        across_replace=True, where=where,
    )  # fmt: skip
    try:
        if not differences.log_part(lake, question).is_small:
            return None
        with spinner("Comparing rows …", of=f"rows {ref.uri} {first} {second}"):
            return differences.soon(lake, question, _COMPARE_S)
    except LakehouseError:
        return None  # Changes says why, where the link leads
