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
    RESET_LABELS,
    by_weight,
    consequence,
    downstream_sentence,
    effects_sentence,
    host_sentence,
    left_out_sentences,
    preflight_sentence,
    requeue_label,
    requeue_lines,
    requeue_samples,
    reset_lines,
)
from app.streams.view.lists import acts, acts_on_all, allowed, build_log_columns, check_text, newest_acts
from app.ui import dialogs
from app.ui.figures import state_mark
from app.ui.lists import show
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
from backend.stream_model.stream import StreamDeclaration
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
_ACT = "act"


def act_buttons(statuses: Sequence[StreamStatus], *, key: str) -> None:
    """The three buttons for one or several streams; a click opens the dialog on the next full run."""
    for act in acts_on_all(statuses, refused=viewer.read_only_reason()):
        plan, name = plan_of(act.action, statuses), f"{key}_{act.action}"
        dialogs.button(_ACT, plan, act.label, key=name, icon=act.icon, effect=act.effect, blocked=act.blocked)


def start_button(status: StreamStatus, *, key: str) -> None:
    """Start for another stream than the page's own, where it may be started."""
    act = acts(status, refused=viewer.read_only_reason())[0]
    name = status.declaration.name
    plan = plan_of("start", [status], named=[name])
    dialogs.button(_ACT, plan, f"Start {name}", key=key, icon=act.icon, effect=act.effect, blocked=act.blocked)


def blocked_caption(statuses: Sequence[StreamStatus]) -> None:
    """What stands against every act, in words; what is against some of them, their tooltips say. Always one line, so
    that the page does not jump."""
    reasons = {act.blocked for act in acts_on_all(statuses, refused=viewer.read_only_reason())}
    why = reasons.pop() if len(reasons) == 1 else None
    st.caption(markdown_safe(why) if why else "\u00a0")


def act_dialog() -> None:
    """Called once by a page: says what was just asked, and opens the dialog that is due."""
    dialogs.dialog(_ACT, _ask, title=lambda plan: f"{plan.action.capitalize()} {_subject(plan.names)}?", width="small")


def operation_log(*, stream: str | None = None) -> None:
    """Who asked for what and why, newest first."""
    entries = services.store().audit_entries(limit=MOST_LOG_ENTRIES, subject=stream, with_queries=False)
    if not entries:
        st.info("**Nobody has acted yet.** Each start, stop and restart is written here first.", icon=":material/list:")
        return
    columns = build_log_columns(services.now(), services.settings().roots)
    columns = [column for column in columns if column.name != "Stream or table" or not stream]
    show(columns, newest_acts(entries), key="operation_log", alt="Operation log")


def _ask(plan: ActPlan) -> None:
    reading, action = cache.streams_reading(), plan.action
    by_name = {status.declaration.name: status for status in reading.streams}  # none while the store is silent
    if asked := [by_name[name] for name in plan.names if name in by_name]:
        st.markdown(markdown_safe(effects_sentence(action, asked)))
    for line in left_out_sentences(plan.left_out):
        st.caption(markdown_safe(line))
    below = streams_below(plan.names, reading.streams, now=reading.read_at)
    if downstream := downstream_sentence(action, below):
        st.markdown(markdown_safe(downstream))
    overrides: Mapping[str, Mapping[str, str]] | None = {}
    if len(asked) == 1 and action != "stop":
        _before_start(asked[0].declaration.name)
        overrides = _overrides(asked[0].declaration.name)
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

    reason = dialogs.reason(_ACT, label=action.capitalize(), boxes=boxes, disabled=overrides is None)
    if reason is None:
        return
    names = [*plan.names, *(others if ticked.get("downstream") else ())]
    order = [status.declaration.name for status in in_graph_order(reading.streams, now=reading.read_at)]
    names.sort(key=lambda name: order.index(name) if name in order else len(order))
    if ticked.get("through") or ticked.get("drain"):
        action = "drain through" if ticked.get("through") else "drain"
    with errors.boundary():
        store, actor = services.store(), viewer.actor()
        store.request_all(names, action, reason=reason, actor=actor, now=store.now(), overrides=overrides or {})
        dialogs.asked(_ACT, f"{action.capitalize()} asked for {_subject(names)}; the host does it next.")


