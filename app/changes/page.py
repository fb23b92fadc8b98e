"""What changed between two versions: how they are compared, the sentence, the counts, and one chosen list below them.

Rule: what the log tells is on the page before a row is read. Net and gross are labelled each time. Where rows cannot be
compared, files, commits and metadata still are. What the URL asks for stays visible even where it is not possible; the
answer then says why. On this machine a small comparison starts by itself, once in a session; a larger one waits for a
button that says how much it reads. An answer that anybody found is shown at once.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import cache, navigation, services, state, viewer
from app.changes import text, view
from app.changes.rows import changed_rows
from app.errors import boundary, show
from app.host_answer import HostQuestion
from app.ui import lists, work
from app.ui.export import exact_rows
from app.ui.figures import chart, key_figures, state_mark
from app.ui.frame import CHOICES, pin_names, version_picker
from app.ui.lake import OpenTable
from app.ui.table_acts import act_button, repair_button, way_back
from app.ui.view.commits import last_by_another, writer_text
from app.ui.view.explanation import counts_text, gross_text, looked_in, stands_out
from app.ui.view.theme import operation_text
from app.ui.view.words import PAGE_ROWS, markdown_safe, sentence
from backend.changes.cache import LogPart
from backend.changes.commits import FeedRows, feed_rows
from backend.changes.host_job import COMPUTED, UNEXPLAINED, DiffJobs
from backend.changes.key import join_columns, key_memory, likely_keys
from backend.changes.model import DiffMethod, Question, VersionDiff
from backend.changes.plan import METHOD_NAMES
from backend.errors import DiffError, LakehouseError
from backend.format import bytes_text, cut, things, utc_text
from backend.health.attention import finding_text, most_hurt, severity_of_notice
from backend.lake.history.history import example_condition, predicate_text, resolve_version
from backend.lake.lake import MOST_VIEWS, Lake
from backend.lake.model import Commit, TableCard
from backend.lake.table.schema import column_names
from backend.maintenance.model import Repair
from backend.sql.values import quoted_name

HERE, HOST, HOST_LABEL = "Here", "On the stream host", "Compare on the stream host"
ROWS, BY_COMMIT = "Rows", "Commits"
VIEWS = (ROWS, "Change feed", BY_COMMIT, "Schema and properties", "Files", "How it knows")
FAILED = "_failed_diffs"  # the errors by which this session's comparisons ended
SOON_S = 0.15  # a wait that nobody notices, instead of a page that is drawn twice
MOST_KEYS = 3  # offered to pair rows by
MOST_CONDITION = 2_000  # characters
DEFAULT_COMMITS = 10  # the range where the link names none
MOST_FINDINGS = 5  # above the answer; the table's page has them all
DAY = timedelta(days=1)


def changes(opened: OpenTable) -> None:
    """What is asked, the answer, and what helps."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="asked"):
        pickers = st.container(width=620, key="pickers")
        st.text_input(
            "Only rows with", key=state.ROWS_WHERE, bind="query-params", max_chars=2_000,
            placeholder=example_condition(opened.snapshot.metadata, is_good=False),
            help="SQL over one row, in DuckDB's dialect. A change counts where its row satisfies it before or after.",
        )  # fmt: skip
        methods = _options(opened)
    with boundary():
        against = _other_table(opened)
        newest = _newest(opened)
        with pickers:
            versions = _versions(opened, against, newest)
        if against is None:
            _offer_others(opened.latest_version, [*newest.values()])
        question, part = _asked(opened, against, versions, methods)
        if against is None:
            _findings(opened, versions)
        diff = _answer(question, part)
        if against is None:
            _what_helps(opened, versions, diff)


# which versions -------------------------------------------------------------------------------------------------------


