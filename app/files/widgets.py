"""Widgets of the files page: key figures, the distribution, and lists of files and partitions.

Rule: never the whole list of files or partitions, one page of either. The writer's checksum and Weir's own count never
stand beside each other; where they disagree the page says so.
"""

import streamlit as st

from app import cache, services, state, viewer
from app.files import file_list
from app.files.view import checksum
from app.files.view import distribution as view
from app.ui import figures, lists
from app.ui.frame import OpenTable
from app.ui.view.words import markdown_safe
from backend.lake.files.clustering import Overlap, clustering_columns, overlap, sorted_first
from backend.lake.files.file_sizes import FileChoice, FileDistribution
from backend.lake.log.checksum import Checksum
from backend.lake.model import Bucket, Snapshot
from backend.settings import HealthSettings

OF_SIZES = ("Largest", "Smallest")  # these follow the bar that was clicked
VIEWS = [*OF_SIZES, "By partition", "Deleted rows", "Clustering"]
ORDERS = {
    "largest": "the largest first",
    "smallest": "the smallest first",
    "deleted": "those with the largest share of deleted rows first",
}
CLUSTERING_COMMITS = 200
MANY_FILES = 100_000  # below, counting is as fast as drawing
_CHART = "files_chart"
_OVERLAP = "_files_overlap"
_COUNTED = "_files_counted"  # what this viewer saw counted last: it comes at once, and needs no preview

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
    alt="Partitions",
)


def counted(opened: OpenTable) -> FileDistribution:
    """The distribution of the version, exact; while it is counted the page shows what the checksum says."""
    snapshot = opened.snapshot
    checksum_of_version = services.lake().checksum(opened.ref, snapshot.version)
    if checksum_of_version is None or checksum_of_version.buckets is None:
        return cache.distribution(snapshot)
    key = (snapshot.ref.uri, snapshot.metadata.id, snapshot.version)
    slot = st.empty()
    if checksum_of_version.num_files >= MANY_FILES and st.session_state.get(_COUNTED) != key:
        with slot.container(key="files_preview"):
            _preview(checksum_of_version, opened)
    distribution = cache.distribution(snapshot)
    slot.empty()
    st.session_state[_COUNTED] = key
    words = checksum.disagreement(checksum_of_version, distribution, snapshot.version)
    if words:
        st.warning(markdown_safe(words), icon=":material/warning:")
    return distribution


def _preview(checksum_of_version: Checksum, opened: OpenTable) -> None:
    distribution = checksum.as_distribution(checksum_of_version, opened.snapshot, services.settings().health)
    figures.key_figures(view.key_figures(distribution)[:2], key="preview_figures", columns=5)
    figure = view.distribution_figure(
        distribution, mode=viewer.mode(), title=checksum.preview_title(checksum_of_version)
    )
    figures.chart(figure, key="preview_chart")
    source = checksum.source_sentence(opened.snapshot.version)
    st.caption(f"{source} Partitions and small files come with the count of the log …")


def key_figures(distribution: FileDistribution) -> None:
    """Files, size, median file, small files and the target they are judged by."""
    figures.key_figures(view.key_figures(distribution), key="files_figures")


def nothing(opened: OpenTable) -> None:
    """A version without data files."""
    message = f"**v{opened.snapshot.version} has no data files.** It was emptied, or nothing was written yet."
    st.info(message, icon=":material/folder_off:")


def explore(opened: OpenTable, distribution: FileDistribution) -> None:
    """The distribution, and the view below it that the URL names."""
    bucket = chart(distribution, services.settings().health)
    view = st.segmented_control(
        "Show", VIEWS, default="Largest", required=True, key=state.VIEW, bind="query-params", on_change=_on_view
    )
    if view == "By partition":
        partitions(opened.snapshot, cache.distribution(opened.snapshot, with_rows=True))
    elif view == "Clustering":
        clustering(opened)
    elif view == "Deleted rows":
        vectors(opened.snapshot, distribution)
    elif bucket:
        of_bucket(opened.snapshot, bucket, order=view.lower())
    else:
        extremes(opened.snapshot, order=view.lower())


def chart(distribution: FileDistribution, health: HealthSettings) -> Bucket | None:
    """The distribution with its rule; returns the bucket that was clicked."""
    bucket = view.find_bucket(distribution.buckets, state.whole(state.BUCKET))
    figure = view.distribution_figure(distribution, mode=viewer.mode(), selected=bucket.from_bytes if bucket else None)
    figures.chart(figure, key=_CHART, on_select=_on_chart)
    rule = view.rule_sentence(distribution, ratio=health.small_file_ratio, min_files=health.min_files)
    st.caption(f"{rule} Click a bar for its files.")
    return bucket


