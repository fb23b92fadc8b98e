"""Widgets of the files page: key figures, the distribution, and lists of files and partitions.

Rule: never the whole list of files: extremes, one bucket's first, or totals per partition.
"""

import streamlit as st

from app import context, state
from app.components import lists
from app.components.figures import figure_row
from app.components.frame import OpenTable
from app.view import files as view
from app.view.format import bytes_exact, bytes_text, count_exact, count_text, markdown_safe, percent
from backend.lake.clustering import clustering_columns, overlap, sorted_first
from backend.lake.files import Bucket, FileChoice, FileDistribution, file_page
from backend.lake.model import Snapshot
from backend.settings import HealthSettings

VIEWS = ["Largest", "Smallest", "By partition", "Deleted rows", "Clustering"]
ORDERS = {
    "largest": "the largest first",
    "smallest": "the smallest first",
    "deleted": "those with the largest share of deleted rows first",
}
EXTREMES = 20
CLUSTERING_COMMITS = 200
BUCKET = "bucket"  # query parameter: the lower edge of the chosen bar, in bytes
_CHART = "files_chart"

FILES = lists.Look(
    formats={"Size": "bytes", "Rows": "count", "Deleted rows": "count"},
    config={"Path": st.column_config.TextColumn(help="Relative to the table.")},
    alt="Data files",
)
PARTITIONS = lists.Look(
    formats={
        "Files": "count",
        "Small files": "count",
        "Size": "bytes",
        "Average file": "bytes",
        "Rows": "count",
        "Deleted share": "percent",
    },
    config={
        "Partition": st.column_config.TextColumn(pinned=True),
        "Small share": st.column_config.ProgressColumn(format="percent", min_value=0, max_value=1),
    },
    alt="Partitions, those with the most small files first",
)


def key_figures(found: FileDistribution) -> None:
    """Files, size, median file, small files and the target they are judged by."""
    share = percent(found.small_files / found.num_files) if found.num_files else "–"
    small = f"{count_exact(found.small_files)} of {count_exact(found.num_files)} files"
    figures = (
        ("Files", count_text(found.num_files), f"{count_exact(found.num_files)} files"),
        ("Size", bytes_text(found.size_bytes), bytes_exact(found.size_bytes)),
        ("Median file", bytes_text(found.median_bytes), bytes_exact(found.median_bytes)),
        ("Small files", share, small),
        (
            "Target size",
            bytes_text(found.target.bytes),
            f"{bytes_exact(found.target.bytes)}, from {found.target.source}",
        ),
    )
    with figure_row("files_figures"):
        for label, value, help_text in figures:
            st.metric(label, value, help=help_text, border=True)


def chart(found: FileDistribution, health: HealthSettings) -> Bucket | None:
    """The distribution with its rule; returns the bucket that was clicked."""
    bucket = view.find_bucket(found.buckets, state.whole(BUCKET))
    figure = view.distribution_figure(found, mode=context.mode(), selected=bucket.from_bytes if bucket else None)
    st.plotly_chart(
        figure,
        theme=None,
        key=_CHART,
        on_select=_on_chart,
        selection_mode="points",
        config={"displayModeBar": False},
        alt=figure.layout.title.text,
    )
    rule = view.rule_sentence(found, ratio=health.small_file_ratio, min_files=health.min_files)
    st.caption(f"{rule} Click a bar for its files.")
    return bucket


def _on_chart() -> None:
    points = st.session_state[_CHART].get("selection", {}).get("points", [])
    edges = [point["customdata"][0] for point in points if isinstance(point.get("customdata"), list | tuple)]
    state.put({BUCKET: int(edges[0]) if edges else None})


def _close() -> None:
    state.put({BUCKET: None})


def of_bucket(snapshot: Snapshot, bucket: Bucket) -> None:
    """The files of the clicked bar."""
    choice = FileChoice(from_bytes=bucket.from_bytes, to_bytes=bucket.to_bytes, order="smallest")
    files = file_page(snapshot, choice, length=view.MOST_FILES).files
    with st.container(horizontal=True, vertical_alignment="center", key="bucket_head"):
        shown = view.shown_sentence(files.num_rows, bucket.files, "the smallest first")
        st.markdown(f"**{view.bucket_label(bucket)}**: {shown}", width="content")
        st.button("All sizes", key="close_bucket", icon=":material/close:", type="tertiary", on_click=_close)
    lists.show(view.files_frame(files), FILES, key="bucket_files")


def extremes(snapshot: Snapshot, *, order: str) -> None:
    """The largest or the smallest files, or those with the most deleted rows."""
    page = file_page(snapshot, FileChoice(order=order), length=EXTREMES)
    if order == "deleted" and not page.total:
        st.caption("No file of this version has a deletion vector.")
        return
    st.caption(view.shown_sentence(page.files.num_rows, page.total, ORDERS[order]))
    lists.show(view.files_frame(page.files), FILES, key="extreme_files")


def partitions(found: FileDistribution) -> None:
    """Totals per partition."""
    st.caption(view.partitions_sentence(found))
    lists.show(view.partitions_frame(found), PARTITIONS, key="partitions")


def vectors(found: FileDistribution) -> None:
    """What deletion vectors cost a reader, and which files OPTIMIZE would rewrite."""
    st.markdown(markdown_safe(view.vectors_sentence(found)))


def clustering(opened: OpenTable) -> None:
    """How many files a look-up of one value reads, for a column of the viewer's choice."""
    snapshot = opened.snapshot
    commits = context.lake().history(opened.ref, limit=CLUSTERING_COMMITS, ending_version=snapshot.version)
    preferred = clustering_columns(commits)
    columns = sorted_first(snapshot, preferred)
    if not columns:
        st.caption("No column of this table can have statistics.")
        return
    column = st.selectbox("Column", columns, key="overlap_column", bind="query-params")
    with st.spinner(f"Reading the statistics of {column} …", show_time=True):
        found = overlap(snapshot, column)
    st.markdown(markdown_safe(view.overlap_sentence(found, is_chosen_by_table=column in preferred)))
    if found.profile:
        figure = view.overlap_figure(found, mode=context.mode())
        config = {"displayModeBar": False}
        st.plotly_chart(figure, theme=None, key="overlap_chart", config=config, alt=figure.layout.title.text)
