"""What may be asked of a stream: start, stop and restart, before a start the preflight and settings, requeue and reset.

Rule: a click writes a desired state or asks the stream host, and never touches a stream; each dialog says first what
will be and asks for a reason. What is requeued is what was tried, the same rows of the same version. The preflight
forbids nothing; what failed is said with what will happen.
"""

from collections.abc import Mapping, Sequence
from operator import itemgetter

import streamlit as st

from app import cache, errors, navigation, services, viewer
from app.columns import Column
from app.streams.text import (
    BY_WEIGHT,
    RESET_LABELS,
    STOPS,
    consequence,
    downstream_sentence,
    effect_sentence,
    host_sentence,
    left_out_sentences,
    preflight_sentence,
    requeue_lines,
    requeue_samples,
    reset_lines,
)
from app.streams.view.lists import ICONS, check_text, newest_acts
from app.ui import dialogs
from app.ui.figures import state_mark
from app.ui.lists import show
from app.ui.view.acts import log_columns
from app.ui.view.words import markdown_safe, sentence
from app.ui.work import follow_job
from backend.errors import LakehouseError
from backend.format import things
from backend.jobs.model import Job, JobState
from backend.stream_model.overrides import (
    TRIGGER,
    Setting,
    check_overrides,
    compare,
    declared_values,
    known_keys,
    parse_overrides,
    shown,
    spark_conf_of,
)
from backend.stream_model.stream import Action, StreamDeclaration
from backend.streams.acts import ActPlan, plan_of
from backend.streams.checkpoint import Starts
from backend.streams.faults import Check, Outcome
from backend.streams.graph import in_graph_order, streams_below
from backend.streams.requeue import (
    RequeueAnswer,
    RequeueRequest,
    load_request,
    preview_job,
    quarantine_of,
    requeue_job,
    why_never,
    why_not,
)
from backend.streams.reset import ResetLevel, ResetRequest, parse_starts, reset_job
from backend.streams.verdict import StreamStatus, why_not_stopped

MOST_LOG_ENTRIES = 50
_ACT, _REQUEUE, _RESET = "act", "requeue", "reset"


def act_buttons(statuses: Sequence[StreamStatus], *, key: str) -> None:
    """Start, stop and restart of one or several streams."""
    for action in ICONS:
        act_button(action, statuses, key=f"{key}_{action}")


def act_button(action: Action, statuses: Sequence[StreamStatus], *, key: str, of: str = "") -> None:
    """Opens the dialog of an act on the next full run. `of`: what is acted on, where that is not the page's own."""
    plan, label = plan_of(action, statuses), f"{action.capitalize()} {of}".strip()
    effect, blocked = effect_sentence(action, plan.names), _why_blocked(plan, statuses)
    dialogs.button(_ACT, plan, f"{label}…", key=key, icon=ICONS[action], effect=effect, blocked=blocked)


def blocked_caption(statuses: Sequence[StreamStatus]) -> None:
    """What stands against every act, in words; what is against some of them, their tooltips say. Always one line, so
    that the page does not jump."""
    reasons = {_why_blocked(plan_of(action, statuses), statuses) for action in ICONS}
    why = reasons.pop() if len(reasons) == 1 else None
    st.caption(markdown_safe(why) if why else "\u00a0")


def _why_blocked(plan: ActPlan, chosen: Sequence[StreamStatus]) -> str | None:
    """Why nothing can be asked; None where something can. Nobody here acts on what another application runs."""
    others = bool(chosen) and all(status.declaration.is_attached for status in chosen)
    refused = None if others else viewer.why_not(plan.action, *plan.names)
    if refused or plan.asked:
        return refused
    return plan.left_out[0].why if plan.left_out else "Tick a stream first."


def act_dialogs() -> None:
    """Called once by a page: says what was just asked, and opens the dialog that is due."""
    dialogs.dialog(_ACT, _ask, title=lambda plan: f"{plan.action.capitalize()} {_subject(plan.names)}?", width="small")
    dialogs.dialog(_REQUEUE, _requeue_dialog, title="Requeue rows of {}?".format, width="large")
    dialogs.dialog(_RESET, _reset_dialog, title="Reset {}?".format, width="medium")


