"""The frame around every page: table picker, state line, and the head of a table page.

Rule: a table page gets its table and version here or does not run at all; every failure has an answer made for it.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NoReturn

import streamlit as st

from app import cache, errors, logins, navigation, services, state, viewer
from app.ui import lists
from app.ui.figures import layer_badge, owner_badges
from app.ui.lake import LakeReading, OpenTable
from app.ui.live import VIEWERS, empty_lake, live, newest, paced, redrawn
from app.ui.table_acts import act_dialog, asked_act
from app.ui.view.theme import operation_text
from app.ui.view.words import folders_and_name, markdown_safe, sentence
from app.ui.work import spinner
from backend.access import Role
from backend.errors import LakehouseError, StoreError, TableCorruptError, TableNotFoundError, UnsupportedFeatureError
from backend.format import ago, bytes_text, duration_text, moment_help, things, utc_text
from backend.lake.history.history import VERSIONS, resolve_version
from backend.lake.model import Commit, TableRef, UnreadableTable
from backend.lake.table.properties import ownership
from backend.lake.table.restricted import refused
from backend.stream_model.stream import AuditEntry

STATE_LINE_EVERY_S = 5
CHOICES = 200  # commits that a picker of versions offers
_PICKER = "table_picker"
_PICKED, _MODE = "_table_picked", "_drawn_mode"
_MOST_LINKS = 12
_WITH_LISTS = ("table", "history", "timeline", "versions", "files", "properties")  # they stay until asked
# Streamlit makes an entry of the browser's history of each parameter that a page sets, those that nobody chose among
# them. Here the first that comes of what a person did is one, and what follows belongs to it: Back leads back at once.
_JS = """
if (!window.weirActs) {
  window.weirActs = { isNew: false }
  const push = history.pushState.bind(history), replace = history.replaceState.bind(history)
  const act = () => { window.weirActs.isNew = true }
  for (const kind of ["pointerdown", "keydown"]) window.addEventListener(kind, act, true)
  history.pushState = (...entry) => {
    const go = window.weirActs.isNew ? push : replace
    window.weirActs.isNew = false
    go(...entry)
  }
}
export default function () {}
"""
_one_entry = st.components.v2.component("weir_one_entry", js=_JS)
# Streamlit drops a click that it cannot send. A connection that is there again within a second is not worth a word.
_STYLE = """<style>
@keyframes weir-late { from { visibility: hidden } to { visibility: visible } }
.stApp:not([data-test-connection-state="CONNECTED"])::after {
  content: "Not connected: clicks are lost until the page is connected again.";
  position: fixed; inset: 0 0 auto 0; z-index: 1000000; padding: 0.5rem; text-align: center; font-weight: 600;
  color: #000; background: #F2B84B; animation: weir-late 0s 1s both;
}
@media (max-width: 640px) { .gtitle { font-size: 12px !important } }
</style>"""


# sidebar ---------------------------------------------------------------------------------------------------------


def login_page(reason: str) -> NoReturn:
    """A button for each provider, and nothing else; `reason`: why a login does not count (any more)."""
    st.title("Log in")
    if reason:
        st.warning(markdown_safe(sentence(reason)), icon=":material/lock:")
        with suppress(StoreError):
            _note_refusal(viewer.actor().name, reason)
    for name, provider in services.settings().auth.providers.items():
        label = f"Log in with {markdown_safe(provider.label or name)}"
        if st.button(label, key=f"log_in_{name}", icon=":material/login:", type="primary"):
            st.login(name)
    st.caption("You come back to this page.")
    st.stop()


@st.cache_data(show_spinner=False, ttl=timedelta(hours=1), max_entries=1_000)
def _note_refusal(name: str, reason: str) -> None:
    """In the audit trail once an hour: whoever tries again and again does not fill it."""
    services.store().note_of_viewer(AuditEntry(services.now(), name, "login refused", "login", reason))


def _login_line() -> None:
    """Who is logged in, and the way out; nothing where Weir asks for no login."""
    if services.settings().auth.providers and st.user.to_dict().get("is_logged_in"):
        st.caption(f":material/person: {markdown_safe(viewer.actor().name)}")
        if st.button("Log out", key="log_out", icon=":material/logout:", help="On every page of this login"):
            logins.end(viewer.login())
            st.logout()


def sidebar(*, on_table_page: bool) -> None:
    """Table picker and state line. A table picked on a page that shows none opens its summary."""
    with st.sidebar:
        _picker()
        st.session_state[_MODE] = viewer.mode()
        redrawn(_state_line, every_s=lambda: STATE_LINE_EVERY_S)
        if (who := viewer.actor()).refused and not who.looks_as:  # the band says that
            st.info(who.refused, icon=":material/lock:")
        _login_line()
        lists.listen_to_keys()
        _one_entry(key="one_entry", height=1)
        st.html(_STYLE)
    if st.session_state.pop(_PICKED, False) and not on_table_page:
        navigation.go("table", {state.TABLE: state.table()})


def _picker() -> None:
    try:
        with spinner("Reading the lake …", of="lake"):
            reading = cache.lake_reading()
    except LakehouseError:
        reading = None  # the state line and the page say why
    tables, names = (reading.tables, list(reading.names)) if reading else ((), [])
    broken = {table.ref.name for table in tables if isinstance(table, UnreadableTable)}
    chosen = state.table()
    if chosen and chosen not in names:
        names.append(chosen)  # a vanished table stays chosen: its page says that it is gone
    st.session_state[_PICKER] = chosen  # not bound to the URL: links could not set it then
    st.selectbox(
        "Table", names, key=_PICKER, index=None, placeholder="Search tables" if names else "No tables yet",
        disabled=not names, format_func=lambda name: f"⚠ {name}" if name in broken else name, on_change=_on_pick,
    )  # fmt: skip


def _on_pick() -> None:
    state.choose_table(st.session_state[_PICKER])
    st.session_state[_PICKED] = st.session_state[_PICKER] is not None


def _state_line() -> None:
    if st.session_state[_MODE] != viewer.mode():  # charts have the colours of the mode that they were drawn in
        st.rerun()
    settings, watching = services.settings(), VIEWERS.count
    try:
        lake: LakeReading | LakehouseError = cache.lake_reading()
    except LakehouseError as exc:
        lake = exc
    stale_s = settings.host.heartbeat_stale_s
    text, reasons = state_words(lake, cache.streams_reading(), services.now(), stale_after_s=stale_s)
    pause_s = paced(settings.ui.live_interval_s, watching)
    if pause_s > settings.ui.live_interval_s:
        text = f"{text} · {watching} viewers: live pages every {pause_s:g} s"
    with st.container(key="state_line"):
        if reasons:
            st.warning("\n\n".join([text, *map(markdown_safe, reasons)]), icon=":material/warning:")
        else:
            st.caption(text)


def state_words(
    lake: LakeReading | LakehouseError, streams: cache.StreamsReading, now: datetime, *, stale_after_s: float
) -> tuple[str, list[str]]:
    """ "host up 3 h · 6 streams · 7 tables · lake read 2 s ago", and the reasons why it is amber."""
    host, reason = _host_words(streams, now, stale_after_s)
    reasons = [reason] if reason else []
    if isinstance(lake, LakehouseError):
        num_tables, read = 0, "lake not read"
        reasons.append(f"The lake cannot be read: {lake.message}")
    else:
        num_tables, read = lake.num_found, f"lake read {ago(lake.read_at, now)}"
        read = read if lake.is_complete else "lake being read"
    if streams.rows_left_out:
        rows = things(streams.rows_left_out, "row")
        reasons.append(f"Left out: {rows} of the control store that cannot be read. The log says which.")
    num_streams = [things(len(streams.streams), "stream")] if streams.streams else []
    return " · ".join([host, *num_streams, things(num_tables, "table"), read]), reasons


def _host_words(streams: cache.StreamsReading, now: datetime, stale_after_s: float) -> tuple[str, str | None]:
    if streams.problem:
        return "store silent", f"The control store does not answer: {streams.problem}"
    alive = [host for host in streams.hosts if host.silent_s(now) <= stale_after_s]
    if len(alive) == 1:
        return f"host up {duration_text(max(0, round((now - alive[0].started_at).total_seconds())))}", None
    if alive:
        return f"{len(alive)} hosts up", None
    if not streams.hosts:
        # other applications run those that are attached
        needs_one = any(not status.declaration.is_attached for status in streams.streams)
        return "no stream host", "No stream host runs: `weir host` starts one." if needs_one else None
    last = max(host.beat_at for host in streams.hosts)
    return "host down", f"No host since {utc_text(last)} ({ago(last, now)}): `weir host` starts one."


def looks_as_band() -> None:
    """Through whose eyes an admin looks, and the way back; nothing else."""
    if name := viewer.actor().looks_as:
        with st.container(horizontal=True, vertical_alignment="center", border=True, key="looks_as_band"):
            st.markdown(f":orange[:material/visibility:] You look as **{markdown_safe(name)}**: reading only.")
            st.button("Back to yourself", key="back_to_yourself", icon=":material/undo:", on_click=viewer.look_as)


def no_role() -> NoReturn:
    """All that a viewer without any role sees."""
    who, grants = viewer.actor(), services.settings().auth.grants
    admins = ", ".join(grant.holder for grant in grants if grant.role is Role.ADMIN and not grant.on)
    st.title("You have no role here", anchor=False)
    st.info(
        f"You are **{markdown_safe(who.looks_as or who.name)}**, and no grant names you or a group of yours. "
        f"Ask {markdown_safe(admins) if admins else 'whoever keeps the settings of this Weir'}.",
        icon=":material/lock:",
    )
    _login_line()
    st.stop()


# head of a table page --------------------------------------------------------------------------------------------


def table_header(
    page: str, *, versioned: bool = True, otherwise: Callable[[TableRef], None] | None = None
) -> OpenTable:
    """The head of a table page. Without a table to show it says why, and stops the script.

    `page` is the page's name in the navigation. With `versioned=False` the page looks at the latest version and brings
    its own range. `otherwise` shows what the page knows of a table whose state cannot be read.
    """
    name, pinned = state.settle_table()
    if name is None:
        _tables_there(page)
    act_dialog()
    opened = _open(name, pinned if versioned else None, page, otherwise)
    st.set_page_config(page_title=f"{opened.ref.name} · {navigation.title(page)} · Weir")
    _title_row(opened, page, versioned=versioned)
    asked_act(opened.ref)
    if (hidden := opened.snapshot.hidden) is not None:
        st.caption(f":material/visibility_lock: {markdown_safe(sentence(refused(hidden, hidden.names).message))}")
    if not opened.is_latest:
        snapshot, behind = opened.snapshot, things(opened.latest_version - opened.snapshot.version, "version")
        with st.container(horizontal=True, vertical_alignment="center", border=True, key="pinned_band"):
            st.markdown(
                f":orange[:material/push_pin:] You look at **v{snapshot.version}**, "
                f"committed {ago(snapshot.committed_at, services.now())}, {behind} behind the latest.",
                help=moment_help(snapshot.committed_at, viewer.timezone()),
                width="content",
            )
            _back_to_latest(name)
    elif versioned and (odd := state.odd_version()):
        st.warning(
            f"**{markdown_safe(odd)} is no version.** You look at the latest, v{opened.latest_version}.",
            icon=":material/history:",
        )
    return opened


def _open(name: str, version: int | None, page: str, otherwise: Callable[[TableRef], None] | None) -> OpenTable:
    lake, ref = viewer.lake(), None
    try:
        with spinner(f"Opening {markdown_safe(name)} …", of=f"open {name} {version}"):
            ref = lake.find(name)
            return OpenTable(ref, lake.snapshot(ref, version), lake.latest_version(ref))
    except TableNotFoundError as exc:
        _tables_there(page, name, exc)
    except LakehouseError as exc:
        st.title(markdown_safe(name), anchor=False)
        errors.show(exc)
        if version is not None:
            _back_to_latest(name)
        if ref is not None and otherwise is not None:
            with errors.boundary():
                otherwise(ref)
        elif isinstance(exc, TableCorruptError | UnsupportedFeatureError):
            navigation.table_link(name, "History of the table", page="history")
            navigation.table_link(name, "Versions that can still be read", page="versions")
        st.stop()


def _title_row(opened: OpenTable, page: str, *, versioned: bool) -> None:
    """The way to the table, its name and newest version, and a strip of links to its pages."""
    ref, version = opened.ref, opened.snapshot.version
    folders, own = folders_and_name(ref)
    owner = ownership(opened.snapshot.metadata)
    with st.container(horizontal=True, vertical_alignment="center", gap="xxsmall", key="breadcrumb"):
        for number, folder in enumerate(folders):  # each a link to the tables there
            is_layer = folder.lower() == opened.ref.layer
            narrowed = {state.LAYER: folder.lower()} if is_layer else {state.SEARCH: f"{folder}/"} if number else {}
            icon = ":material/chevron_right:" if number else ":material/database:"
            navigation.page_link("tables", folder, narrowed, icon=icon)
    with st.container(horizontal=True, vertical_alignment="center", key="title_row"):
        st.title(markdown_safe(own), anchor=False, width="content")
        layer_badge(opened.ref.layer)
        owner_badges(owner.classification, owner.team)
        live(lambda: _newest_version(ref, version, page), key="newest")
        if versioned:
            _version_control(opened)
        with st.popover("URI", icon=":material/content_copy:", key="uri"):
            st.code(opened.ref.uri, language=None, wrap_lines=True)
    findings = len(cache.noticed(cache.streams_reading(), ref.uri).of(ref.uri))
    with st.container(horizontal=True, gap="xxsmall", key="table_pages"):
        for name in navigation.table_pages():
            chosen, label = {state.TABLE: opened.ref.name, state.VERSION: state.version()}, navigation.title(name)
            if name == "table" and findings and page != name:
                label += f" · {things(findings, 'open finding')}"
            navigation.page_link(name, label, chosen, icon="")


def _newest_version(ref: TableRef, shown: int, page: str) -> None:
    """Its number and age; where lists were read before it came, the button that reads them again."""
    snapshot = newest(ref, shown).snapshot
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", key="newest_version"):
        when = moment_help(snapshot.committed_at, viewer.timezone())
        st.caption(f"v{snapshot.version} · {ago(snapshot.committed_at, services.now())}", help=when, width="content")
        if page in _WITH_LISTS and snapshot.version != shown:
            label, help_text = f"v{snapshot.version} is there: show", f"The lists below are of v{shown}"
            if st.button(label, key="show_newest", icon=":material/update:", type="primary", help=help_text):
                st.rerun()


def _version_control(opened: OpenTable) -> None:
    snapshot = opened.snapshot
    label = "latest" if opened.is_latest else f"v{snapshot.version}"
    with st.popover(label, icon=":material/history:", key="versions"):
        version_input(
            opened.ref,
            snapshot.version,
            opened.latest_version,
            key="version_input",
            choose=lambda version: state.choose_table(state.table(), version),
        )
        st.caption(f"v{snapshot.version} has {things(snapshot.num_files, 'file')}, {bytes_text(snapshot.size_bytes)}.")
        navigation.table_link(opened.ref.name, "Choose from history", {state.VERSION: state.version()}, page="history")


def version_input(ref: TableRef, version: int, latest: int, *, key: str, choose: Callable[[int], None]) -> None:
    """A field for a version as people name it; `choose` gets its number."""

    def on_change() -> None:
        with errors.boundary():  # what a callback says stands at the head of the page
            choose(resolve_version(viewer.lake(), ref, st.session_state[key], viewer.clock()))

    st.session_state[key] = str(version)
    label, help_text = f"Version (0 – {latest:,})", f"A version is {VERSIONS}."
    st.text_input(label, key=key, on_change=on_change, width=220, help=help_text)


def pin_names(ref: TableRef) -> Mapping[str, int]:
    """The table's versions that are pinned under a name; none where the store does not answer."""
    try:
        return services.named_versions(ref)
    except LakehouseError:  # the state line says so
        return {}