def _versions(opened: OpenTable, against: OpenTable | None, newest: Mapping[str, Commit]) -> tuple[int, int]:
    """The pickers, and the two versions that the URL names, of which the first may be the newer one; without them the
    last ten commits. With `against` the second is one of that table. `newest`: commits of the first. Raises what
    `resolve_version` raises."""
    second = against or opened
    oldest = min((int(version) for version in newest), default=0)
    first = opened.latest_version if against else max(oldest, opened.latest_version - DEFAULT_COMMITS)
    labels = ("From version", f"To version of {markdown_safe(against.ref.name)}" if against else "To version")
    commits = (newest, _newest(against) if against else newest)
    ends = ((state.FROM, opened, first), (state.TO, second, second.latest_version))
    with st.container(horizontal=True, vertical_alignment="bottom", key="range"):
        for label, (key, table, default), offered in zip(labels, ends, commits, strict=True):
            version_picker(key, label, str(default), offered, pin_names(table.ref))
        texts = [state.get_str(key) or str(default) for key, _, default in ends]
        if not against:
            swapped = {state.FROM: texts[1], state.TO: texts[0]}
            st.button("Swap", icon=":material/swap_horiz:", key="swap", on_click=state.set_params, args=(swapped,))
    lake, clock = viewer.lake(), viewer.clock()
    return resolve_version(lake, opened.ref, texts[0], clock), resolve_version(lake, second.ref, texts[1], clock)


def _newest(opened: OpenTable) -> dict[str, Commit]:
    return {str(each.version): each for each in viewer.lake().history(opened.ref, limit=CHOICES)}


def _offer_others(latest: int, newest: Sequence[Commit]) -> None:
    """What people compare the latest version with: that of a day ago, and the last one by another writer."""
    streams, now = cache.stream_names(), services.now()
    is_older = len(newest) == CHOICES or any(c.committed_at and now - c.committed_at > DAY for c in newest[-1:])
    offers: list[tuple[str, int | str, str]] = [("24 h ago", "24 h ago", "As the table was then")] if is_older else []
    if other := last_by_another(newest, streams):
        by, since = (cut(writer_text(commit, streams, with_batch=False)) for commit in (other, newest[0]))
        help_text = f"v{other.version} is by {by}. All later ones are by {since}."
        offers.append(("the previous version by another writer", other.version, help_text))
    with st.container(horizontal=True, gap="medium"):
        for number, (label, version, help_text) in enumerate(offers):
            st.button(
                f"Compare with {label}", key=f"compare_with_{number}", type="tertiary", icon=":material/difference:",
                help=markdown_safe(help_text), on_click=_choose, args=(version, latest),
            )  # fmt: skip


def _choose(from_version: int | str, to_version: int) -> None:
    """Callback of buttons that lead to another range."""
    state.set_params({state.FROM: from_version, state.TO: to_version, state.KEY_OF: None})
    state.first_page(state.ROWS_PAGE)
    st.session_state[state.ROWS_WHERE] = ""  # a filter of this comparison would hide rows of the next one unasked


# the answer -----------------------------------------------------------------------------------------------------------


def _findings(opened: OpenTable, versions: tuple[int, int]) -> None:
    """Open findings of the commits between, what hurt most first, each with what repairs its rows."""
    noticed = cache.noticed(cache.streams_reading())
    latest = opened.latest_version if noticed.is_current else None
    told = [each for each in noticed.of(opened.ref.uri) if min(versions) < each.version <= max(versions)]
    for number, notice in enumerate(sorted(told, key=most_hurt)[:MOST_FINDINGS]):
        mark = state_mark(severity_of_notice(notice))
        st.markdown(f"{mark} **{markdown_safe(sentence(finding_text(notice, latest)))}**")
        with st.container(horizontal=True, vertical_alignment="center", key=f"finding_{number}"):
            repair_button(opened.ref, opened.latest_version, notice, key=f"repair_{number}")
            navigation.incident_link(opened.ref.name, notice.version - 1, notice.version)


