"""The files of a version: sizes in log-2 buckets, partitions, deletion vectors, clustering, and one file by its footer.

Rule: pure; the figure draws buckets and never files, and a list says of how many files it shows a part. The log has the
last word: where the writer's checksum disagrees, both numbers are told.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import itemgetter
from typing import Any

import plotly.graph_objects as go

from app.columns import Column, Columns
from app.ui.view.figures import count_axis
from app.ui.view.theme import FIGURES_KEPT, SURFACES, Mode, categories, state_style, template_name
from app.ui.view.words import KeyFigure, figure_safe
from backend.format import bytes_exact, bytes_text, count_exact, count_text, percent, things
from backend.health.model import Severity
from backend.health.rules import fine_text, gain_in, layout_text, small_files_text
from backend.lake.files.clustering import Overlap
from backend.lake.files.file_sizes import HEAVY_SHARE, FileDistribution, PartitionFiles
from backend.lake.files.footer import ColumnSize, FileFooter, LoggedFile, RowGroup
from backend.lake.log.actions import Checksum
from backend.lake.model import Bucket

FEW_FILES = 12  # each is drawn for itself
FEW_DOUBLINGS = 10  # of the sizes along the axis: more ticks than 1, 10, 100


def files_finding(distribution: FileDistribution) -> str:
    """The figure's title: "1,108 of 1,204 files are small (under 64 MB)"."""
    if not distribution.num_files:
        return "This version has no data files"
    gain = gain_in(distribution)
    if not gain.small_files_matter:
        return fine_text(gain) if gain.severity is Severity.FINE else layout_text(gain).removesuffix(".")
    limit = bytes_text(distribution.small_limit_bytes)
    return f"{small_files_text(gain)} files are small (under {limit})"


def key_figures(distribution: FileDistribution) -> list[KeyFigure]:
    """Files, size, median file, small files and the target they are judged by."""
    target = f"{bytes_exact(distribution.target.bytes)}, from {distribution.target.source}"
    return [
        KeyFigure("Files", count_text(distribution.num_files), f"{count_exact(distribution.num_files)} files"),
        KeyFigure("Size", bytes_text(distribution.size_bytes), bytes_exact(distribution.size_bytes)),
        KeyFigure("Median file", bytes_text(distribution.median_bytes), bytes_exact(distribution.median_bytes)),
        KeyFigure(
            "Small files",
            small_files_text(gain_in(distribution)),
            f"Those under {bytes_text(distribution.small_limit_bytes)}.",
        ),
        KeyFigure("Target size", bytes_text(distribution.target.bytes), target),
    ]


def rule_sentence(distribution: FileDistribution, *, ratio: float) -> str:
    """The rule by which files count as small, with where the target comes from."""
    return (
        f"Small: under {percent(ratio)} of the target of {bytes_text(distribution.target.bytes)} "
        f"(from {distribution.target.source})."
    )


def distribution_figure(
    distribution: FileDistribution, sizes: tuple[int, ...] = (), *, mode: Mode = "light", selected: int | None = None
) -> go.Figure:
    """Bars: files per half-open log-2 bucket. Line: share of bytes up to a size. Of few files, whose `sizes` are given,
    each is a dot. Target and small limit are marked.

    Built once: not to be changed.
    """
    is_finding = gain_in(distribution).small_files_matter  # amber only then
    drawn = replace(distribution, partitions=(), small_files=distribution.small_files if is_finding else 0)
    return _distribution_figure(drawn, sizes, mode, selected, files_finding(distribution))


@lru_cache(FIGURES_KEPT)
def _distribution_figure(
    distribution: FileDistribution, sizes: tuple[int, ...], mode: Mode, selected: int | None, title: str
) -> go.Figure:
    chart = go.Figure()
    if sizes:
        chart.add_trace(_dots(sizes, distribution, mode, selected))
    elif distribution.buckets:
        chart.add_trace(_bars(distribution, mode, selected))
        chart.add_trace(_share_line(distribution, mode))
    chart.update_layout(template=template_name(mode), height=380, title_text=title, bargap=0.04)
    chart.update_layout(showlegend=False, margin_t=80)
    _size_axis(chart, distribution)
    if sizes:
        chart.update_layout(xaxis_title_text="File size (log scale)")
        chart.update_yaxes(title_text="files, smallest first", tickformat=",d", range=[0, len(sizes) + 1])
    _mark(chart, distribution.small_limit_bytes, f"small under {bytes_text(distribution.small_limit_bytes)} ", mode)
    _mark(chart, distribution.target.bytes, f" target {bytes_text(distribution.target.bytes)}", mode)
    return chart


