"""Start, stop and restart: buttons that say why they are off, one dialog that asks for a reason, the log after.

Rule: a click writes a desired state and never touches a stream. The dialog is opened by the page itself, outside every
live region; `Pending` in the session keeps it open over reruns until it is sent or dismissed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from app import cache, errors, services, viewer
from app.streams.overrides import overrides_input
from app.streams.preflight import before_start
from app.streams.view.streams import (
    acts,
    acts_on_all,
    allowed,
    asked_sentence,
    build_operation_log,
    downstream_sentence,
    host_sentence,
    left_out_sentences,
)
from app.ui.lists import Look, show
from app.ui.view.words import markdown_safe
from backend.errors import LakehouseError
from backend.format import things
from backend.stream_model.stream import Action
from backend.streams.acts import LeftOut, plan_of
from backend.streams.graph import in_graph_order, streams_below
from backend.streams.verdict import StreamStatus

MOST_LOG_ENTRIES = 50
LOG = Look(formats={"When": "ago"}, config={"Reason": st.column_config.TextColumn(width="large")}, alt="Operation log")
_PENDING = "_pending_act"
_SAID = "_act_said"
_REASON = "act_reason"


@dataclass(frozen=True, slots=True)
class Pending:
    """An act that a viewer chose and has yet to give a reason for."""

    action: Action
    names: tuple[str, ...]
    left_out: tuple[LeftOut, ...] = ()


def act_buttons(statuses: Sequence[StreamStatus], *, key: str) -> None:
    """The three buttons for one or several streams; a click opens the dialog on the next full run."""
    options = acts_on_all(statuses, refused=viewer.read_only_reason())
    for act in options:
        clicked = st.button(
            act.label,
            key=f"{key}_{act.action}",
            icon=act.icon,
            disabled=act.blocked is not None,
            help=markdown_safe(act.blocked or act.effect),
        )
        if clicked:
            plan = plan_of(act.action, statuses)
            names = tuple(status.declaration.name for status in plan.asked)
            st.session_state[_PENDING] = Pending(act.action, names, plan.left_out)
            st.rerun()  # the page opens the dialog: a live region's next run would close it


def start_button(status: StreamStatus, *, key: str) -> None:
    """Start for another stream than the page's own, where it may be started."""
    act = acts(status, refused=viewer.read_only_reason())[0]
    name = status.declaration.name
    label, said = f"Start {markdown_safe(name)}", markdown_safe(act.blocked or act.effect)
    if st.button(label, key=key, icon=act.icon, disabled=act.blocked is not None, help=said):
        st.session_state[_PENDING] = Pending("start", (name,))
        st.rerun()


def blocked_caption(statuses: Sequence[StreamStatus]) -> None:
    """What stands against every act, in words; what is against some of them, in a tooltip. Always one line, so that
    the page does not jump."""
    options = acts_on_all(statuses, refused=viewer.read_only_reason())
    reasons = dict.fromkeys(act.blocked for act in options if act.blocked)
    named = [f"{act.label}: {act.blocked}" for act in options if act.blocked]
    if len(reasons) == 1 and len(named) == len(options):
        st.caption(markdown_safe(" ".join(reasons)))
    elif named:  # no keyboard reaches the tooltip of a button that is off, but every one reaches this
        st.caption("Why a button is off", help="  \n".join(markdown_safe(each) for each in named))
    else:
        st.caption("\u00a0")


def act_dialog() -> None:
    """Called once by a page, outside live regions: says what was just asked, and opens the dialog that is due."""
    for text in st.session_state.pop(_SAID, ()):
        st.toast(text, icon=":material/check:")
    pending = st.session_state.get(_PENDING)
    if isinstance(pending, Pending):
        title = f"{pending.action.capitalize()} {markdown_safe(_subject(pending.names))}?"
        dialog = st.dialog(title, width="small", on_dismiss=_forget)
        dialog(_ask)(pending)


def operation_log(*, stream: str | None = None) -> None:
    """Who asked for what and why, newest first."""
    entries = services.store().audit_entries(limit=MOST_LOG_ENTRIES, subject=stream)
    if not entries:
        st.info("**Nobody has acted yet.** Each start, stop and restart is written here first.", icon=":material/list:")
        return
    frame = build_operation_log(entries, now=services.now())
    show(frame.drop(columns="Stream or table") if stream else frame, LOG, key="operation_log")


def _ask(pending: Pending) -> None:
    reading = cache.streams_reading()
    asked = [status for status in reading.streams if status.declaration.name in pending.names]
    asked.sort(key=lambda status: pending.names.index(status.declaration.name))
    if asked:  # none while the store is silent
        st.markdown(markdown_safe(asked_sentence(pending.action, asked)))
    for said in left_out_sentences(pending.left_out):
        st.caption(markdown_safe(said))
    below = streams_below(pending.names, reading.streams, now=reading.read_at)
    if said := downstream_sentence(pending.action, below):
        st.markdown(markdown_safe(said))
    overrides, wrong = dict[str, dict[str, str]](), False
    if len(asked) == 1 and pending.action != "stop":
        name = asked[0].declaration.name
        before_start(name)
        try:
            chosen = overrides_input(name)
            overrides = {} if chosen is None else {name: chosen}
        except LakehouseError as exc:
            errors.show(exc)
            wrong = True
    silent = host_sentence(reading.hosts, now=reading.read_at, stale_s=services.settings().host.heartbeat_stale_s)
    if silent:
        st.warning(f"{silent} The request is kept and carried out when a host comes.", icon=":material/cloud_off:")
    with st.form("act_form", border=False):
        others = tuple(status.declaration.name for status in allowed(below, pending.action))
        too = bool(others) and st.checkbox(
            f"{pending.action.capitalize()} {markdown_safe(', '.join(others))} too", key="act_downstream"
        )
        late = pending.action == "stop" and st.checkbox("Only once it has read what is there now", key="act_drain")
        reason = st.text_area("Reason", key=_REASON, max_chars=500, placeholder="For those who come after you")
        with st.container(horizontal=True, key="act_buttons"):
            sent = st.form_submit_button(pending.action.capitalize(), type="primary", key="act_send", disabled=wrong)
            cancelled = st.form_submit_button("Cancel", key="act_cancel")
    if sent:
        order = [each.declaration.name for each in in_graph_order(reading.streams, now=reading.read_at)]
        names = [*pending.names, *(others if too else ())]
        names.sort(key=lambda name: order.index(name) if name in order else len(order))
        _send("drain" if late else pending.action, names, reason or "", overrides)
    elif cancelled:
        _forget()
        st.rerun()


def _send(action: Action, names: Sequence[str], reason: str, overrides: Mapping[str, Mapping[str, str]]) -> None:
    if not reason.strip():
        st.error("A reason is needed: it goes into the operation log.", icon=":material/edit:")
        return
    refused = viewer.read_only_reason()
    if refused:
        st.error(markdown_safe(refused), icon=":material/lock:")
        return
    said: list[str] = st.session_state.setdefault(_SAID, [])
    try:
        store = services.store()
        store.request_all(names, action, reason=reason, actor=viewer.actor(), now=store.now(), overrides=overrides)
    except LakehouseError as exc:
        errors.show(exc)
        return
    subject = _subject(names)
    said.append(f"{action.capitalize()} asked for {markdown_safe(subject)}; the host does it next.")
    _forget()
    cache.forget_streams()
    st.rerun()


def _subject(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else things(len(names), "stream")


def _forget() -> None:
    st.session_state.pop(_PENDING, None)
