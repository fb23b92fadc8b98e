"""What changed between two versions: the sentence, the counts, and one chosen list below them.

Rule: what the log tells is on the page before a row is read. Net and gross are labelled each time. Where rows cannot be
compared, files, commits and metadata still are.
"""

import shlex
from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from app import cache, navigation, services, state, viewer
from app.changes import here, on_host, text
from app.changes.options import OptionsPopover, asked_question, left_out
from app.changes.rows import changed_rows
from app.changes.view import frames as view
from app.changes.view.rows import PAGE_ROWS, build_feed_frame, cell_text
from app.changes.view.summary import to_markdown
from app.ui import lists
from app.ui.figures import chart, key_figures
from app.ui.lake import OpenTable
from app.ui.table_acts import act_button, way_back
from app.ui.version_range import VersionRange, choose_range, pin_range
from app.ui.view.commits import writer_text
from app.ui.view.explanation import explained
from app.ui.view.theme import operation_text
from app.ui.view.words import markdown_safe, sentence
from backend.changes.cache import LogPart
from backend.changes.key import likely_keys
from backend.changes.model import DiffMethod, Question, VersionDiff
from backend.errors import DiffError, LakehouseError
from backend.format import UNKNOWN, cut, things, utc_text
from backend.lake.history.history import predicate_text
from backend.maintenance.model import Repair
from backend.sql.values import quoted_name

COMMITS = lists.Look(
    formats=dict.fromkeys(("Inserted", "Updated", "Deleted", "Files added", "Files removed"), "count")
    | {"When": "ago"},
    config={name: st.column_config.TextColumn(help="Gross: by this commit alone") for name in view.GROSS_COLUMNS}
    | {"Version": st.column_config.NumberColumn(format="v%d", pinned=True)},
    alt="Commits in between, newest first",
)
REWRITES = lists.Look(
    formats=dict.fromkeys(("Files added", "Files removed"), "count"),
    config={"Version": st.column_config.NumberColumn(format="v%d", pinned=True)},
    alt="Commits that only rewrote files",
)
ROWS, FEED, BY_COMMIT, METADATA, FILES, HOW = VIEWS = (
    *("Rows", "Change feed", "Commits", "Schema and properties", "Files", "How it knows"),
)

MOST_KEYS = 3  # offered to pair rows by
MOST_CONDITION = 2_000  # characters


def answer(
    opened: OpenTable, against: OpenTable | None, chosen: VersionRange, how: OptionsPopover
) -> VersionDiff | None:
    """The whole answer to "what changed?"; returns what is known of the rows."""
    question, part = _asked(opened, against, chosen, how)
    runner = on_host if question.on_host else here
    found = runner.known(question, part)
    st.subheader(markdown_safe(text.headline(found or part.outline, is_pending=found is None)), anchor=False)
    _writer(found or part.outline)
    if question.where:
        st.button(
            markdown_safe(f"Only {text.filter_text(question.where)}"), key="where_filter", icon=":material/close:",
            help="Show every changed row", on_click=lambda: st.session_state.update({state.ROWS_WHERE: ""}),
        )  # fmt: skip
    slot = st.container(key="work")
    waits = found is None and runner.offer(question, part, slot)
    shown = found or part.outline
    if shown.method is DiffMethod.LOG_ONLY:
        _unavailable(shown)
        here.too_large(part)
        on_host.too_large(part, view_of_rows=ROWS)
    elif shown.method is not DiffMethod.SAME_VERSION:
        _explanation(shown)
        _counts(shown, is_pending=found is None)
        if question.on_host and found is not None:
            on_host.say_who(found)
    _view(part, found)
    if waits:
        here.compare(question, slot)
    return found


def _asked(
    opened: OpenTable, against: OpenTable | None, chosen: VersionRange, how: OptionsPopover
) -> tuple[Question, LogPart]:
    """The question with what the log tells of it; raises as `prepare` does."""
    question = asked_question(opened, against, chosen)
    lake, differences = services.lake(), cache.differences()
    try:
        part = differences.log_part(lake, question)
    except LakehouseError:
        how.show_methods(None)
        raise
    how.show_methods(part)
    if not (out := set(left_out())):
        return question, part
    columns = tuple(name for name in part.columns if name not in out)
    if not columns:
        raise DiffError("every column is left out", hint="keep one to compare, under How to compare")
    question = replace(question, columns=columns)
    return question, differences.log_part(lake, question)


def _counts(diff: VersionDiff, *, is_pending: bool) -> None:
    key_figures(view.net_figures(diff, is_pending=is_pending), key="net_figures")
    if not is_pending:
        _pair_rows(diff)
    if not diff.commits:
        return
    gross, where = text.gross_text(diff.commits), diff.question.where
    if not where and gross == text.counts_text(diff.changes.net):
        return
    only = f" of {markdown_safe(text.filter_text(where))}" if where else ""
    all_rows = " of all rows: the filter does not reach it" if where else ""
    st.caption(
        f"**Net** is what differs between the two states{only}. **Gross** is what the commits in between did, added "
        f"up, {text.gross_source_text(diff.commits)}: {gross}{all_rows}. "
        "A row inserted and deleted again is in gross and not in net."
    )