def _dots(sizes: Sequence[int], distribution: FileDistribution, mode: Mode, selected: int | None) -> go.Scatter:
    limit = distribution.small_limit_bytes if distribution.small_files else 0
    small, usual = state_style("WARNING", mode).colour, categories(mode)[0]
    edges = [2 ** (size.bit_length() - 1) if size else 0 for size in sizes]  # where the bucket of each begins
    return go.Scatter(
        x=[_position(size) for size in sizes],
        y=list(range(1, len(sizes) + 1)),
        mode="markers",
        marker={
            "size": 11,
            "color": [small if size < limit else usual for size in sizes],
            "opacity": [1.0 if selected in (None, edge) else 0.35 for edge in edges],
        },
        customdata=[[edge, bytes_exact(size)] for edge, size in zip(edges, sizes, strict=True)],
        hovertemplate="%{customdata[1]}<extra></extra>",
    )


def _position(size_bytes: int) -> float:
    """Where a size stands on the axis: log2, with an own place for the empty file."""
    return math.log2(size_bytes) if size_bytes else -1.0


def bucket_label(bucket: Bucket) -> str:
    """ "1.05 MB to under 2.1 MB"."""
    return f"{bytes_text(bucket.from_bytes)} to under {bytes_text(bucket.to_bytes)}"


def _bars(distribution: FileDistribution, mode: Mode, selected: int | None) -> go.Bar:
    small, usual = state_style("WARNING", mode).colour, categories(mode)[0]
    limit = distribution.small_limit_bytes if distribution.small_files else 0
    colours = [small if b.to_bytes <= limit else usual for b in distribution.buckets]
    faded = [1.0 if selected is None or b.from_bytes == selected else 0.35 for b in distribution.buckets]
    return go.Bar(
        x=[_position(b.from_bytes) + 0.5 for b in distribution.buckets],
        y=[b.files for b in distribution.buckets],
        width=[0.94] * len(distribution.buckets),
        marker={"color": colours, "opacity": faded},
        name="files",
        customdata=[
            [b.from_bytes, bucket_label(b), count_text(b.files), bytes_exact(b.bytes)] for b in distribution.buckets
        ],
        hovertemplate="<b>%{customdata[1]}</b><br>%{y:,} files · %{customdata[3]}<extra></extra>",
    )


def _share_line(distribution: FileDistribution, mode: Mode) -> go.Scatter:
    """How much of the table's bytes lies in files below a size."""
    total = distribution.size_bytes or 1
    below, shares = 0, [0.0]
    for bucket in distribution.buckets:
        below += bucket.bytes
        shares.append(100 * below / total)
    edges = [_position(distribution.buckets[0].from_bytes), *(_position(b.to_bytes) for b in distribution.buckets)]
    return go.Scatter(
        x=edges,
        y=shares,
        yaxis="y2",
        mode="lines+markers",
        line={"color": categories(mode)[3], "width": 2},
        marker={"size": 5},
        name="share of bytes",
        customdata=[bytes_text(round(2**edge)) if edge >= 0 else "0 B" for edge in edges],
        hovertemplate="%{y:.1f} % of the bytes are in files under %{customdata}<extra></extra>",
    )


def _size_axis(chart: go.Figure, distribution: FileDistribution) -> None:
    edges = [b.from_bytes for b in distribution.buckets] + [b.to_bytes for b in distribution.buckets[-1:]]
    low = min([_position(edge) for edge in edges] + [_position(distribution.small_limit_bytes)])
    high = max([_position(edge) for edge in edges] + [_position(distribution.target.bytes)])
    steps = (1,) if high - low > FEW_DOUBLINGS else (1, 2, 5)
    ticks = [step * 10**power for power in range(19) for step in steps if low <= _position(step * 10**power) <= high]
    chart.update_layout(
        xaxis={
            "title_text": "File size (log scale, each bar doubles)",
            "range": [low - 0.3, high + max(0.3, 0.12 * (high - low))],
            "tickvals": [_position(tick) for tick in ticks],
            "ticktext": [bytes_text(tick) for tick in ticks],
            "showgrid": False,
        },
        yaxis={"title_text": "files", **count_axis(bucket.files for bucket in distribution.buckets)},
        yaxis2={
            "title_text": "share of bytes below this size",
            "overlaying": "y",
            "side": "right",
            "range": [0, 104],
            "showgrid": False,
            "tickvals": [0, 25, 50, 75, 100],
            "ticktext": ["0 %", "25 %", "50 %", "75 %", "100 %"],
        },
    )


