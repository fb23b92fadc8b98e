"""What changed between two versions: the sentence, the counts, and one chosen list below them.

Rule: net and gross are labelled each time; where rows cannot be compared, files, commits and metadata still are.
"""

import streamlit as st

from app import cache, context
from app.components.lists import Look, show
from app.components.live import chart, key_figures
from app.components.version_range import choose_range
from app.errors import sentence
from app.view import changes as view
from app.view.changed_rows import PAGE_ROWS, build_row_table, filter_rows, style
from app.view.format import UNKNOWN, count_text, markdown_safe
from app.view.streams import names_by_query
from backend.diff import export
from backend.diff.model import DiffMethod, RowChange, RowKind, VersionDiff

_GROSS = "Gross: by this commit alone"
COMMITS = Look(
    formats=dict.fromkeys(("Inserted", "Updated", "Deleted", "Files added", "Files removed"), "count")
    | {"When": "ago"},
    config={name: st.column_config.TextColumn(help=_GROSS) for name in ("Inserted", "Updated", "Deleted")}
    | {"Version": st.column_config.NumberColumn(format="v%d", pinned=True)},
    alt="Commits in between, newest first",
)
VIEWS = ("Rows", "Commits", "Schema and properties", "How it knows")
EXPORTS = (
    ("csv", "CSV", "text/csv", export.to_csv),
    ("json", "JSON", "application/json", export.to_json),
    ("parquet", "Parquet", "application/vnd.apache.parquet", export.to_parquet),
)


def diff_panel(diff: VersionDiff) -> None:
    """The whole answer to "what changed?"."""
    st.subheader(markdown_safe(view.headline(diff)), anchor=False)
    if diff.method is DiffMethod.LOG_ONLY:
        _unavailable(diff)
    elif diff.method is not DiffMethod.SAME_VERSION:
        key_figures(view.net_figures(diff), key="net_figures")
        gross = view.gross_counts(diff.commits)
        st.caption(
            f"**Net** is what differs between the two states. **Gross** is what the commits in between did, added up: "
            f"{view.counts_text(gross)}. A row inserted and deleted again is in gross and not in net."
        )
    default = VIEWS[0] if diff.is_available else VIEWS[1]
    chosen = st.segmented_control(
        "View", VIEWS, default=default, required=True, key="view", bind="query-params", label_visibility="collapsed"
    )
    match chosen:
        case "Commits":
            _commits(diff)
        case "Schema and properties":
            _metadata(diff)
        case "How it knows":
            _method(diff)
        case _:
            _rows(diff)


def _unavailable(diff: VersionDiff) -> None:
    lines = [f"**{markdown_safe(sentence(diff.reasons[0]))}**", *(markdown_safe(sentence(r)) for r in diff.reasons[1:])]
    if diff.hint:
        lines.append(f":material/arrow_forward: {markdown_safe(sentence(diff.hint))}")
    st.warning("\n\n".join(lines), icon=":material/visibility_off:")
    first = diff.first_covered_version
    newest = max(diff.from_version, diff.to_version)
    if first is not None and first < newest:
        st.button(
            f"Compare v{first} → v{newest}",
            key="first_covered",
            icon=":material/difference:",
            on_click=choose_range,
            args=(first, newest),
        )


def _rows(diff: VersionDiff) -> None:
    if not diff.is_available:
        st.info("**No rows to show here.** Files and commits are under Commits.", icon=":material/table_rows:")
        return
    if diff.method is DiffMethod.SAME_VERSION:
        st.info("**Choose two different versions above.**", icon=":material/equal:")
        return
    if not diff.rows:
        st.info(
            "**No row differs between the two states.** What the commits did is under Commits.", icon=":material/equal:"
        )
        return
    touched = ", ".join(f"{name}: {count_text(count)}" for name, count in diff.changed_cells.items())
    with st.container(horizontal=True, vertical_alignment="bottom", key="filters"):
        # No `format_func` on widgets bound to the URL: their link would carry the label.
        kinds = st.pills(
            "Kind of change", [kind.value for kind in RowKind], selection_mode="multi", key="kind", bind="query-params"
        )
        columns = st.multiselect(
            "Changed column",
            list(diff.changed_cells),
            key="column",
            bind="query-params",
            placeholder="Any" if touched else "No update changes a column",
            disabled=not touched,
            help=f"Updates that touch each column: {markdown_safe(touched)}" if touched else None,
        )
    found = filter_rows(diff.rows, kinds=[RowKind(kind) for kind in kinds], columns=columns)
    st.caption(view.shown_text(diff, found))
    if found:
        table = build_row_table(diff, _page(found))
        st.dataframe(
            style(table), hide_index=True, key="changed_rows", placeholder=UNKNOWN, alt="Changed rows, before and after"
        )
    _exports(diff)


def _page(found: list[RowChange]) -> list[RowChange]:
    pages = -(-len(found) // PAGE_ROWS)
    if pages == 1:
        return found
    number = st.number_input(f"Page (1 – {pages})", 1, pages, key="rows_page", width=160)
    return found[(number - 1) * PAGE_ROWS : number * PAGE_ROWS]


def _exports(diff: VersionDiff) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key="exports"):
        cut = f"the first {count_text(len(diff.rows))} of" if diff.truncated else "all"
        st.markdown(f"Export {cut} {view.rows_known_text(diff)}:", width="content")
        for suffix, label, mime, write in EXPORTS:
            st.download_button(
                label,
                data=lambda write=write: write(diff),
                file_name=f"{diff.ref.name.replace('/', '_')}_v{diff.from_version}_v{diff.to_version}.{suffix}",
                mime=mime,
                key=f"export_{suffix}",
                icon=":material/download:",
                on_click="ignore",
            )


def _commits(diff: VersionDiff) -> None:
    if not diff.commits:
        st.info("**No commit lies between the two.**", icon=":material/commit:")
        return
    st.markdown(f"Files: {view.files_text(diff.files)}.")
    figure = view.build_commit_figure(diff, mode=context.mode())
    if figure:
        chart(figure, key="per_commit", alt="Rows changed by each commit (gross)")
    frame = view.build_commit_frame(
        diff.commits, now=context.now(), streams=names_by_query(cache.streams_reading().streams)
    )
    show(frame, COMMITS, key="commits")


def _metadata(diff: VersionDiff) -> None:
    schema, properties = view.build_schema_frame(diff.schema), view.build_property_frame(diff.properties)
    st.markdown("**Schema**" if len(schema) else "**Schema**: the same at both versions.")
    if len(schema):
        st.dataframe(schema, hide_index=True, key="schema_diff")
    st.markdown("**Properties and protocol**" if len(properties) else "**Properties and protocol**: the same.")
    if len(properties):
        st.dataframe(properties, hide_index=True, key="property_diff")


def _method(diff: VersionDiff) -> None:
    st.markdown(f"**{view.METHOD_WORDS[diff.method]}**")
    st.markdown("\n".join(f"- {markdown_safe(sentence(reason))}" for reason in diff.reasons))
    st.markdown(f"{view.exactness_text(diff)}  \n{markdown_safe(view.key_text(diff))}")
