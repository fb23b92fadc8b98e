"""Widgets of the files page: key figures, the distribution, and lists of files and partitions.

Rule: the browser never gets the whole list of files or partitions, but one page of either; page and file are in the
URL. The writer's checksum and Weir's own count never stand beside each other; where they disagree the page says so.
"""

import streamlit as st

from app import cache, navigation, services, state, viewer
from app.files import view
from app.ui import figures, lists
from app.ui.lake import OpenTable
from app.ui.view.words import markdown_safe
from backend.lake.files import clustering, file_sizes
from backend.lake.files.clustering import Overlap, clustering_columns, sorted_first
from backend.lake.files.file_sizes import FileChoice, FileDistribution, FilePage
from backend.lake.model import Bucket, Snapshot
from backend.sql.values import quoted_name

OF_SIZES = ("Largest", "Smallest")  # these follow the bar that was clicked
VIEWS = [*OF_SIZES, "By partition", "Deleted rows", "Clustering"]
ORDERS = {
    "largest": "the largest first",
    "smallest": "the smallest first",
    "deleted": "those with the largest share of deleted rows first",
}
CLUSTERING_COMMITS = 200
PER_PAGE = 50  # files or partitions
_CHART = "files_chart"


def files(opened: OpenTable) -> None:
    """Key figures, the distribution, and the view below it that the URL names."""
    distribution, snapshot = _counted(opened), opened.snapshot
    figures.key_figures(view.key_figures(distribution), key="files_figures")
    if not distribution.num_files:
        message = f"**v{snapshot.version} has no data files.** It was emptied, or nothing was written yet."
        st.info(message, icon=":material/folder_off:")
        return
    bucket = _chart(snapshot, distribution)
    with st.container(horizontal=True, vertical_alignment="bottom", key="files_views"):
        shown = st.segmented_control(
            "Show", VIEWS, default="Largest", required=True, key=state.VIEW, bind="query-params", on_change=_on_view
        )
        st.space("stretch")
        table = f"{quoted_name(f'{opened.ref.name}$files')} VERSION AS OF {snapshot.version}"
        navigation.query_link(f"SELECT * FROM {table} ORDER BY file_size_in_bytes DESC")
    if shown == "By partition":
        _partitions(snapshot, cache.distribution(snapshot, with_rows=True))
    elif shown == "Clustering":
        _clustering(opened)
    elif shown == "Deleted rows":  # what deletion vectors cost a reader, and which files OPTIMIZE would rewrite
        st.markdown(markdown_safe(view.vectors_sentence(distribution)))
        if distribution.vectors.files:
            _file_list(snapshot, FileChoice(order="deleted"))
    elif bucket:  # the files of the clicked bar
        with st.container(horizontal=True, vertical_alignment="center", key="bucket_head"):
            st.markdown(f"**{view.bucket_label(bucket)}**", width="content")
            st.button("All sizes", key="close_bucket", icon=":material/close:", type="tertiary", on_click=_close)
        _file_list(snapshot, FileChoice(from_bytes=bucket.from_bytes, to_bytes=bucket.to_bytes, order=shown.lower()))
    else:
        _file_list(snapshot, FileChoice(order=shown.lower()))


def _counted(opened: OpenTable) -> FileDistribution:
    """The distribution of the version, exact; where the writer's checksum says otherwise, the page says so."""
    version, distribution = opened.snapshot.version, cache.distribution(opened.snapshot)
    checksum = viewer.lake().checksum(opened.ref, version)
    if checksum and checksum.buckets and (words := view.disagreement(checksum, distribution, version)):
        st.warning(markdown_safe(words), icon=":material/warning:")
    return distribution


def _chart(snapshot: Snapshot, distribution: FileDistribution) -> Bucket | None:
    """The distribution with its rule, few files each for itself; returns the bucket that was clicked."""
    chosen = state.get_int(state.BUCKET)
    bucket = next((bucket for bucket in distribution.buckets if bucket.from_bytes == chosen), None)
    is_few = distribution.num_files <= view.FEW_FILES
    sizes = tuple(sorted(snapshot.columns(["size_bytes"])["size_bytes"].to_pylist())) if is_few else ()
    selected = bucket.from_bytes if bucket else None
    figure = view.distribution_figure(distribution, sizes, mode=viewer.mode(), selected=selected)
    figures.chart(figure, key=_CHART, on_select=_on_chart)
    rule = view.rule_sentence(distribution, ratio=services.settings().health.small_file_ratio)
    st.caption(f"{rule} Click a {'file for those of its size' if is_few else 'bar for its files'}.")
    return bucket


def _on_chart() -> None:
    points = st.session_state[_CHART].get("selection", {}).get("points", [])
    edges = [point["customdata"][0] for point in points if isinstance(point.get("customdata"), list | tuple)]
    state.set_params({state.BUCKET: int(edges[0]) if edges else None, state.FILES_PAGE: None})
    if edges and st.session_state.get(state.VIEW) not in OF_SIZES:
        st.session_state[state.VIEW] = OF_SIZES[0]  # where the bar's files are


def _on_view() -> None:
    """Another view begins at its first page; those that are not of sizes are of the whole version."""
    _first_page()
    if st.session_state[state.VIEW] not in OF_SIZES:
        _close()