def _answer(question: Question, part: LogPart) -> VersionDiff | None:
    """The whole answer to "what changed?": what stands out first; returns what is known of the rows."""
    diff, reply, refused = None, None, None
    if part.plan.method in (DiffMethod.SAME_VERSION, DiffMethod.LOG_ONLY):
        diff = part.outline
        st.session_state.pop(work.HOST_ASKED, None)  # the click that led here asks nothing else later
    elif question.on_host:
        try:
            reply = work.host_reply(_host_question(question))
            diff = reply.answer
        except DiffError as exc:
            refused = exc
    else:
        diff = _known_here(question, part)
    shown = diff or part.outline
    headline, finding = text.headline(shown, is_pending=diff is None), stands_out(shown.explanation)
    title, *others = [*finding[:1], headline]
    st.subheader(markdown_safe(title), anchor=False)
    for line in others:
        st.markdown(markdown_safe(line))
    _writer(shown)
    if question.where:
        st.button(
            markdown_safe(f"Only {text.filter_text(question.where)}"), key="where_filter", icon=":material/close:",
            help="Show every changed row", on_click=lambda: st.session_state.update({state.ROWS_WHERE: ""}),
        )  # fmt: skip
    slot = st.container(key="work")
    waits = not question.on_host and diff is None and work.is_asked(question)
    with slot:
        if refused is not None:
            show(refused)
        elif diff is None and reply is not None:
            label = HOST_LABEL if reply.job is None else "Compare again on the stream host"
            cost = f"Spark reads {text.reads_text(part)} there. The rest is known."
            work.show_reply(reply, "diff job", question.ref.name, page="the Changes page", label=label, cost=cost)
        elif diff is None and not waits:
            _offer(question, part)
    if shown.method is DiffMethod.LOG_ONLY:
        _unavailable(part, shown)
    elif shown.method is not DiffMethod.SAME_VERSION:
        if finding[1:]:
            st.markdown("\n".join(f"- {markdown_safe(line)}" for line in finding[1:]))
        if diff is not None:
            _look_in(question, diff)
        _counts(shown, is_pending=diff is None)
        if question.on_host and diff is not None:
            by = [sentence(why) for why in diff.reasons if why.startswith(COMPUTED) or why == UNEXPLAINED]
            st.caption(markdown_safe(" ".join((text.METHOD_WORDS[diff.method], *by))))
    _view(part, diff)
    if waits:
        _compare(question, slot)
    return diff


def _look_in(question: Question, diff: VersionDiff) -> None:
    """What changed rows share in another table whose rows they name, where somebody chooses one."""
    cards = {card.ref.name: card for card in cache.lake_reading().tables if isinstance(card, TableCard)}
    own = cards.pop(question.ref.name, None)
    mine = {c.path: c.type for c in own.columns if c.path in diff.changes.columns} if own else {}
    names = [
        name for name, card in cards.items()
        if join_columns(mine, {c.path: c.type for c in card.columns if c.path in mine}, card.properties)
    ]  # fmt: skip
    chosen = state.get_str(state.LOOK_IN)
    if not names or not diff.changes.net.total:
        return
    st.session_state["pick_look_in"] = chosen = chosen if chosen in names else None
    st.selectbox(
        "Look in…", names, index=None, key="pick_look_in", placeholder="A table with a key of these rows", width=320,
        on_change=lambda: state.set_params({state.LOOK_IN: st.session_state["pick_look_in"]}),
        help="What the changed rows share there and other rows do not. Both tables are joined by a key.",
    )  # fmt: skip
    if chosen is None:
        return
    asked, differences = replace(question, look_in=cards[chosen].ref, row_limit=0, on_host=False), cache.differences()
    found = differences.known(viewer.lake(), asked)
    if found is None and work.is_asked(asked, at_once=True):
        with boundary():  # the rest of the page needs none of it
            run = work.run(lambda: differences.over(viewer.lake(), asked), key="look_in", tell=text.progress_text)
            found = run.result if run else None
    if found is None:
        st.button("Look there", key="look", icon=":material/search:", on_click=work.ask, args=(asked,))
    elif found.explanation.look_in is None:
        st.caption(markdown_safe(sentence(found.reasons[0])))
    else:
        st.markdown("\n".join(f"- {markdown_safe(line)}" for line in looked_in(found.explanation.look_in)))


@lru_cache(MOST_VIEWS)
def diff_jobs(lake: Lake) -> DiffJobs:
    """Differences that stream hosts find."""
    return DiffJobs(services.settings(), lake)


def _host_question(question: Question) -> HostQuestion[VersionDiff]:
    """Raises `DiffError` for what a host cannot compare."""
    jobs = diff_jobs(viewer.lake())
    wanted = jobs.request(question, actor=viewer.actor(), reason="asked for on the Changes page")
    return HostQuestion(wanted, "compare", lambda job: jobs.answer(question, job))