def _subject(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else things(len(names), "stream")


# before a start: the preflight, and other settings than the declared ones ---------------------------------------------


def checklist(name: str) -> None:
    """Every check with its evidence."""
    preflight = cache.preflight(name)
    st.markdown(f"**{markdown_safe(preflight_sentence(preflight))}**")
    _show_checks(by_weight(preflight.checks))
    st.caption("Read without Spark, a few seconds ago at most: checkpoint, logs of sources and sink, leases, disk.")


def _before_start(name: str) -> None:
    """In the dialog of a start: what failed, with what will happen, and what is not as it should be."""
    with st.spinner("Looking at checkpoint, sources and sink …"):
        preflight = cache.preflight(name)
    if not preflight.ok:
        sentence = f"**{markdown_safe(preflight_sentence(preflight))}** You can start it anyway."
        st.error(f"{sentence} {consequence(preflight)}", icon=":material/error:")
    _show_checks([*preflight.failed, *preflight.of(Outcome.WARNING)])
    if preflight.ok:
        st.caption(markdown_safe(preflight_sentence(preflight)))


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


_REQUEUE, _TRIED = "requeue", "_requeue_tried"


def quarantine_row(declared: StreamDeclaration) -> None:
    """One line: the way to the quarantine, and to requeue its rows. Nothing for a stream without one."""
    quarantine = quarantine_of(declared)
    if quarantine is None:
        return
    blocked = viewer.read_only_reason() or why_never(declared)
    effect = blocked or "Repair rows that broke an expectation, and let them through the stream once more, each once"
    with st.container(horizontal=True, vertical_alignment="center", key="quarantine"):
        navigation.table_link(quarantine, f"Quarantine: {quarantine}")
        clicked = st.button(
            "Requeue rows…", key="one_requeue", icon=":material/redo:", disabled=bool(blocked),
            help=markdown_safe(effect),
        )  # fmt: skip
        if clicked:
            st.session_state.pop(_TRIED, None)
            dialogs.open_dialog(_REQUEUE, declared.name)


def requeue_dialog() -> None:
    """Called once by the page: says what was just asked, and opens the dialog that is due."""
    dialogs.dialog(_REQUEUE, _requeue_dialog, title="Requeue rows of {}?".format, width="large")


def _requeue_dialog(name: str) -> None:
    with errors.boundary():
        status = next(stream for stream in cache.streams_reading().streams if stream.declaration.name == name)
        _choose_rows(status.declaration)
        tried = st.session_state.get(_TRIED)
        if tried is not None:
            request, job_id = tried
            _outcome(status, request, services.store().jobs.get(job_id))


def _choose_rows(declared: StreamDeclaration) -> None:
    with st.form("requeue_choice", border=False):
        where = st.text_input("Which rows", key="requeue_where", placeholder="all, or SQL over a row: amount < 0")
        example, help_text = "amount = abs(amount)", "One line a column: column = SQL"
        repairs = st.text_area("Repair", key="requeue_set", height=90, placeholder=example, help=help_text)
        tried = st.form_submit_button("Preview", key="requeue_try", icon=":material/visibility:")
    if tried:
        st.session_state.pop(_TRIED, None)
        lines = [line for line in (repairs or "").splitlines() if line.strip()]
        request = load_request(services.lake(), declared, where or "", lines)
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
        st.markdown("\n".join(f"- {markdown_safe(line)}" for line in lines))
        if samples := requeue_samples(answer):
            columns = [Column(name, itemgetter(name)) for name in samples[0]]
            show(columns, samples, key="requeue_samples", alt="Some of the chosen rows, before and after the repair")
        refused = why_not(status) or ("" if answer.met else "no row would go")
        dialogs.ask(
            _REQUEUE,
            f"Nothing can be requeued now: {refused}." if refused else "",
            label=requeue_label(answer),
            typed=request.stream,
            job=lambda reason: requeue_job(request, actor=viewer.actor(), reason=reason),
            done=f"Asked for {request.stream}; its host does it next. The operation log says what came of it.",
        )


# reset a stopped stream, or undo the last reset -----------------------------------------------------------------------


_RESET, _LEVEL = "reset", "reset_level"


def reset_button(status: StreamStatus) -> None:
    """Opens the dialog on the next full run; off while the stream runs."""
    blocked = viewer.read_only_reason()
    if blocked is None and (why := why_not_stopped(status)):
        blocked = sentence(why)
    name, effect = status.declaration.name, "Read everything again, with its tables or without, or undo the last reset"
    dialogs.button(_RESET, name, "Reset…", key="one_reset", icon=":material/replay:", effect=effect, blocked=blocked)


def reset_dialog() -> None:
    """Called once by the page: says what was just asked, and opens the dialog that is due."""
    dialogs.dialog(_RESET, _reset_dialog, title="Reset {}?".format, width="medium")


def _reset_dialog(name: str) -> None:
    with errors.boundary():
        level = st.segmented_control(
            "What",
            list(ResetLevel),
            default=ResetLevel.REPROCESS,
            required=True,
            key=_LEVEL,
            format_func=RESET_LABELS.__getitem__,
        )
        starts = _starts(name) if level is ResetLevel.FROM else {}
        if starts is None:
            return
        preview = cache.reset_preview(name, level, starts)
        st.markdown(f"**{markdown_safe(sentence(preview.effect))}**")
        st.markdown("\n".join(f"- {markdown_safe(line)}" for line in reset_lines(preview)))
        dialogs.ask(
            _RESET,
            f"It cannot be done now: {preview.refused}." if preview.refused else "",
            label=RESET_LABELS[level],
            typed=name,
            job=lambda reason: reset_job(ResetRequest(name, level, starts), actor=viewer.actor(), reason=reason),
            done=f"{RESET_LABELS[level]}: asked for {name}; its host does it next.",
        )


def _starts(name: str) -> Starts | None:
    """Where each source begins; None until that is said."""
    declared = next(stream.declaration for stream in cache.streams_reading().streams if stream.declaration.name == name)
    wheres = []
    for source in declared.inputs:
        example = "a version, 2026-01-31T10:00Z or latest" if source.is_table else "a time, latest or offsets as JSON"
        label = f"Begin {markdown_safe(source.name)} at"
        if where := st.text_input(label, key=f"reset_from_{source.name}", placeholder=example):
            wheres.append(f"{source.name}={where}")
    if len(wheres) < len(declared.inputs):
        st.caption("Say where to begin, and press Enter.")
        return None
    return parse_starts(services.lake(), declared, wheres, viewer.clock())