def _close() -> None:
    state.set_params({state.BUCKET: None, state.FILES_PAGE: None})


def _partitions(snapshot: Snapshot, distribution: FileDistribution) -> None:
    """Totals per partition, searched and sorted; a click lists the files of one."""
    st.caption(view.partitions_sentence(distribution))
    chosen = state.get_str(state.PARTITION)
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
    begin = min(_start(), max(0, len(ordered) - 1) // PER_PAGE * PER_PAGE)
    part = ordered[begin : begin + PER_PAGE]
    _pager(len(ordered), begin, f"{view.shown_range(begin, len(part), len(ordered), 'partition')}.")
    names = [row.partition for row in part]
    columns = view.partition_columns(with_vectors=bool(distribution.vectors.files))
    opened = lists.choose(columns, part, key=f"partitions_{begin}", names=names, alt="Partitions")
    if opened:
        state.set_params({state.PARTITION: opened, state.FILES_PAGE: None})
        st.rerun()


def _of_partition(snapshot: Snapshot, partition: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="partition_head"):
        st.markdown(f"**{markdown_safe(partition)}**", width="content")
        none = {state.PARTITION: None, state.FILES_PAGE: None}
        st.button(
            "All partitions", key="close_partition", icon=":material/close:", on_click=state.set_params, args=(none,)
        )
    _file_list(snapshot, FileChoice(partition=partition, order="smallest"))


def _first_page() -> None:
    state.set_params({state.FILES_PAGE: None})


def _clustering(opened: OpenTable) -> None:
    """How many files a look-up of one value reads, for a column of the viewer's choice."""
    snapshot = opened.snapshot
    commits = viewer.lake().history(opened.ref, limit=CLUSTERING_COMMITS, ending_version=snapshot.version)
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


# a page of files, and one of them -----------------------------------------------------------------------------


def _file_list(snapshot: Snapshot, choice: FileChoice) -> None:
    """One page of the chosen files; a click opens a file below the list."""
    page = _file_page(snapshot, choice, _start(), PER_PAGE)
    _pager(
        page.total,
        page.start,
        f"{view.shown_range(page.start, page.files.num_rows, page.total, 'file')}, {ORDERS[choice.order]}.",
    )
    opened = state.get_str(state.FILE)
    rows, key = page.files.to_pylist(), f"files_{page.start}_{opened}"
    chosen = lists.choose(view.FILES, rows, key=key, names=[row["path"] for row in rows], alt="Data files")
    if chosen and chosen != opened:
        state.set_params({state.FILE: chosen})
        opened = chosen
    if opened:
        _one(snapshot, opened)


def _start() -> int:
    """Where the page in the URL begins, counted from 0."""
    return (max(1, state.get_int(state.FILES_PAGE) or 1) - 1) * PER_PAGE


def _pager(total: int, begin: int, words: str) -> None:
    """What part of a list this is, and buttons to the parts beside it."""
    number = begin // PER_PAGE + 1
    with st.container(horizontal=True, vertical_alignment="center", key="pager"):
        st.caption(words, width="content")
        if total > PER_PAGE:
            for label, to, is_end in (
                ("Previous", number - 1, number == 1),
                ("Next", number + 1, begin + PER_PAGE >= total),
            ):
                st.button(
                    label,
                    key=f"page_{label}",
                    disabled=is_end,
                    on_click=state.set_params,
                    args=({state.FILES_PAGE: to},),
                )


def _one(snapshot: Snapshot, path: str) -> None:
    with st.container(border=True, key="one_file"):
        with st.container(horizontal=True, vertical_alignment="center", key="one_file_head"):
            st.markdown(f"**{markdown_safe(path)}**", width="stretch")
            st.button(
                "Close",
                key="close_file",
                icon=":material/close:",
                on_click=state.set_params,
                args=({state.FILE: None},),
            )
        footer = viewer.lake().footer(snapshot, path)
        figures.key_figures(view.footer_figures(footer), key="one_file_figures")
        st.markdown(markdown_safe(view.footer_sentence(footer)))
        columns, alt = view.footer_columns(footer), "Columns of the file, the largest first"
        lists.show(columns, view.largest_columns(footer), key="footer_columns", alt=alt)
        with st.expander("Row groups"):
            groups = footer.groups[: view.MOST_GROUPS]
            lists.show(view.GROUPS, groups, key="footer_groups", alt="Row groups of the file")
        with st.expander("Statistics in the log"):
            st.code(view.statistics_text(footer.logged), language="json")


@st.cache_data(show_spinner=False, max_entries=cache.FIXED_ENTRIES, hash_funcs=cache.BY_VERSION)
def _file_page(snapshot: Snapshot, choice: FileChoice, start: int, length: int) -> FilePage:
    """A part of the chosen files of a snapshot, in their order."""
    return file_sizes.file_page(snapshot, choice, start=start, length=length)


@st.cache_data(
    show_spinner="Reading the column's statistics …",
    show_time=True,
    max_entries=cache.FIXED_ENTRIES,
    hash_funcs=cache.BY_VERSION,
)
def _overlap(snapshot: Snapshot, column: str) -> Overlap:
    """How many files a look-up of one value of a column reads, at a fixed version."""
    return clustering.overlap(snapshot, column)
