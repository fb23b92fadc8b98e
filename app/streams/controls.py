"""Start, stop and restart: buttons that say why they are off, one dialog that asks for a reason, the log after.

Rule: a click writes a desired state and never touches a stream.
"""

from collections.abc import Mapping, Sequence

import streamlit as st

from app import cache, errors, services, viewer
from app.streams.start import before_start, overrides_input
from app.streams.text import downstream_sentence, effects_sentence, host_sentence, left_out_sentences
from app.streams.view.streams import acts, acts_on_all, allowed, build_operation_log
from app.ui import dialogs
from app.ui.lists import Look, show
from app.ui.view.words import markdown_safe
from backend.errors import LakehouseError
from backend.format import things
from backend.stream_model.stream import Action
from backend.streams.acts import ActPlan, plan_of
from backend.streams.graph import in_graph_order, streams_below
from backend.streams.verdict import StreamStatus

MOST_LOG_ENTRIES = 50
LOG = Look(formats={"When": "ago"}, config={"Reason": st.column_config.TextColumn(width="large")}, alt="Operation log")
_ACT = "act"


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
            dialogs.open_dialog(_ACT, plan_of(act.action, statuses))


def start_button(status: StreamStatus, *, key: str) -> None:
    """Start for another stream than the page's own, where it may be started."""
    act = acts(status, refused=viewer.read_only_reason())[0]
    name = status.declaration.name
    label, effect = f"Start {markdown_safe(name)}", markdown_safe(act.blocked or act.effect)
    if st.button(label, key=key, icon=act.icon, disabled=act.blocked is not None, help=effect):
        dialogs.open_dialog(_ACT, plan_of("start", [status], named=[name]))


def blocked_caption(statuses: Sequence[StreamStatus]) -> None:
    """What stands against every act, in words; what is against some of them, their tooltips say. Always one line, so
    that the page does not jump."""
    reasons = {act.blocked for act in acts_on_all(statuses, refused=viewer.read_only_reason())}
    why = reasons.pop() if len(reasons) == 1 else None
    st.caption(markdown_safe(why) if why else "\u00a0")


def act_dialog() -> None:
    """Called once by a page: says what was just asked, and opens the dialog that is due."""
    dialogs.dialog(_ACT, _ask, title=_title, width="small")


def _title(plan: ActPlan) -> str:
    return f"{plan.action.capitalize()} {_subject(plan.names)}?"


def operation_log(*, stream: str | None = None) -> None:
    """Who asked for what and why, newest first."""
    entries = services.store().audit_entries(limit=MOST_LOG_ENTRIES, subject=stream, with_queries=False)
    if not entries:
        st.info("**Nobody has acted yet.** Each start, stop and restart is written here first.", icon=":material/list:")
        return
    frame = build_operation_log(entries, now=services.now(), roots=services.settings().roots)
    show(frame.drop(columns="Stream or table") if stream else frame, LOG, key="operation_log")


def _ask(plan: ActPlan) -> None:
    reading, action = cache.streams_reading(), plan.action
    by_name = {status.declaration.name: status for status in reading.streams}  # none while the store is silent
    if asked := [by_name[name] for name in plan.names if name in by_name]:
        st.markdown(markdown_safe(effects_sentence(action, asked)))
    for sentence in left_out_sentences(plan.left_out):
        st.caption(markdown_safe(sentence))
    below = streams_below(plan.names, reading.streams, now=reading.read_at)
    if sentence := downstream_sentence(action, below):
        st.markdown(markdown_safe(sentence))
    overrides, wrong = _overrides(asked[0].declaration.name) if len(asked) == 1 and action != "stop" else ({}, False)
    silent = host_sentence(reading.hosts, now=reading.read_at, stale_s=services.settings().host.heartbeat_stale_s)
    if silent:
        st.warning(f"{silent} The request is kept and carried out when a host comes.", icon=":material/cloud_off:")
    others = tuple(status.declaration.name for status in allowed(below, action))
    ticked = dict[str, bool]()

    def boxes() -> None:
        if others:
            label = f"{action.capitalize()} {markdown_safe(', '.join(others))} too"
            ticked["downstream"] = st.checkbox(label, key="act_downstream")
        if action == "stop":
            ticked["drain"] = st.checkbox("Only once it has read what is there now", key="act_drain")
            if len(plan.names) > 1 or others:
                ticked["through"] = st.checkbox("Until all of it is through, in the graph's order", key="act_through")

    if reason := dialogs.reason(_ACT, label=action.capitalize(), boxes=boxes, disabled=wrong):
        names = [*plan.names, *(others if ticked.get("downstream") else ())]
        order = [status.declaration.name for status in in_graph_order(reading.streams, now=reading.read_at)]
        names.sort(key=lambda name: order.index(name) if name in order else len(order))
        drain: Action = "drain through" if ticked.get("through") else "drain"
        _send(drain if ticked.get("drain") or ticked.get("through") else action, names, reason, overrides)


def _overrides(name: str) -> tuple[dict[str, dict[str, str]], bool]:
    """What one stream shall run with, by its name, and whether that cannot be."""
    before_start(name)
    try:
        chosen = overrides_input(name)
    except LakehouseError as exc:
        errors.show(exc)
        return {}, True
    return ({} if chosen is None else {name: chosen}), False


def _send(action: Action, names: Sequence[str], reason: str, overrides: Mapping[str, Mapping[str, str]]) -> None:
    try:
        store = services.store()
        store.request_all(names, action, reason=reason, actor=viewer.actor(), now=store.now(), overrides=overrides)
    except LakehouseError as exc:
        errors.show(exc)
        return
    dialogs.asked(_ACT, f"{action.capitalize()} asked for {_subject(names)}; the host does it next.")


def _subject(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else things(len(names), "stream")
