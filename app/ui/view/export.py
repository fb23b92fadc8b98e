"""Words of an export: how far it is, what came of it.

Rule: pure.
"""

from backend.format import bytes_text, things
from backend.sql.export import Export, ExportState


def progress_sentence(export: Export) -> str:
    """How far a running export is."""
    return f"{things(export.num_rows, 'row')} sent, {bytes_text(export.size_bytes)}."


def ended_sentence(export: Export) -> str:
    """What came of an export that ended without a problem."""
    sent = f"{things(export.num_rows, 'row')}, {bytes_text(export.size_bytes)}"
    if export.state is ExportState.DONE:
        return f"Sent whole: {sent}."
    why = "" if export.end_reason in ("", "cancelled") else f" because {export.end_reason}"
    return f"Cancelled{why} after {sent}. What the browser saved is no whole file."