def _mark(chart: go.Figure, size_bytes: int, label: str, mode: Mode) -> None:
    chart.add_vline(x=_position(size_bytes), line={"color": SURFACES[mode].muted, "width": 1.5, "dash": "dash"})
    chart.add_annotation(
        x=_position(size_bytes),
        y=1.0,
        yref="paper",
        yanchor="bottom",
        text=label,
        showarrow=False,
        font={"size": 12, "color": SURFACES[mode].muted},
        xanchor="right" if label.endswith(" ") else "left",
    )


SORTS: Mapping[str, Callable[[PartitionFiles], float]] = {
    "Most small files": lambda part: -part.small_files,
    "Most files": lambda part: -part.num_files,
    "Largest": lambda part: -part.size_bytes,
    "Smallest average file": lambda part: part.average_bytes,
    "Most rows": lambda part: -(part.num_rows or 0),
    "Most deleted rows": lambda part: -part.deleted_rows,
}


def ordered_partitions(distribution: FileDistribution, text: str, by: str) -> list[PartitionFiles]:
    """The partitions whose name holds a text, in the order asked for; ties by their number of files, then by name."""
    key = SORTS.get(by, SORTS["Most small files"])
    inside = [part for part in distribution.partitions if text.lower() in part.partition.lower()]
    return sorted(inside, key=lambda part: (key(part), -part.num_files, part.partition))


def partition_columns(*, with_vectors: bool) -> list[Column[PartitionFiles]]:
    return [
        Column("Partition", lambda part: part.partition or "(whole table)"),
        Column("Files", lambda part: part.num_files, "count", key="num_files"),
        Column("Small files", lambda part: part.small_files, "count", key="small_files"),
        Column("Size", lambda part: part.size_bytes, "bytes", key="size_bytes"),
        Column("Average file", lambda part: part.average_bytes if part.num_files else None, "bytes"),
        Column("Rows", lambda part: part.num_rows, "count", key="num_rows"),
        Column(
            "Deleted share",
            lambda part: part.deleted_share if with_vectors else None,
            "percent",
            is_optional=not with_vectors,
        ),
    ]


def shown_range(begin: int, length: int, total: int, what: str) -> str:
    """ "51 to 100 of 9,000 files"; "All 34 files"."""
    if not total:
        return f"No {what}"
    if length == total:
        return things(total, what) if total == 1 else f"All {things(total, what)}"
    return f"{begin + 1:,} to {begin + length:,} of {things(total, what)}"


def partitions_sentence(distribution: FileDistribution) -> str:
    """ "12 partitions; the 3 with small files hold 80 % of all files"."""
    if len(distribution.partitions) <= 1 and (not distribution.partitions or not distribution.partitions[0].partition):
        return "The table is not partitioned."
    worst = [part for part in distribution.partitions if part.small_files]
    text = things(len(distribution.partitions), "partition")
    if distribution.skew is not None:
        skew = f"{distribution.skew:.1f}" if distribution.skew < 100 else count_text(round(distribution.skew))
        text += f", the largest {skew} times the median one"
    if not worst:
        return f"{text}; none has small files."
    share = percent(sum(part.num_files for part in worst) / distribution.num_files)
    return f"{text}; {count_text(len(worst))} with small files hold {share} of all files."


def _live_rows(file: Mapping[str, Any]) -> int | None:
    return None if file["num_records"] is None else file["num_records"] - file["deleted_rows"]


FILES: Columns[Mapping[str, Any]] = (
    Column("Size", itemgetter("size_bytes"), "bytes"),
    Column("Rows", _live_rows, "count"),
    Column("Deleted rows", lambda file: file["deleted_rows"] or None, "count", is_optional=True),
    Column("Partition", itemgetter("partition"), is_optional=True),
    Column("Modified", itemgetter("modified_at"), "moment"),
    Column("Path", itemgetter("path"), help="Relative to the table. A click opens the file's footer."),
)


