"""Widgets of a table's summary: key figures, whether to trust it, schema, details.

Rule: figures are those of the version looked at; only the trend and the age speak of now.
"""

import streamlit as st

from app import cache, context
from app.summary.view import summary as view
from app.ui import figures, lists
from app.ui.frame import OpenTable
from app.ui.words import KeyFigure, markdown_safe, sentence
from backend.format import ago, moment_help

RECENT_COMMITS = 20


def key_figures(opened: OpenTable) -> None:
    """Rows, files, size and small files with their trend over versions, and the age of the version."""
    snapshot, version = opened.snapshot, opened.snapshot.version
    commits = context.lake().history(opened.ref, limit=1, starting_version=version, ending_version=version)
    small_files = cache.distribution(snapshot).small_files
    timeline = context.lake().timeline(opened.ref) if opened.is_latest else None
    committed = KeyFigure(
        "Last commit" if opened.is_latest else "Committed",
        ago(snapshot.committed_at, context.now()),
        moment_help(snapshot.committed_at, context.timezone()),
        note=(commits[0].operation or "") if commits else "",
    )
    found = view.key_figures(snapshot, small_files, timeline, context.now())
    figures.key_figures([*found, committed], key="summary_figures")


def trust(opened: OpenTable) -> None:
    """Who writes the table, and what the reading of its log found odd."""
    version = opened.snapshot.version
    commits = context.lake().history(opened.ref, limit=RECENT_COMMITS, ending_version=version)
    st.markdown(markdown_safe(view.writers_sentence(commits)))
    for finding in opened.snapshot.findings:
        st.warning(markdown_safe(sentence(finding)), icon=":material/warning:")


def details(opened: OpenTable) -> None:
    """What the log says of the table itself."""
    lists.facts(view.facts(opened.snapshot) | {"Created": moment_help(opened.snapshot.metadata.created_at)})