def version_picker(key: str, label: str, default: str, commits: Mapping[str, Commit], names: Mapping[str, int]) -> None:
    """A version in the URL under `key`. `commits` and pins' `names` are offered; any text that names a version can be
    typed."""
    chosen, widget = state.get_str(key) or default, f"pick_{key}"
    offered = [*names, *commits]
    st.session_state[widget] = chosen  # links and the back button change the URL behind the widget
    st.selectbox(
        label,
        offered if chosen in offered else [chosen, *offered],
        key=widget,
        format_func=lambda version: _version_text(version, commits, names),
        accept_new_options=True,
        on_change=lambda: state.set_params({key: st.session_state[widget]}),
        help=f"A version is {VERSIONS}. Times in this list are UTC.",
    )


def _version_text(version: str, commits: Mapping[str, Commit], names: Mapping[str, int]) -> str:
    """The label of an offered version; what was typed stands as it is."""
    # The same in every run: the browser sends the label back, and an unknown one would be taken for typed text.
    commit = commits.get(version)
    if commit is None:
        return f"{version} · v{names[version]}" if version in names else version
    # The operation comes first, and whole: what is cut in a narrow picker is the time.
    at = f" · {utc_text(commit.committed_at).removesuffix(' UTC')}" if commit.committed_at else ""
    return f"v{version} · {operation_text(commit.operation)}{at}"


def _back_to_latest(name: str) -> None:
    st.button(
        "Back to latest", key="back_to_latest", icon=":material/update:", on_click=state.choose_table, args=(name,)
    )


# nothing to show -------------------------------------------------------------------------------------------------


def _tables_there(page: str, name: str = "", exc: TableNotFoundError | None = None) -> NoReturn:
    """Links to the tables that are there, where none is chosen or the one by this name is gone."""
    st.title(markdown_safe(name) or navigation.title(page), anchor=False)
    if exc is not None:
        errors.show(exc)
    with errors.boundary():
        names = cache.lake_reading().names
        if not names:
            empty_lake()
        elif exc is None:
            st.info("**No table chosen.** Pick one in the sidebar, or here:", icon=":material/table:")
        else:
            st.markdown("Tables that are there:")
        for each in names[:_MOST_LINKS]:
            navigation.table_link(each, page=page)
        if len(names) > _MOST_LINKS:
            navigation.page_link("tables", f"All {len(names):,} tables")
    st.stop()