def operation_log(*, stream: str | None = None) -> None:
    """Who asked for what and why, newest first."""
    entries = services.store().audit_entries(limit=MOST_LOG_ENTRIES, subject=stream, acts_only=True)
    if not entries:
        st.info("**Nobody has acted yet.** Each start, stop and restart is written here first.", icon=":material/list:")
        return
    columns = log_columns(services.now(), services.settings().roots)
    columns = [column for column in columns if column.name != "Stream or table" or not stream]
    show(columns, newest_acts(entries), key="operation_log", alt="Operation log")


def _ask(plan: ActPlan) -> None:
    reading, action = cache.streams_reading(), plan.action
    order = [status.declaration.name for status in in_graph_order(reading.streams, now=reading.read_at)]
    asked = [name for name in plan.names if name in order]  # none while the store is silent
    if asked:
        st.markdown(markdown_safe(effect_sentence(action, asked)))
    for line in left_out_sentences(plan.left_out):
        st.caption(markdown_safe(line))
    below = streams_below(plan.names, reading.streams, now=reading.read_at)
    if downstream := downstream_sentence(action, below):
        st.markdown(markdown_safe(downstream))
    overrides: Mapping[str, Mapping[str, str]] | None = {}
    if len(asked) == 1 and action != "stop":
        _before_start(asked[0])
        overrides = _overrides(asked[0])
    silent = host_sentence(reading.hosts, now=reading.read_at, stale_s=services.settings().host.heartbeat_stale_s)
    if silent:
        st.warning(f"{silent} The request is kept until a host comes.", icon=":material/cloud_off:")
    others = plan_of(action, below).names
    how, with_others = action.capitalize(), False

    def boxes() -> None:
        nonlocal how, with_others
        if action == "stop":
            ways = list(STOPS)[: None if others or len(asked) > 1 else -1]
            how = st.radio("When", ways, captions=[STOPS[way][1] for way in ways], key="act_how")
        if others:
            label = f"{action.capitalize()} {markdown_safe(', '.join(others))} too"
            with_others = st.checkbox(label, key="act_downstream")

    reason = dialogs.reason(_ACT, label=action.capitalize(), boxes=boxes, disabled=overrides is None)
    if reason is None:
        return
    action = STOPS[how][0] if action == "stop" else action
    names = [*plan.names, *(others if with_others or action == "drain through" else ())]
    names.sort(key=lambda name: order.index(name) if name in order else len(order))
    with errors.boundary():
        store, actor = services.store(), viewer.actor()
        store.request_all(names, action, reason=reason, actor=actor, now=store.now(), overrides=overrides or {})
        doing = "Draining" if action != "stop" and plan.action == "stop" else action.capitalize()
        dialogs.asked(_ACT, f"{doing}: asked for {_subject(names)}; its host does it next.")


def _status(name: str) -> StreamStatus:
    return next(status for status in cache.streams_reading().streams if status.declaration.name == name)