def _pair_rows(diff: VersionDiff) -> None:
    """Without a key an update is a row that went and a row that came: one click shows it as before and after."""
    names = likely_keys(diff.changes.columns)[:MOST_KEYS]
    if diff.key is None and diff.changes.net.inserted and diff.changes.net.deleted and names:
        with st.container(horizontal=True, vertical_alignment="center", key="pair_rows"):
            st.caption("No key is known: an updated row counts as one deleted and one inserted.", width="content")
            for name in names:
                st.button(
                    f"Pair rows by {markdown_safe(name)}", key=f"pair_by_{name}", type="tertiary",
                    icon=":material/key:", on_click=lambda name=name: st.session_state.update({state.KEY: [name]}),
                )  # fmt: skip


def _writer(diff: VersionDiff) -> None:
    """Of a single commit: who wrote it, how, and the condition by which it found its rows; *Commits* has all of one
    that is longer than people read."""
    if len(diff.commits) == 1:
        commit = diff.commits[0].commit
        found = predicate_text(commit)
        by = f" by {writer_text(commit, cache.stream_names())}{f', {commit.job}' if commit.job else ''}"
        where = f" where {cut(found, MOST_CONDITION)}" if found else ""
        at = f", {utc_text(commit.committed_at)}" if commit.committed_at else ""
        st.caption(markdown_safe(f"{operation_text(commit.operation)}{by}{at}{where}"))


def _explanation(diff: VersionDiff) -> None:
    if said := explained(diff.explanation):
        with st.container(border=True, key="explanation"):
            st.markdown("**What stands out**\n\n" + "\n".join(f"- {markdown_safe(each)}" for each in said))


def _view(part: LogPart, found: VersionDiff | None) -> None:
    shown = found or part.outline
    with st.container(horizontal=True, vertical_alignment="center", key="views"):
        chosen = st.segmented_control(
            "View", VIEWS, default=ROWS if shown.is_available else BY_COMMIT, required=True, key=state.VIEW,
            bind="query-params", label_visibility="collapsed",
        )  # fmt: skip
        st.space("stretch")
        _query_link(shown)
        _pin(shown)
        _summary(shown, is_pending=found is None)
    match chosen:
        case "Change feed":
            _feed(shown)
        case "Commits":
            _commits(shown)
        case "Schema and properties":
            _metadata(shown)
        case "Files":
            _files(part, shown)
        case "How it knows":
            _method(part, found)
        case _ if found is None:
            _method(part, None)
            _commits(shown)
        case _:
            changed_rows(found)


def _query_link(diff: VersionDiff) -> None:
    """Changed rows as a table to ask, where both versions are of one."""
    low, high = sorted((diff.question.from_version, diff.question.to_version))
    if diff.question.against is None and low < high:
        changes = quoted_name(f"{diff.question.ref.name}$changes")
        navigation.query_link(f"SELECT * FROM {changes}({low}, {high})")


def _pin(diff: VersionDiff) -> None:
    """Links without fixed versions mean other ones tomorrow."""
    first, second = diff.question.from_version, diff.question.to_version
    if (state.text(state.FROM), state.text(state.TO)) != (str(first), str(second)):
        st.button(
            f"Fix v{first} and v{second} in the link", key="pin", type="tertiary", icon=":material/push_pin:",
            on_click=pin_range, args=(first, second),
        )  # fmt: skip


def _summary(diff: VersionDiff, *, is_pending: bool) -> None:
    summary = to_markdown(diff, is_pending=is_pending, streams=cache.stream_names())
    with st.popover("Copy for incident", icon=":material/content_copy:", key="summary"):
        st.caption("Markdown for the incident channel")
        st.code(summary, language="markdown", wrap_lines=True, height=360)
        st.download_button(
            "Markdown", data=summary.encode(), file_name=f"{text.file_stem(diff)}.md", mime="text/markdown",
            key="export_md", icon=":material/download:", on_click="ignore",
        )  # fmt: skip


def _unavailable(diff: VersionDiff) -> None:
    lines = [f"**{markdown_safe(sentence(diff.reasons[0]))}**", *(markdown_safe(sentence(r)) for r in diff.reasons[1:])]
    if diff.hint:
        lines.append(f":material/arrow_forward: {markdown_safe(sentence(diff.hint))}")
    st.warning("\n\n".join(lines), icon=":material/visibility_off:")
    first = diff.log.first_covered_version
    newest = max(diff.question.from_version, diff.question.to_version)
    if first is not None and first < newest:
        st.button(
            f"Compare v{first} → v{newest}",
            key="first_covered",
            icon=":material/difference:",
            on_click=choose_range,
            args=(first, newest),
        )


