"""The error boundary: what happened, what it means, what to do; never a traceback.

Rule: errors of Weir's own tree are shown where they happen. Anything else is a bug: it is logged with a reference that
the viewer can quote.
"""

import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st
import structlog

from app import services, viewer
from app.ui.view.words import markdown_safe, sentence
from backend import errors
from backend.caches import Lru
from backend.redaction import without_secrets

_AN_HOUR_S = 3_600.0
_log = structlog.get_logger(__name__)

# The most specific class first.
_MEANINGS: tuple[tuple[type[errors.LakehouseError], str], ...] = (
    (errors.TableNotFoundError, "Since the link was made, tables may have been added, moved or deleted."),
    (errors.VersionNotFoundError, "This version is not there, or the log can no longer rebuild it."),
    (errors.QueryError, "Nothing was read or computed."),
    (errors.ExportError, "No file was sent."),
    (errors.RowsRefusedError, "Nothing of them was read; what the log says of the table is open."),
    (errors.TableCorruptError, "The table's log breaks the Delta protocol, so none of its figures can be trusted."),
    (errors.UnsupportedFeatureError, "The table uses a feature that Weir cannot read yet; other readers may."),
    (errors.DataFileMissingError, "The log names a data file that is gone, most often after a VACUUM."),
    (errors.PathRefusedError, "The path leads outside the roots that Weir may read. Nothing was opened."),
    (errors.StorageError, "The storage did not answer, so this is not known right now."),
    (errors.DiffError, "These versions cannot be compared this way."),
    (errors.NothingBrokenError, "Nothing is broken between these versions, so there is nothing to search for."),
    (errors.BisectError, "The search cannot find a first version between these two."),
    (errors.StreamNotFoundError, "No host has declared such a stream."),
    (errors.StreamRefusedError, "Nothing was changed."),
    (errors.JobError, "The stream host could not do this."),
    (errors.StoreError, "The control store did not answer: streams cannot be shown or steered right now."),
    (errors.SettingsError, "Weir cannot work with these settings."),
)


@contextmanager
def boundary() -> Iterator[None]:
    """Shows a `LakehouseError` where it happened and goes on after the block."""
    try:
        yield
    except errors.LakehouseError as exc:
        _log.warning("shown to a viewer", error=type(exc).__name__, message=exc.message)
        show(exc)


_noted = services.once(lambda: Lru[tuple[str, str], float](1_000))  # refusals, and when each was written down


def _note_refused(name: str, table: str, message: str) -> None:
    """Once an hour: who looks again and again does not fill the trail."""
    at, before = time.monotonic(), _noted().get((name, table))
    if before is None or at - before > _AN_HOUR_S:
        _noted().put((name, table), at)
        services.note_refused(name, table, message)


def show(exc: errors.LakehouseError, *, meaning: str = "") -> None:
    """An error as a panel: what happened, what it means (of its kind unless said), what to do; details folded."""
    meaning = meaning or next((text for kind, text in _MEANINGS if isinstance(exc, kind)), "")
    lines = [f"**{markdown_safe(sentence(exc.message))}**", meaning]
    if exc.hint:
        lines.append(f":material/arrow_forward: {markdown_safe(sentence(exc.hint))}")
    text = "\n\n".join(line for line in lines if line)
    if isinstance(exc, errors.NothingBrokenError):
        st.info(text, icon=":material/check_circle:")
    else:
        st.error(text, icon=":material/error:")
    if isinstance(exc, errors.RowsRefusedError):
        _note_refused(viewer.actor().name, exc.table, exc.message)
    if exc.__cause__ is not None:
        first_line = (str(exc.__cause__).splitlines() or [""])[0]
        cause = f"{type(exc.__cause__).__name__}: {without_secrets(first_line)[:500]}"
        with st.expander("Details"):
            st.code(f"{type(exc).__name__}: {exc.message}\ncaused by {cause}", language=None)


def report_bug(exc: Exception) -> bool:
    """Handler of the server for an error outside the tree: logs it whole, shows only a reference."""
    reference = secrets.token_hex(4)
    _log.error("page failed", reference=reference, exc_info=exc)
    st.error(
        f"**This page met an error that Weir did not expect.**\n\nNothing was changed. The server's log has the "
        f"details under `{reference}`.\n\n:material/arrow_forward: Reload the page; if it comes back, report it with "
        "this reference.",
        icon=":material/bug_report:",
    )
    return True
