"""Other settings for a stream, in the dialog of its start or restart: what may be set, and what that changes.

Rule: the fields stand outside the form, so that the difference is seen before it is asked for.
"""

from collections.abc import Mapping

import streamlit as st

from app import cache, services
from app.streams.view.overrides import chosen, difference_lines, spark_lines
from app.ui.view.words import markdown_safe
from backend.stream_model.overrides import (
    TRIGGER,
    check_overrides,
    compare,
    declared_values,
    known_keys,
    parse_overrides,
    shown,
    spark_conf_of,
)
from backend.stream_model.stream import StreamDeclaration


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
        value=spark_lines(spark_conf_of(before)),
        placeholder="spark.sql.shuffle.partitions=8",
        key="act_set_spark",
        height=68,
    )
    return chosen(values, typed, parse_overrides(line for line in (lines or "").splitlines() if line.strip()))