def _known_here(question: Question, part: LogPart) -> VersionDiff | None:
    """The answer, where it is there or comes soon. Where it was asked for, it is computed while the page is drawn."""
    differences = cache.differences()
    diff = differences.known(viewer.lake(), question)
    if diff is None and work.is_asked(question, at_once=part.is_small):
        if (diff := differences.soon(viewer.lake(), question, SOON_S)) is not None:
            work.cancel()
    elif diff is None:
        differences.abandon(viewer.lake(), question)  # Cancel, not a page that reruns
    return diff


def _offer(question: Question, part: LogPart) -> None:
    """The button that starts the comparison, and what became of an ended one."""
    with st.container(horizontal=True, vertical_alignment="center", key="offer"):
        st.button(
            f"Compare rows: read {text.reads_text(part)}", key="start", type="primary", icon=":material/difference:",
            on_click=work.ask, args=(question,),
        )  # fmt: skip
        stopped, new = "Stopped before rows were counted.", "Rows are not compared yet; the rest is known."
        st.caption(stopped if work.was_begun(question) else new)
    if (failure := st.session_state.get(FAILED, {}).get(question)) is not None:
        show(failure)


def _compare(question: Question, slot: DeltaGenerator) -> None:
    """Computes the rows and shows the progress in `slot`, then draws the page anew."""
    differences = cache.differences()
    failed: dict[Question, LakehouseError] = st.session_state.setdefault(FAILED, {})
    failed.pop(question, None)
    try:
        with slot:
            last = work.run(lambda: differences.over(viewer.lake(), question), key="diff", tell=text.progress_text)
    except LakehouseError as exc:
        failed[question] = exc  # told where it is offered anew, not below a bar that stands still
        st.rerun()
    if last is not None and last.result is not None:
        st.rerun()


def _unavailable(part: LogPart, diff: VersionDiff) -> None:
    """Why rows are not compared, and what can be: a shorter range, or all of it where only the limit prevents it."""
    lines = [f"**{markdown_safe(sentence(diff.reasons[0]))}**", *(markdown_safe(sentence(r)) for r in diff.reasons[1:])]
    if diff.hint:
        lines.append(f":material/arrow_forward: {markdown_safe(sentence(diff.hint))}")
    st.warning("\n\n".join(lines), icon=":material/visibility_off:")
    first, newest = diff.log.first_covered_version, max(diff.question.from_version, diff.question.to_version)
    if first is not None and first < newest:
        st.button(
            f"Compare v{first} → v{newest}", key="first_covered", icon=":material/difference:", on_click=_choose,
            args=(first, newest),
        )  # fmt: skip
    methods = [method for method in _methods(part) if method is not DiffMethod.LOG_ONLY]
    size = part.possible.bytes_to_read
    if part.plan.method is not DiffMethod.LOG_ONLY or not methods or size is None:
        return
    st.button(
        f"Compare rows anyway: read {bytes_text(size)}", key="anyway", icon=":material/difference:",
        on_click=state.set_params, args=({state.METHOD: methods[0].value},),
    )  # fmt: skip

    def ask_host() -> None:
        st.session_state[state.VIEW] = ROWS  # it fell on the commits while there were none
        work.ask_host()

    work.host_button(HOST_LABEL, "diff job", diff.question.ref.name, key="to_host", on_click=ask_host)