def _feed(diff: VersionDiff) -> None:
    """Every change as it was recorded, also those that a later one undid."""
    question = diff.question
    low, high = sorted((question.from_version, question.to_version))
    if question.against or low == high:
        st.info("**The change feed is one table's, between two versions.**", icon=":material/rss_feed:")
        return
    feed = cache.feed(question, PAGE_ROWS)
    cut = "The first" if feed.truncated else "All"
    st.caption(
        f"{cut} {things(feed.rows.num_rows, 'row')} of v{low + 1} to v{high}, as they were recorded: nothing is netted."
    )
    st.dataframe(
        build_feed_frame(feed.rows).style.format(cell_text), hide_index=True, key="feed",
        placeholder=UNKNOWN, alt="Rows of the change feed",
    )  # fmt: skip
    command = f"weir changes {shlex.quote(question.ref.name)} --from {low} --to {high} --output changes.parquet"
    st.caption(f"All of them as a file: {markdown_safe(f'`{command}`')}")


def _commits(diff: VersionDiff) -> None:
    if not diff.commits:
        between = "Two tables share no commits." if diff.question.against else "No commit lies between the two."
        st.info(f"**{between}**", icon=":material/commit:")
        return
    figure = view.build_commit_figure(diff, mode=viewer.mode())
    if figure:
        chart(figure, key="per_commit", alt="Rows changed by each commit (gross)")
    streams = cache.stream_names()
    frame = view.build_commit_frame(diff.commits, now=services.now(), streams=streams)
    st.caption(
        f"Rows are gross, {text.gross_source_text(diff.commits)}. "
        "Click a commit to see it in full and compare it alone."
    )
    slot = st.container(key="chosen_commit")
    names = [str(version) for version in frame["Version"]]
    chosen = lists.choose(
        frame, COMMITS, key=f"commits_{diff.question.from_version}_{diff.question.to_version}", names=names
    )
    if chosen:
        with slot:
            _commit(diff, int(chosen))


def _commit(diff: VersionDiff, version: int) -> None:
    """One commit of the range: its condition in full, and the way to its own difference."""
    commit = next(each.commit for each in diff.commits if each.commit.version == version)
    with st.container(border=True, key="one_commit"):
        st.markdown(f"**v{version}** {markdown_safe(operation_text(commit.operation))}")
        if predicate := predicate_text(commit):
            st.code(predicate, language="sql", wrap_lines=True)
        if commit.user_metadata:
            st.caption(markdown_safe(commit.user_metadata))
        if version:
            st.button(
                f"Only this commit: v{version - 1} → v{version}", key="only_commit", icon=":material/difference:",
                on_click=choose_range, args=(version - 1, version),
            )  # fmt: skip


def _metadata(diff: VersionDiff) -> None:
    schema, properties = view.build_schema_frame(diff.log.schema), view.build_property_frame(diff.log.properties)
    st.markdown("**Schema**" if len(schema) else "**Schema**: the same at both versions.")
    if len(schema):
        st.dataframe(schema, hide_index=True, key="schema_diff")
    st.markdown("**Properties and protocol**" if len(properties) else "**Properties and protocol**: the same.")
    if len(properties):
        st.dataframe(properties, hide_index=True, key="property_diff")


def _files(part: LogPart, diff: VersionDiff) -> None:
    st.markdown(f"Between the two states: {text.files_text(diff.log.files)}.")
    key_figures(view.file_figures(part), key="file_figures")
    frame = view.build_rewrite_frame(diff)
    if len(frame):
        st.markdown("**Commits that only rewrote files**: no row differs by them.")
        lists.show(frame, REWRITES, key="rewrites")


def _method(part: LogPart, found: VersionDiff | None) -> None:
    if found is None:
        _bullets(text.plan_lines(part))
        return
    _bullets([f"**{text.METHOD_WORDS[found.method]}**", *found.reasons])
    st.markdown(f"{text.exactness_text(found)}  \n{markdown_safe(text.key_text(found))}")


def _bullets(lines: Sequence[str]) -> None:
    """The first line as a heading, which is Weir's own; the others literally."""
    st.markdown(lines[0])
    st.markdown("\n".join(f"- {markdown_safe(sentence(line))}" for line in lines[1:]))


def what_helps(opened: OpenTable, versions: VersionRange, found: VersionDiff | None) -> None:
    """Other values for some rows, or the version before as it was. `found`: what the page knows of the rows."""
    where = str(st.session_state.get(state.ROWS_WHERE) or "").strip()
    act_button(opened.ref, opened.latest_version, Repair(where), key="repair")
    if (before := min(versions.from_version, versions.to_version)) < opened.latest_version:
        asked = (before, opened.latest_version) == (versions.from_version, versions.to_version)
        since = found if asked and found is not None and not found.question.where else None
        way_back(opened.ref, opened.latest_version, before, since)
