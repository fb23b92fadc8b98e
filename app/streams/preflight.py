"""A stream's preflight on its page: the checklist, and what a start meets, before it is asked for.

Rule: it reads alone and forbids nothing; what failed is said with what will happen.
"""

import streamlit as st

from app import cache
from app.streams.view import preflight as view
from app.ui.badges import state_mark
from app.ui.view.words import markdown_safe
from backend.streams.preflight.model import Check, Outcome


def checklist(name: str) -> None:
    """Every check with its evidence."""
    found = cache.preflight(name)
    st.markdown(f"**{markdown_safe(view.summary(found))}**")
    _checks(view.by_weight(found.checks))
    st.caption("Read without Spark, a few seconds ago at most: checkpoint, logs of sources and sink, leases, disk.")


def before_start(name: str) -> None:
    """In the dialog of a start: what failed, with what will happen, and what is not as it should be."""
    with st.spinner("Looking at checkpoint, sources and sink …"):
        found = cache.preflight(name)
    if not found.ok:
        st.error(f"**{markdown_safe(view.summary(found))}** {view.consequence(found)}", icon=":material/error:")
    _checks([*found.failed, *found.of(Outcome.WARNING)])
    if found.ok:
        st.caption(markdown_safe(view.summary(found)))


def _checks(checks: list[Check]) -> None:
    for check in checks:
        st.markdown(f"{state_mark(check.outcome.value)} {view.check_text(check)}")
