"""Words of an export: how large, how far, what came of it.

Rule: pure; an estimate says what it was made from, and what nobody knows is said to be unknown.
"""

from backend.format import bytes_text, count_text, things
from backend.sql.export import Format
from backend.sql.exports import Export, ExportState, SizeEstimate


def size_sentence(size: SizeEstimate, form: Format, num_columns: int) -> str:
    """ "About 1.2 GB as CSV: 5.1 M rows of 8 columns." and what it was estimated from."""
    if size.rows == 0:
        return f"No row matches: the {form.label} file will hold the column names alone."
    about = "" if size.is_counted else "about "
    rows = f"{about}{things(size.rows, 'row')}" if size.rows else "an unknown number of rows"
    what = f"{rows} of {things(num_columns, 'column')}"
    bytes_ = size.sizes_bytes[form.suffix]
    if bytes_ is None:
        return f"{what[:1].upper()}{what[1:]}; how large the {form.label} file will be is not known before."
    if size.is_counted and size.sampled_rows == size.rows:
        return f"{bytes_text(bytes_)} as {form.label}: {what}."
    return f"About {bytes_text(bytes_)} as {form.label}: {what}. Estimated from {_sample(size)}."


def _sample(size: SizeEstimate) -> str:
    rows = things(size.sampled_rows, "row")
    if size.sampled_files is None:
        return f"the {rows} that the page read"
    return f"{rows} of {things(size.sampled_files, 'file')}"


def progress(export: Export, rows: int | None) -> tuple[float, str]:
    """The share of a running export, and how far it is."""
    share = min(1.0, export.num_rows / rows) if rows else 0.0
    of = f" of {count_text(rows)}" if rows else ""
    return share, f"{count_text(export.num_rows)}{of} rows sent, {bytes_text(export.size_bytes)}"


def ended_sentence(export: Export) -> str:
    """What came of an export that ended without a problem."""
    sent = f"{things(export.num_rows, 'row')}, {bytes_text(export.size_bytes)}"
    if export.state is ExportState.DONE:
        return f"Sent whole: {sent}."
    why = "" if export.end_reason in ("", "cancelled") else f" because {export.end_reason}"
    return f"Cancelled{why} after {sent}. What the browser saved is no whole file."