def _on_chart() -> None:
    points = st.session_state[_CHART].get("selection", {}).get("points", [])
    edges = [point["customdata"][0] for point in points if isinstance(point.get("customdata"), list | tuple)]
    state.put({state.BUCKET: int(edges[0]) if edges else None, state.FILES_PAGE: None})
    if edges and st.session_state.get(state.VIEW) not in OF_SIZES:
        st.session_state[state.VIEW] = OF_SIZES[0]  # where the bar's files are


def _on_view() -> None:
    """Another view begins at its first page; those that are not of sizes are of the whole version."""
    _first_page()
    if st.session_state[state.VIEW] not in OF_SIZES:
        _close()


def _close() -> None:
    state.put({state.BUCKET: None, state.FILES_PAGE: None})


def of_bucket(snapshot: Snapshot, bucket: Bucket, *, order: str) -> None:
    """The files of the clicked bar."""
    with st.container(horizontal=True, vertical_alignment="center", key="bucket_head"):
        st.markdown(f"**{view.bucket_label(bucket)}**", width="content")
        st.button("All sizes", key="close_bucket", icon=":material/close:", type="tertiary", on_click=_close)
    choice = FileChoice(from_bytes=bucket.from_bytes, to_bytes=bucket.to_bytes, order=order)
    file_list.show(snapshot, choice, ORDERS[order])


def extremes(snapshot: Snapshot, *, order: str) -> None:
    """All files, the largest or the smallest first, or those with deleted rows."""
    file_list.show(snapshot, FileChoice(order=order), ORDERS[order])


def partitions(snapshot: Snapshot, distribution: FileDistribution) -> None:
    """Totals per partition, searched and sorted; a click lists the files of one."""
    st.caption(view.partitions_sentence(distribution))
    chosen = state.text(state.PARTITION)
    if chosen is not None:
        _of_partition(snapshot, chosen)
        return
    if len(distribution.partitions) > 1:
        with st.container(horizontal=True, key="partition_tools"):
            text = st.text_input("Search", key=state.FIND, bind="query-params", on_change=_first_page)
            by = st.selectbox("Sort by", list(view.SORTS), key=state.SORT, bind="query-params", on_change=_first_page)
    else:
        text, by = "", next(iter(view.SORTS))
    ordered = view.ordered_partitions(distribution, text or "", by)
    begin = min(file_list.start(), max(0, len(ordered) - 1) // file_list.PER_PAGE * file_list.PER_PAGE)
    part = ordered[begin : begin + file_list.PER_PAGE]
    file_list.pager(len(ordered), begin, f"{view.shown_range(begin, len(part), len(ordered), 'partition')}.")
    names = [row.partition for row in part]
    frame = view.partitions_frame(part, with_vectors=bool(distribution.vectors.files))
    opened = lists.choose(frame, PARTITIONS, key=f"partitions_{begin}", names=names)
    if opened:
        state.put({state.PARTITION: opened, state.FILES_PAGE: None})
        st.rerun()


def _of_partition(snapshot: Snapshot, partition: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="partition_head"):
        st.markdown(f"**{markdown_safe(partition)}**", width="content")
        none = {state.PARTITION: None, state.FILES_PAGE: None}
        st.button("All partitions", key="close_partition", icon=":material/close:", on_click=state.put, args=(none,))
    file_list.show(snapshot, FileChoice(partition=partition, order="smallest"), ORDERS["smallest"])


def _first_page() -> None:
    state.put({state.FILES_PAGE: None})


def vectors(snapshot: Snapshot, distribution: FileDistribution) -> None:
    """What deletion vectors cost a reader, and which files OPTIMIZE would rewrite."""
    st.markdown(markdown_safe(view.vectors_sentence(distribution)))
    if distribution.vectors.files:
        extremes(snapshot, order="deleted")


def clustering(opened: OpenTable) -> None:
    """How many files a look-up of one value reads, for a column of the viewer's choice."""
    snapshot = opened.snapshot
    commits = services.lake().history(opened.ref, limit=CLUSTERING_COMMITS, ending_version=snapshot.version)
    preferred = clustering_columns(commits)
    columns = sorted_first(snapshot, preferred)
    if not columns:
        st.caption("No column of this table can have statistics.")
        return
    column = st.selectbox("Column", columns, key=state.OVERLAP_COLUMN, bind="query-params")
    overlap = _overlap(snapshot, column)
    st.markdown(markdown_safe(view.overlap_sentence(overlap, is_chosen_by_table=column in preferred)))
    if overlap.profile:
        figures.chart(view.overlap_figure(overlap, mode=viewer.mode()), key="overlap_chart")


def _overlap(snapshot: Snapshot, column: str) -> Overlap:
    """The overlap last asked for stays with this viewer: it is fixed by the version and takes seconds to find."""
    asked = (snapshot.ref.uri, snapshot.metadata.id, snapshot.version, column)
    last = st.session_state.get(_OVERLAP)
    if last is None or last[0] != asked:
        with st.spinner(f"Reading the statistics of {markdown_safe(column)} …", show_time=True):
            last = (asked, overlap(snapshot, column))
        st.session_state[_OVERLAP] = last
    return last[1]