def _subject(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else things(len(names), "stream")


# before a start: the preflight, and other settings than the declared ones ---------------------------------------------


def checklist(name: str) -> None:
    """Every check with its evidence."""
    preflight = cache.preflight(name)
    st.markdown(f"**{markdown_safe(preflight_sentence(preflight))}**")
    _show_checks([check for outcome in BY_WEIGHT for check in preflight.of(outcome)])
    st.caption("Read without Spark, a few seconds ago at most: checkpoint, logs of sources and sink, leases, disk.")


def _before_start(name: str) -> None:
    """In the dialog of a start: what failed, with what will happen, and what is not as it should be."""
    with st.spinner("Looking at checkpoint, sources and sink …"):
        preflight = cache.preflight(name)
    whether = markdown_safe(preflight_sentence(preflight))
    if preflight.ok:
        st.caption(whether)
    else:
        st.error(f"**{whether}** You can start it anyway. {consequence(preflight)}", icon=":material/error:")
    _show_checks([*preflight.failed, *preflight.of(Outcome.WARNING)])


def _show_checks(checks: list[Check]) -> None:
    for check in checks:
        st.markdown(f"{state_mark(check.outcome.value)} {check_text(check)}")


def _overrides(name: str) -> dict[str, dict[str, str]] | None:
    """What the stream shall run with from now on in place of declared settings, by its name; empty where that stays as
    it is, None where it cannot be, which is said."""
    store = services.store()
    declared, wanted = store.declarations()[name], store.desired().get(name)
    before = wanted.overrides if wanted else {}
    try:
        others = st.toggle("With other settings", value=bool(before), key="act_overrides")
        after = _fields(declared, before) if others else {}
        check_overrides(declared, after)
        settings = compare(declared, before, after, cache.pinned_conf(name))
    except LakehouseError as exc:
        errors.show(exc)
        return None
    if settings:
        st.markdown("\n".join(f"- {_difference(setting)}" for setting in settings))
        st.caption("Settings hold for every later start, until somebody asks for others.")
    return {name: after} if after != dict(before) else {}


def _fields(declared: StreamDeclaration, before: Mapping[str, str]) -> dict[str, str]:
    values, typed = declared_values(declared), dict[str, str]()
    for key in known_keys(declared):
        label = "Trigger" if key == TRIGGER else markdown_safe(key)
        now = before.get(key, values.get(key))
        typed[key] = st.text_input(label, value=now, placeholder=shown(now), key=f"act_set_{key}") or ""
    lines = st.text_area(
        "Settings of Spark, KEY=VALUE, one a line",
        value="\n".join(f"{key}={value}" for key, value in spark_conf_of(before).items()),
        placeholder="spark.sql.shuffle.partitions=8",
        key="act_set_spark",
        height=68,
    )
    return chosen_overrides(values, typed, parse_overrides(line for line in (lines or "").splitlines() if line.strip()))


def _difference(setting: Setting) -> str:
    """What changes, in Markdown, and what keeps the change from taking effect."""
    now, after = markdown_safe(shown(setting.now)), markdown_safe(shown(setting.after))
    change = f"{now} → **{after}**" if setting.changes else f"{after}, as it is"
    declared = "" if setting.declared == setting.now else f" (declared: {markdown_safe(shown(setting.declared))})"
    note = f" :material/warning: {markdown_safe(setting.note)}" if setting.note else ""
    return f"{markdown_safe(setting.key)}: {change}{declared}{note}"


def chosen_overrides(declared: Mapping[str, str], typed: Mapping[str, str], spark: Mapping[str, str]) -> dict[str, str]:
    """The overrides among what was typed; a setting that is as declared is none."""
    values = {key: value.strip() for key, value in typed.items()} | dict(spark)
    return {key: value for key, value in values.items() if value and value != declared.get(key)}


# requeue rows of the quarantine ---------------------------------------------------------------------------------------


_TRIED = "_requeue_tried"


def quarantine_row(declared: StreamDeclaration) -> None:
    """One line: the way to the quarantine, and to requeue its rows. Nothing for a stream without one."""
    quarantine = quarantine_of(declared)
    blocked = viewer.why_not("requeue job", declared.name) or why_never(declared)
    effect = blocked or "Repair rows that broke an expectation, and let them through the stream once more, each once"
    with st.container(horizontal=True, vertical_alignment="center", key="quarantine"):
        if quarantine is None:
            return
        navigation.table_link(quarantine, f"Quarantine: {quarantine}")
        clicked = st.button(
            "Requeue rows…", key="one_requeue", icon=":material/redo:", disabled=bool(blocked),
            help=markdown_safe(effect),
        )  # fmt: skip
        if clicked:
            st.session_state.pop(_TRIED, None)
            dialogs.open_dialog(_REQUEUE, declared.name)


def _requeue_dialog(name: str) -> None:
    with errors.boundary():
        status = _status(name)
        _choose_rows(status.declaration)
        tried = st.session_state.get(_TRIED)
        if tried is not None:
            request, job_id = tried
            _outcome(status, request, services.store().jobs.get(job_id))


def _choose_rows(declared: StreamDeclaration) -> None:
    with st.form("requeue_choice", border=False):
        where = st.text_input("Which rows", key="requeue_where", placeholder="Empty for all; or SQL: amount < 0")
        example, help_text = "amount = abs(amount)", "One line a column: column = SQL"
        repairs = st.text_area("Repair", key="requeue_set", height=90, placeholder=example, help=help_text)
        tried = st.form_submit_button("Preview", key="requeue_try", icon=":material/visibility:")
    if tried:
        st.session_state.pop(_TRIED, None)
        lines = [line for line in (repairs or "").splitlines() if line.strip()]
        request = load_request(viewer.lake(), declared, where or "", lines)
        job = services.store().jobs.submit(preview_job(request, actor=viewer.actor()), now=services.now())
        st.session_state[_TRIED] = request, job.job_id


def _outcome(status: StreamStatus, request: RequeueRequest, job: Job | None) -> None:
    """How far the trial is; then what it gave, and what is asked for before rows are requeued."""
    if job is None:
        st.info("The trial is gone: preview it again.", icon=":material/info:")
    elif not job.state.is_over:
        follow_job(job.job_id, page="the stream's page", every_s=1.0)
    elif job.state is JobState.CANCELLED:
        st.caption("Cancelled: nothing was tried.")
    elif job.state is JobState.FAILED:
        st.error(markdown_safe(f"{job.error} {job.hint}".strip()), icon=":material/error:")
    else:
        answer = RequeueAnswer.of(job)
        lines = requeue_lines(answer, request, status.declaration)
        st.markdown("\n".join(f"- {markdown_safe(sentence(line))}" for line in lines))
        if samples := requeue_samples(answer):
            columns = [Column(name, itemgetter(name)) for name in samples[0]]
            show(columns, samples, key="requeue_samples", alt="Some of the chosen rows, before and after the repair")
        refused = why_not(status) or ("" if answer.met else "no row would go")
        dialogs.ask(
            _REQUEUE,
            sentence(refused) if refused else "",
            label=f"Requeue {things(answer.met, 'row')}",
            typed=request.stream,
            job=lambda reason: requeue_job(request, actor=viewer.actor(), reason=reason),
            done=f"Asked for {request.stream}; its host does it next. The operation log says what came of it.",
        )
        _stop_first(status)


# reset a stopped stream, or undo the last reset -----------------------------------------------------------------------


def reset_button(status: StreamStatus) -> None:
    """Opens the dialog on the next full run, which stops the stream first where it runs."""
    name, effect = status.declaration.name, "Read everything again, with its tables or without, or undo the last reset"
    blocked = viewer.why_not("reset job", name)
    dialogs.button(_RESET, name, "Reset…", key="one_reset", icon=":material/replay:", effect=effect, blocked=blocked)


def _stop_first(status: StreamStatus) -> None:
    """Under the refusal of what only a stopped stream allows: the button that lifts it."""
    if why_not_stopped(status):
        act_button("stop", [status], key="stop_first", of=status.declaration.name)


def _reset_dialog(name: str) -> None:
    with errors.boundary():
        level = st.segmented_control(
            "What",
            list(ResetLevel),
            default=ResetLevel.REPROCESS,
            required=True,
            key="reset_level",
            format_func=RESET_LABELS.__getitem__,
        )
        starts = _starts(name) if level is ResetLevel.FROM else {}
        if starts is None:
            return
        preview = cache.reset_preview(name, level, starts)
        st.markdown(f"**{markdown_safe(sentence(preview.effect))}**")
        st.markdown("\n".join(f"- {markdown_safe(sentence(line))}" for line in reset_lines(preview)))
        dialogs.ask(
            _RESET,
            sentence(preview.refused) if preview.refused else "",
            label=RESET_LABELS[level],
            typed=name,
            job=lambda reason: reset_job(ResetRequest(name, level, starts), actor=viewer.actor(), reason=reason),
            done=f"{RESET_LABELS[level]}: asked for {name}; its host does it next.",
        )
        _stop_first(_status(name))


def _starts(name: str) -> Starts | None:
    """Where each source begins; None until that is said."""
    declared = _status(name).declaration
    wheres = []
    for source in declared.inputs:
        example = "a version, 2026-01-31T10:00Z or latest" if source.is_table else "a time, latest or offsets as JSON"
        label = f"Begin {markdown_safe(source.name)} at"
        if where := st.text_input(label, key=f"reset_from_{source.name}", placeholder=example):
            wheres.append(f"{source.name}={where}")
    if len(wheres) < len(declared.inputs):
        st.caption("Say where to begin, and press Enter.")
        return None
    return parse_starts(viewer.lake(), declared, wheres, viewer.clock())