def vectors_sentence(distribution: FileDistribution) -> str:
    """ "12 of 40 files have deletion vectors; 1.3 % of all rows are deleted. 2 files … OPTIMIZE would rewrite them"."""
    load = distribution.vectors
    if not load.files:
        return "No deletion vectors: a reader reads no row that is deleted."
    have = "has a deletion vector" if load.files == 1 else "have deletion vectors"
    is_rows_known = load.deleted_share is not None
    share, marked = percent(load.deleted_share), things(load.deleted_rows, "row")
    rows = f"{share} of all rows are deleted" if is_rows_known else f"{marked} deleted, of how many is unknown"
    limit = percent(HEAVY_SHARE)
    heavy = f"{things(load.heavy_files, 'file')} with more than {limit} of the rows deleted: candidates for OPTIMIZE."
    if not load.heavy_files:
        heavy = f"No file is known to have more than {limit} of its rows deleted."
    return f"{count_text(load.files)} of {things(distribution.num_files, 'file')} {have}; {rows}. {heavy}"


# clustering ------------------------------------------------------------------------------------------------------


def overlap_sentence(overlap: Overlap, *, is_chosen_by_table: bool) -> str:
    """ "A look-up of one value of customer_id reads 214 of 1,204 files on average …; well clustered would be 1–3"."""
    if overlap.average_files is None or overlap.most_files is None:
        every = things(overlap.files, "file")
        return f"No file's statistics hold bounds of {overlap.column}: every look-up reads all {every}."
    text = (
        f"A look-up of one value of {overlap.column} reads {overlap.average_text} of "
        f"{things(overlap.files, 'file')} on average, at most {count_text(overlap.most_files)}; "
        "well clustered would be 1–3."
    )
    if overlap.average_in_partition is not None:
        text += f" With its partition named: {overlap.average_in_partition:.1f} on average."
    if overlap.files_without:
        text += f" {things(overlap.files_without, 'file')} without bounds count for every look-up."
    if is_chosen_by_table:
        text += " The table's history says that it is sorted by this column."
    return text


def overlap_figure(overlap: Overlap, *, mode: Mode = "light") -> go.Figure:
    """How many files hold each value, over the values in their order."""
    chart = go.Figure(
        go.Scatter(
            x=[100 * point.quantile for point in overlap.profile],
            y=[point.files for point in overlap.profile],
            mode="lines",
            line={"shape": "hv", "color": categories(mode)[0], "width": 2},
            customdata=[figure_safe(point.value[:60]) for point in overlap.profile],
            hovertemplate="%{y:,} files hold <b>%{customdata}</b><extra></extra>",
        )
    )
    chart.update_layout(
        template=template_name(mode),
        height=320,
        title_text=f"Files that may hold a value of {figure_safe(overlap.column)}",
    )
    chart.update_xaxes(title_text="values in order, % of all files' bounds", range=[0, 100])
    chart.update_yaxes(title_text="files", rangemode="tozero")
    return chart


# what the writer's checksum says, and whether Weir's own count agrees -------------------------------------------------


def disagreement(checksum: Checksum, counted: FileDistribution, version: int) -> str:
    """Where checksum and count differ, totals first; empty when they agree."""
    head = f"The checksum of v{version} disagrees with its log, which is what this page counts: "
    if (checksum.num_files, checksum.size_bytes) != (counted.num_files, counted.size_bytes):
        return (
            f"{head}it says {_amount(checksum.num_files, checksum.size_bytes)}, "
            f"the log holds {_amount(counted.num_files, counted.size_bytes)}."
        )
    for bucket in checksum.buckets or ():
        # Weir's buckets that lie in one bucket of the checksum; the edges of both are powers of two.
        within = [b for b in counted.buckets if bucket.from_bytes <= b.from_bytes < bucket.to_bytes]
        files, size_bytes = sum(b.files for b in within), sum(b.bytes for b in within)
        if (files, size_bytes) != (bucket.files, bucket.bytes):
            sizes = f"from {bytes_text(bucket.from_bytes)} to under {bytes_text(bucket.to_bytes)}"
            return (
                f"{head}of sizes {sizes} it says {_amount(bucket.files, bucket.bytes)}, "
                f"the log holds {_amount(files, size_bytes)}."
            )
    return ""


