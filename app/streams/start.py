"""Before a start: what the preflight found, and other settings than the declared ones, with what they change.

Rule: the preflight forbids nothing; what failed is said with what will happen. The fields for settings stand outside
the form, so that the difference is seen before it is asked for.
"""

from collections.abc import Iterable, Mapping

import streamlit as st

from app import cache, services
from app.streams.text import by_weight, consequence, preflight_sentence
from app.streams.view.stream import check_text
from app.ui.badges import state_mark
from app.ui.view.words import markdown_safe
from backend.stream_model.overrides import (
    TRIGGER,
    Setting,
    check_overrides,
    compare,
    declared_values,
    known_keys,
    parse_overrides,
    shown,
    spark_conf_of,
)
from backend.stream_model.stream import StreamDeclaration
from backend.streams.faults import Check, Outcome


def checklist(name: str) -> None:
    """Every check with its evidence."""
    preflight = cache.preflight(name)
    st.markdown(f"**{markdown_safe(preflight_sentence(preflight))}**")
    _show_checks(by_weight(preflight.checks))
    st.caption("Read without Spark, a few seconds ago at most: checkpoint, logs of sources and sink, leases, disk.")


def before_start(name: str) -> None:
    """In the dialog of a start: what failed, with what will happen, and what is not as it should be."""
    with st.spinner("Looking at checkpoint, sources and sink …"):
        preflight = cache.preflight(name)
    if not preflight.ok:
        sentence = f"**{markdown_safe(preflight_sentence(preflight))}** You can start it all the same."
        st.error(f"{sentence} {consequence(preflight)}", icon=":material/error:")
    _show_checks([*preflight.failed, *preflight.of(Outcome.WARNING)])
    if preflight.ok:
        st.caption(markdown_safe(preflight_sentence(preflight)))


def _show_checks(checks: list[Check]) -> None:
    for check in checks:
        st.markdown(f"{state_mark(check.outcome.value)} {check_text(check)}")


def overrides_input(name: str) -> dict[str, str] | None:
    """What the stream shall run with from now on in place of declared settings; None where that stays as it is.

    Raises `OverrideError` for what cannot be set.
    """
    store = services.store()
    declared, wanted = store.declarations()[name], store.desired().get(name)
    before = wanted.overrides if wanted else {}
    after = (
        _fields(declared, before) if st.toggle("With other settings", value=bool(before), key="act_overrides") else {}
    )
    check_overrides(declared, after)
    settings = compare(declared, before, after, cache.pinned_conf(name))
    if settings:
        st.markdown("\n".join(f"- {line}" for line in difference_lines(settings)))
        st.caption("Settings hold for every later start, until somebody asks for others.")
    return after if after != dict(before) else None


def _fields(declared: StreamDeclaration, before: Mapping[str, str]) -> dict[str, str]:
    values, typed = declared_values(declared), dict[str, str]()
    for key in known_keys(declared):
        label = "Trigger" if key == TRIGGER else markdown_safe(key)
        now = before.get(key, values.get(key))
        typed[key] = st.text_input(label, value=now, placeholder=shown(now), key=f"act_set_{key}") or ""
    lines = st.text_area(
        "Settings of Spark, KEY=VALUE, one a line",
        value="\n".join(f"{key}={value}" for key, value in spark_conf_of(before).items()),
        placeholder="spark.sql.shuffle.partitions=8",
        key="act_set_spark",
        height=68,
    )
    return chosen(values, typed, parse_overrides(line for line in (lines or "").splitlines() if line.strip()))


def difference_lines(settings: Iterable[Setting]) -> list[str]:
    """What changes, in Markdown, a line a setting; and what keeps a change from taking effect."""
    return [_difference(setting) for setting in settings]


def _difference(setting: Setting) -> str:
    now, after = markdown_safe(shown(setting.now)), markdown_safe(shown(setting.after))
    change = f"{now} → **{after}**" if setting.changes else f"{after}, as it is"
    declared = "" if setting.declared == setting.now else f" (declared: {markdown_safe(shown(setting.declared))})"
    note = f" :material/warning: {markdown_safe(setting.note)}" if setting.note else ""
    return f"{markdown_safe(setting.key)}: {change}{declared}{note}"


def chosen(declared: Mapping[str, str], typed: Mapping[str, str], spark: Mapping[str, str]) -> dict[str, str]:
    """The overrides among what was typed; a setting that is as declared is none."""
    values = {key: value.strip() for key, value in typed.items()} | dict(spark)
    return {key: value for key, value in values.items() if value and value != declared.get(key)}