def _counts(diff: VersionDiff, *, is_pending: bool) -> None:
    key_figures(view.net_figures(diff, is_pending=is_pending), key="net_figures")
    if not is_pending:
        _pair_rows(diff)
    gross = gross_text(diff.commits)
    if diff.commits and not diff.question.where and gross != counts_text(diff.changes.net):
        st.caption(
            f"**Net** is what differs between the two states. **Gross** is what the commits in between did, "
            f"{text.gross_source_text(diff.commits)}: {gross}. "
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


def _view(part: LogPart, diff: VersionDiff | None) -> None:
    shown = diff or part.outline
    with st.container(horizontal=True, vertical_alignment="center", key="views"):
        chosen = st.segmented_control(
            "View", VIEWS, default=ROWS if shown.is_available else BY_COMMIT, required=True, key=state.VIEW,
            bind="query-params", label_visibility="collapsed",
        )  # fmt: skip
        st.space("stretch")
        first, second = shown.question.from_version, shown.question.to_version
        if shown.question.against is None and first != second:  # changed rows as a table to ask
            rows = quoted_name(f"{shown.question.ref.name}$changes")
            where = f" WHERE {shown.question.where}" if shown.question.where else ""
            navigation.query_link(f"SELECT * FROM {rows}({min(first, second)}, {max(first, second)}){where}")
        if (state.get_str(state.FROM), state.get_str(state.TO)) != (str(first), str(second)):
            pinned = {state.FROM: first, state.TO: second}  # a link without fixed versions means other ones tomorrow
            st.button(
                "Fix versions in link", key="pin", type="tertiary", icon=":material/push_pin:",
                on_click=state.set_params, args=(pinned,),
            )  # fmt: skip
        _summary(shown, is_pending=diff is None)
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
            _method(part, diff)
        case _ if diff is None:
            _method(part, None)
            _commits(shown)
        case _:
            changed_rows(diff)


def _summary(diff: VersionDiff, *, is_pending: bool) -> None:
    summary = text.to_markdown(diff, is_pending=is_pending, streams=cache.stream_names())
    with st.popover("Copy for incident", type="tertiary", icon=":material/content_copy:", key="summary"):
        st.caption("Markdown for the incident channel")
        st.code(summary, language="markdown", wrap_lines=True, height=360)
        st.download_button(
            "Markdown", data=summary.encode(), file_name=f"{text.file_stem(diff)}.md", mime="text/markdown",
            key="export_md", icon=":material/download:", on_click="ignore",
        )  # fmt: skip


def _feed(diff: VersionDiff) -> None:
    """Every change as it was recorded, also those that a later one undid."""
    question = diff.question
    low, high = sorted((question.from_version, question.to_version))
    if question.against or low == high:
        st.info("**The change feed is one table's, between two versions.**", icon=":material/rss_feed:")
        return
    lake = viewer.lake()
    feed = _first_of_feed(question, PAGE_ROWS, lake, repr(lake.hidden(question.ref)))
    some = "The first" if feed.truncated else "All"
    st.caption(f"{some} {things(feed.rows.num_rows, 'row')} of v{low + 1} to v{high}, as they were recorded.")
    exact_rows(feed.rows, key="feed", alt="Rows of the change feed")
    command = f"weir changes {shlex.quote(question.ref.name)} --from {low} --to {high} --output changes.parquet"
    st.caption(f"All of them as a file: {markdown_safe(f'`{command}`')}")


def _commits(diff: VersionDiff) -> None:
    if not diff.commits:
        between = "Two tables share no commits." if diff.question.against else "No commit lies between the two."
        st.info(f"**{between}**", icon=":material/commit:")
        return
    if figure := view.build_commit_figure(diff, mode=viewer.mode()):
        chart(figure, key="per_commit", alt="Rows changed by each commit (gross)")
    commits = {str(each.commit.version): each for each in sorted(diff.commits, key=lambda each: -each.commit.version)}
    source = text.gross_source_text(diff.commits)
    st.caption(f"Rows are gross, {source}. Click a commit to see it in full and compare it alone.")
    slot = st.container(key="chosen_commit")
    chosen = lists.choose(
        text.commit_columns(services.now(), cache.stream_names()), [*commits.values()], names=[*commits],
        key=f"commits_{diff.question.from_version}_{diff.question.to_version}", alt="Commits in between, newest first",
    )  # fmt: skip
    if not chosen:
        return
    commit, version = commits[chosen].commit, int(chosen)
    with slot, st.container(border=True, key="one_commit"):
        st.markdown(f"**v{version}** {markdown_safe(operation_text(commit.operation))}")
        if predicate := predicate_text(commit):
            st.code(predicate, language="sql", wrap_lines=True)
        if commit.user_metadata:
            st.caption(markdown_safe(commit.user_metadata))
        if version:
            st.button(
                f"Only this commit: v{version - 1} → v{version}", key="only_commit", icon=":material/difference:",
                on_click=_choose, args=(version - 1, version),
            )  # fmt: skip


def _metadata(diff: VersionDiff) -> None:
    if changed := text.metadata_changes(diff.log):
        lists.show(text.METADATA_CHANGES, changed, key="metadata", alt="Schema, properties and protocol that differ")
    else:
        st.markdown("**Schema, properties and protocol** are the same at both versions.")


def _files(part: LogPart, diff: VersionDiff) -> None:
    key_figures(view.file_figures(part), key="file_figures")
    if rewrites := text.rewrites(diff):
        st.markdown("**Commits that only rewrote files**: no row differs by them.")
        lists.show(view.REWRITES, rewrites, key="rewrites", alt="Commits that only rewrote files")


def _method(part: LogPart, diff: VersionDiff | None) -> None:
    """How the answer is known, or what an answer would take."""
    plan, method = part.plan, part.plan.method if diff is None else diff.method
    rows = "" if plan.rows_to_read is None else f", {things(plan.rows_to_read, 'row')}"
    lines = [f"To read: {text.reads_text(part)}{rows}", *plan.reasons(method)] if diff is None else diff.reasons
    st.markdown(f"**{text.METHOD_WORDS[method]}**")
    st.markdown("\n".join(f"- {markdown_safe(sentence(line))}" for line in lines))
    if diff is not None:
        st.markdown(f"{text.exactness_text(diff)}  \n{markdown_safe(text.key_text(diff))}")


def _what_helps(opened: OpenTable, versions: tuple[int, int], diff: VersionDiff | None) -> None:
    """Other values for some rows, or the version before as it was. `diff`: what the page knows of the rows."""
    where = str(st.session_state.get(state.ROWS_WHERE) or "").strip()
    act_button(opened.ref, opened.latest_version, Repair(where), key="repair")
    if (before := min(versions)) < opened.latest_version:
        is_of_latest = versions == (before, opened.latest_version)
        since = diff if is_of_latest and diff is not None and not diff.question.where else None
        with st.expander(f"Undo everything after v{before}", key="undo"):
            way_back(opened.ref, opened.latest_version, before, since)


# how they are compared: a popover bound to the URL --------------------------------------------------------------------


def _other_table(opened: OpenTable) -> OpenTable | None:
    """The other table that the URL names; raises `TableNotFoundError` when it is not there."""
    name = state.get_str(state.AGAINST)
    if not name or name == opened.ref.name:
        return None
    lake = viewer.lake()
    ref = lake.find(name)
    return OpenTable(ref, lake.snapshot(ref), lake.latest_version(ref))


def _options(opened: OpenTable) -> DeltaGenerator:
    """The popover with what does not depend on the two versions; returns the place of the methods, which do."""
    box = st.popover("How to compare", icon=":material/tune:", key="how")
    columns = list(column_names(opened.snapshot.metadata))
    with box:
        _table_picker(opened)
        st.multiselect(
            "Key: columns that name a row", columns, key=state.KEY, bind="query-params", accept_new_options=True,
            placeholder="As declared, as MERGE joins, or as last given",
        )  # fmt: skip
        st.multiselect("Leave out columns", columns, key=state.WITHOUT, bind="query-params", placeholder="None")
        st.number_input(
            "Floats are equal within", min_value=0.0, value=0.0, step=0.001, format="%g", key=state.TOLERANCE,
            bind="query-params", help="Only where rows are paired by a key; NaN equals NaN, null equals null.",
        )  # fmt: skip
        st.toggle(
            "Across a CREATE OR REPLACE", key=state.ACROSS_REPLACE, bind="query-params",
            help="Where the table was replaced between the two versions, they are compared as two tables.",
        )  # fmt: skip
        st.session_state["pick_on"] = HOST if state.get_str(state.ON) == "host" else HERE
        st.segmented_control(
            "Compare rows", (HERE, HOST), key="pick_on", required=True,
            on_change=lambda: state.set_params({state.ON: "host" if st.session_state["pick_on"] == HOST else None}),
            help="On the stream host, Spark compares any amount of data as a job. Its answer is kept for everyone.",
        )  # fmt: skip
    return box.container(key="methods")


def _table_picker(opened: OpenTable) -> None:
    chosen = state.get_str(state.AGAINST)
    names = [name for name in cache.lake_reading().names if name != opened.ref.name]
    if chosen and chosen not in names:
        names.append(chosen)

    def on_change() -> None:
        forgotten = dict.fromkeys((state.FROM, state.TO, state.METHOD, state.ON))
        state.set_params({state.AGAINST: st.session_state["pick_against"], **forgotten})

    st.session_state["pick_against"] = chosen
    st.selectbox(
        "Compare with another table", names, index=None, key="pick_against", placeholder="This table",
        on_change=on_change, help="A clone, a backup, or the layer below: by key, or as whole rows.",
    )  # fmt: skip


def _methods(part: LogPart) -> list[DiffMethod]:
    """The methods that can be named, best first."""
    return [method for method in part.possible.methods if method is not DiffMethod.SAME_VERSION]


def _asked_method() -> DiffMethod | None:
    """A method that the URL names; anything else is as if it named none."""
    name = state.get_str(state.METHOD)
    return next((method for method in DiffMethod if method == name != DiffMethod.SAME_VERSION), None)


def _show_methods(slot: DeltaGenerator, part: LogPart | None) -> None:
    """The possible methods, and why the others are not possible. Without a plan only the way back to the best one."""
    asked, choices = _asked_method(), _methods(part) if part else []
    if asked and asked not in choices:
        choices.append(asked)

    def on_change() -> None:
        method = st.session_state["pick_method"]
        state.set_params({state.METHOD: method.value if method else None})

    st.session_state["pick_method"] = asked
    with slot:
        st.selectbox(
            "Method", choices, index=None, key="pick_method", placeholder="The best that is possible",
            format_func=lambda method: text.METHOD_WORDS[method].partition(":")[0], on_change=on_change,
        )  # fmt: skip
        against = part.possible.against.items() if part else ()
        lines = [f"Not by {METHOD_NAMES[method]}: {reason}" for method, reason in against]
        if lines:
            st.caption("\n".join(f"- {markdown_safe(sentence(line))}" for line in lines))


def _asked(
    opened: OpenTable, against: OpenTable | None, versions: tuple[int, int], methods: DeltaGenerator
) -> tuple[Question, LogPart]:
    """What the URL asks for, with what the log tells of it; the widgets must be drawn before. Raises as `log_part`."""
    settings = services.settings()
    key = tuple(st.session_state.get(state.KEY) or ()) or None
    # As it was when this viewer first looked: the key of another one must not change this page.
    known = key_memory(settings.home).known(opened.ref)
    remembered = st.session_state.setdefault(f"remembered_key:{opened.ref.uri}", known)
    question = Question(
        opened.ref,
        *versions,
        key=key,
        remembered_key=None if key else remembered,
        row_limit=settings.lake.diff_rows,
        method=_asked_method(),
        max_bytes=settings.lake.diff_max_bytes,
        tolerance=float(st.session_state.get(state.TOLERANCE) or 0.0),
        against=against.ref if against else None,
        where=str(st.session_state.get(state.ROWS_WHERE) or "").strip() or None,
        on_host=state.get_str(state.ON) == "host",
        across_replace=bool(st.session_state.get(state.ACROSS_REPLACE)),
        table_ids=tuple(each.snapshot.metadata.id for each in (opened, against) if each),
    )
    lake, differences, part = viewer.lake(), cache.differences(), None
    try:
        part = differences.log_part(lake, question)
    finally:
        _show_methods(methods, part)
    left_out = set(st.session_state.get(state.WITHOUT) or ())
    if not left_out:
        return question, part
    columns = tuple(name for name in part.columns if name not in left_out)
    if not columns:
        raise DiffError("every column is left out", hint="keep one to compare, under How to compare")
    question = replace(question, columns=columns)
    return question, differences.log_part(lake, question)


@st.cache_resource(
    show_spinner="Reading the change feed …", max_entries=cache.FIXED_ENTRIES, hash_funcs={Question: repr}
)
def _first_of_feed(question: Question, limit: int, _lake: Lake, hidden: str) -> FeedRows:
    """The first rows of the change feed between its versions; raises `DiffError` where it does not cover them."""
    del hidden  # a part of the key alone
    low, high = sorted((question.from_version, question.to_version))
    return feed_rows(_lake, question.ref, (low, high), limit=limit)