def _amount(files: int, size_bytes: int) -> str:
    return f"{files:,} file{'' if files == 1 else 's'} and {bytes_exact(size_bytes)}"


# one data file by its footer; sizes are those of the footer -----------------------------------------------------------


MOST_FOOTER_COLUMNS = 300
MOST_GROUPS = 200
MOST_STATISTICS = 20_000


def footer_figures(footer: FileFooter) -> list[KeyFigure]:
    """Rows, deleted rows, size, row groups and columns."""
    logged = footer.logged
    return [
        KeyFigure("Rows", count_text(footer.num_rows), count_exact(footer.num_rows)),
        KeyFigure("Deleted", count_text(logged.deleted_rows), "Rows that the deletion vector marks."),
        KeyFigure("Size", bytes_text(logged.size_bytes), bytes_exact(logged.size_bytes)),
        KeyFigure("Row groups", count_text(footer.num_groups), "Readers skip whole row groups by their bounds."),
        KeyFigure("Columns", count_text(footer.num_columns), "Leaf columns: each field of a nested one counts."),
    ]


def footer_sentence(footer: FileFooter) -> str:
    """Who wrote the file, how it is packed, and whether the log's row count is the footer's."""
    raw = sum(column.uncompressed_bytes for column in footer.columns)
    parts = [f"Written by {footer.created_by or 'an unnamed writer'}, parquet {footer.format_version}."]
    if raw:
        parts.append(f"{bytes_text(raw)} packed to {bytes_text(footer.compressed_bytes)}.")
    rows = footer.logged.num_records
    if rows is not None and rows != footer.num_rows:
        parts.append(f"The log says {things(rows, 'row')}, the file {things(footer.num_rows, 'row')}: they disagree.")
    if footer.logged.deleted_rows and footer.num_rows:
        parts.append(f"{percent(footer.logged.deleted_rows / footer.num_rows)} of its rows are deleted.")
    if footer.num_columns > MOST_FOOTER_COLUMNS:
        parts.append(f"The {MOST_FOOTER_COLUMNS} largest of {things(len(footer.columns), 'column')} are shown.")
    if footer.num_groups > len(footer.groups):
        parts.append(f"Sizes are those of the first {things(len(footer.groups), 'row group')}.")
    return " ".join(parts)


def largest_columns(footer: FileFooter) -> list[ColumnSize]:
    return sorted(footer.columns, key=lambda column: -column.compressed_bytes)[:MOST_FOOTER_COLUMNS]


def footer_columns(footer: FileFooter) -> list[Column[ColumnSize]]:
    """Of a leaf column what it takes and holds."""
    total = footer.compressed_bytes or 1
    return [
        Column("Column", lambda column: column.path),
        Column("Compressed", lambda column: column.compressed_bytes, "bytes"),
        Column("Share", lambda column: column.compressed_bytes / total, "percent"),
        Column("Uncompressed", lambda column: column.uncompressed_bytes, "bytes"),
        Column("Compression", lambda column: column.compression),
        Column("Encodings", lambda column: ", ".join(column.encodings)),
        Column("Nulls", lambda column: column.null_count, "exact"),
        Column("Minimum", lambda column: column.minimum),
        Column("Maximum", lambda column: column.maximum),
        Column("Type", lambda column: column.type),
    ]


GROUPS: Columns[RowGroup] = (
    Column("Row group", lambda group: group.number, "plain"),
    Column("Rows", lambda group: group.num_rows, "exact"),
    Column("Compressed", lambda group: group.compressed_bytes, "bytes"),
    Column("Uncompressed", lambda group: group.uncompressed_bytes, "bytes"),
)


def statistics_text(logged: LoggedFile) -> str:
    """The log's statistics of the file, as written, indented."""
    if logged.stats is None:
        return "The log holds no statistics of this file."
    try:
        text = json.dumps(json.loads(logged.stats), indent=2, ensure_ascii=False)
    except ValueError:
        return logged.stats[:MOST_STATISTICS]
    return text if len(text) <= MOST_STATISTICS else f"{text[:MOST_STATISTICS]}\n… {len(text):,} characters"
