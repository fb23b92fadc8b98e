"""`weir start|stop|drain|restart` of streams by name or chosen by a rule; `weir preflight|reset|requeue` of one.

Rule: an act is the wish of a named person with a reason; the host carries it out. A wish is written for all streams or
for none, and who was left out is said. Where rows change, the stream's name is typed once more; the host tries a
repair, since expectations are Spark's SQL.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from app import services
from app.cli.commands import AsJson, DryRun, Reason, StreamName
from app.cli.output import Document, Shapes, fields_of, only, print_json, print_list, print_table, say, shaped
from app.cli.store import done_on_host, is_host_alive, required_store, stream_named, streams_and_hosts
from app.columns import Column, Columns
from app.streams.text import consequence, preflight_sentence, requeue_lines, requeue_samples, reset_lines
from app.ui.view.theme import state_text
from backend.errors import SettingsError, StreamRefusedError
from backend.format import UNKNOWN, things
from backend.stream_model.backlog import Backlog
from backend.stream_model.overrides import Setting, check_overrides, compare, parse_overrides, shown
from backend.stream_model.stream import Action
from backend.streams.acts import ActPlan, LeftOut, Selection, plan_acts
from backend.streams.checkpoint import pinned_by
from backend.streams.faults import Check, Outcome, Preflight
from backend.streams.preflight import preflight as load_preflight
from backend.streams.requeue import RequeueAnswer, load_request, preview_job, quarantine_of, requeue_job, why_not
from backend.streams.reset import ResetLevel, ResetRequest, load_preview, parse_starts, reset_job

if TYPE_CHECKING:
    from backend.store.store import ControlStore

_WISH = only("name", "generation", "reason", "actor", "requested_at", desired="state")
_AS_IT_IS = only("state", name="declaration.name", desired="desired.state")
_RESET = shaped(without=("again",), empty_is_null=("refused",), reads_again="again")
_SHAPES: Shapes = {
    Preflight: only("ok", "checks"),
    Check: shaped("ok"),
    Setting: shaped(empty_is_null=("note",)),
    Backlog: only("files", "rows", bytes="size_bytes"),
}
STYLES = {Outcome.OK: "green", Outcome.WARNING: "yellow", Outcome.FAILED: "red", Outcome.UNKNOWN: "dim"}
Confirm = Annotated[str, typer.Option(metavar="NAME", help="The stream's name once more.")]


def _act(action: Action) -> Callable[..., int]:
    """`weir start`, `stop`, `drain` and `restart` take the same."""

    def act(
        names: Annotated[list[str] | None, typer.Argument(metavar="NAME…", help="Names of streams.")] = None,
        downstream: Annotated[bool, typer.Option("--downstream", help="And every stream that they feed.")] = False,
        everything: Annotated[bool, typer.Option("--all", help="Instead of names: every stream.")] = False,
        layer: Annotated[str, typer.Option(help="Instead: the streams of a layer.")] = "",
        tag: Annotated[str, typer.Option(metavar="KEY=VALUE", help="Instead: streams with this tag.")] = "",
        upstream_of: Annotated[
            str, typer.Option(metavar="NAME", help="Instead: streams that feed this one, or a table.")
        ] = "",
        downstream_of: Annotated[
            str, typer.Option(metavar="NAME", help="Instead: streams that this one, or a table, feeds.")
        ] = "",
        reason: Annotated[str | None, typer.Option(help="Why; kept in the audit trail.")] = None,
        override: Annotated[
            list[str] | None,
            typer.Option(
                "--set",
                metavar="KEY=VALUE",
                help='Run with another setting from now on: "trigger=30 seconds".',
                hidden=action not in ("start", "restart"),
            ),
        ] = None,
        as_declared: Annotated[
            bool,
            typer.Option(
                "--declared", help="Run with the declared settings again.", hidden=action not in ("start", "restart")
            ),
        ] = False,
        through: Annotated[
            bool,
            typer.Option(
                "--through",
                help="In the graph's order: each stops after those that feed it, once it has read what they wrote.",
                hidden=action != "drain",
            ),
        ] = False,
        dry_run: DryRun = False,
        as_json: AsJson = False,
    ) -> int:
        if through and action != "drain":
            raise typer.BadParameter("it says how to drain: weir drain … --through")
        rules = names, everything, layer, tag, upstream_of, downstream_of
        if sum(map(bool, rules)) != 1 or (downstream and not names):
            ways = "NAME… [--downstream], --all, --layer, --tag, --upstream-of or --downstream-of"
            raise typer.BadParameter(f"choose streams in one way: {ways}")
        if not dry_run and reason is None:
            raise typer.BadParameter("a reason is required: it is kept in the audit trail", param_hint="--reason")
        is_one = len(names or ()) == 1 and not downstream
        if (override or as_declared) and (action not in ("start", "restart") or not is_one):
            raise typer.BadParameter("settings are those of one stream: weir start or restart NAME --set KEY=VALUE")
        key, _, value = tag.partition("=")
        selection = Selection(
            names=tuple(dict.fromkeys(names or ())),
            with_downstream=downstream,
            upstream_of=upstream_of,
            downstream_of=downstream_of,
            layer=layer,
            tag=(key, value),
            everything=everything,
        )
        asked: Action = "drain through" if through else action
        settings = tuple(override or ()), as_declared
        return _ask(asked, selection, None if dry_run else reason, settings, as_json=as_json)

    return act


start, stop, drain, restart = _act("start"), _act("stop"), _act("drain"), _act("restart")


def _ask(
    action: Action, selection: Selection, reason: str | None, overriding: tuple[Sequence[str], bool], *, as_json: bool
) -> int:
    """Write the wishes, or say what would be asked of whom where `reason` is None; the exit code says whether they were
    accepted, not whether they have been carried out. A start is asked for whatever a preflight finds; what stands
    against it is said. `overriding`: `KEY=VALUE` texts, and whether the declared settings come back before these."""
    store = required_store()
    plan = plan_acts(action, selection, streams_and_hosts()[0], now=services.now())
    preflights = {name: _preflight(store, name) for name in plan.names} if action in ("start", "restart") else {}
    settings_of, overrides = _settings(store, plan, *overriding)
    alive = True
    if reason is None:
        unasked: Document = {"asked": False, "would_ask": action}
        documents = {status.declaration.name: _AS_IT_IS(status) | unasked for status in plan.asked}
        line = "{name}: wanted {desired}, observed {state}"
    else:
        actor, now = services.actor(), store.now()
        wishes = store.request_all(plan.names, action, reason=reason, actor=actor, now=now, overrides=overrides)
        alive = is_host_alive(store.hosts(now=services.now()))
        documents = {wish.name: _WISH(wish) | {"asked": True, "host_alive": alive} for wish in wishes}
        line = "{name}: {desired} asked for by {actor}. `weir stream {name}` shows when it is so."
    if as_json:
        asked = [
            document | {"settings": settings_of[name], "preflight": preflights.get(name)}
            for name, document in documents.items()
        ]
        left_out = [{"name": stream.name, "asked": False, "left_out": stream.why} for stream in plan.left_out]
        is_one = len(selection.names) == 1 and not selection.with_downstream and reason is not None
        print_json(asked[0] if is_one else [*asked, *left_out], _SHAPES)
        return 0
    if reason is None:
        say(f"{action} would be asked of {things(len(plan.asked), 'stream')}, in this order. Nothing was asked.")
    for name, document in documents.items():
        say(line.format_map({**document, "desired": document["desired"] or UNKNOWN}))
        if settings := settings_of[name]:
            print_list(SETTINGS, settings)
        if (against := preflights.get(name)) and not against.ok:
            _say_checks(against.failed)
            say(consequence(against), style="yellow")
    if plan.left_out:
        print_list(LEFT_OUT, plan.left_out)
    if documents and not alive:
        say("No host is alive: it will be done when one starts (`weir host`).", style="yellow")
    return 0


SETTINGS: Columns[Setting] = (
    Column("Setting", lambda setting: setting.key, key="key"),
    Column("Declared", lambda setting: shown(setting.declared)),
    Column("Now", lambda setting: shown(setting.now)),
    Column("After", lambda setting: shown(setting.after)),
    Column("Note", lambda setting: setting.note, is_optional=True),
)
LEFT_OUT: Columns[LeftOut] = (
    Column("Left out", lambda stream: stream.name),
    Column("Why", lambda stream: stream.why),
)


def _settings(
    store: "ControlStore", plan: ActPlan, texts: Sequence[str], as_declared: bool
) -> tuple[dict[str, tuple[Setting, ...]], dict[str, dict[str, str]]]:
    """What each stream is overridden with now and afterwards, and all overrides afterwards of those of which something
    was said; raises `OverrideError` where it cannot be."""
    declarations, settings_of = store.declarations(), dict[str, tuple[Setting, ...]]()
    overrides = dict[str, dict[str, str]]()
    for status in plan.asked:
        declared, before = declarations[status.declaration.name], status.desired.overrides if status.desired else {}
        if not texts and not as_declared:
            settings_of[declared.name] = compare(declared, before, before)
            continue
        after = {**({} if as_declared else before), **parse_overrides(texts)}
        check_overrides(declared, after)
        overrides[declared.name] = after
        settings_of[declared.name] = compare(declared, before, after, pinned_by(services.settings(), declared))
    return settings_of, overrides


def reset(
    name: StreamName,
    level: Annotated[
        Literal["reprocess", "from", "full", "undo"] | None,
        typer.Option(help="reprocess: a new checkpoint; full: the tables too; undo: the last one back."),
    ] = None,
    begin: Annotated[
        list[str] | None,
        typer.Option(
            "--from", metavar="WHERE", help="Begin at a version, time or offsets; SOURCE=WHERE for each of several."
        ),
    ] = None,
    reason: Reason = "",
    confirm: Confirm = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    if bool(begin) is not (level in (None, "from")):
        raise SettingsError("say --from WHERE, or --level reprocess, full or undo", hint="`weir reset --help`")
    wanted, settings, store = ResetLevel(level or "from"), services.settings(), required_store()
    lake = services.own_lake()
    statuses, _ = streams_and_hosts()
    declared = next((status.declaration for status in statuses if status.declaration.name == name), None)
    starts = parse_starts(lake, declared, begin, services.clock()) if declared and begin else {}
    preview = load_preview(settings, lake, store, statuses, name=name, level=wanted, now=services.now(), starts=starts)
    if preview.refused and not dry_run:
        raise StreamRefusedError(f"{name} is not reset: {preview.refused}")
    if dry_run or confirm != name:
        if as_json:
            print_json(_RESET(preview), _SHAPES)
        else:
            say(f"{name}: {preview.effect}", style="bold")
            if preview.refused:
                say(f"refused: {preview.refused}", style="red")
            for text in reset_lines(preview):
                say(text)
        if dry_run:
            return 0
        raise StreamRefusedError("nothing was done", hint=f"say --confirm {name} once you have read what it does")
    job = done_on_host(store, reset_job(ResetRequest(name, wanted, starts), actor=services.actor(), reason=reason))
    if as_json:
        print_json(_RESET(preview) | {"job_id": job.job_id}, _SHAPES)
    else:
        say(f"{name}: {preview.effect}.")
        say(f"Take it back with `weir reset {name} --level undo`; start it with `weir start {name}`.", style="dim")
    return 0


def requeue(
    name: StreamName,
    where: Annotated[str, typer.Option(help="SQL over a row of the quarantine: which ones; else all.")] = "",
    repair: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="COLUMN=SQL", help="A new value, of the row as it was: amount = abs(amount)."),
    ] = None,
    reason: Reason = "",
    confirm: Confirm = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> int:
    store = required_store()
    status = stream_named(name, streams_and_hosts()[0])
    request = load_request(services.own_lake(), status.declaration, where, repair or ())
    refused, is_preview = why_not(status), dry_run or confirm != name
    if refused and not dry_run:
        raise StreamRefusedError(f"no row of {name} is requeued: {refused}")
    actor = services.actor()
    wanted = preview_job(request, actor=actor) if is_preview else requeue_job(request, actor=actor, reason=reason)
    job = done_on_host(store, wanted)
    answer = RequeueAnswer.of(job)
    if as_json:
        document = fields_of(answer) | {
            "left": answer.left,
            "stream": name,
            "quarantine": quarantine_of(status.declaration),
            "version": request.version,
            "where": request.where or None,
            "set": request.repairs,
            "refused": refused or None,
        }
        print_json(document if is_preview else document | {"job_id": job.job_id})
    elif is_preview:
        for line in requeue_lines(answer, request, status.declaration):
            say(line)
        if refused:
            say(f"refused: {refused}", style="red")
        if samples := requeue_samples(answer):
            say()
            print_table(tuple(samples[0]), (tuple(sample.values()) for sample in samples))
    else:
        say(f"{name}: {answer.sentence()}.")
        say(f"Start it with `weir start {name}`.", style="dim")
    if is_preview and not dry_run:
        raise StreamRefusedError("nothing was done", hint=f"say --confirm {name} once you have read what it does")
    return 0


def preflight(name: StreamName, as_json: AsJson = False) -> int:
    """Ends with 0 when nothing stands against a start, else 1."""
    result = _preflight(required_store(), name)
    if as_json:
        print_json(result, _SHAPES)
    else:
        _say_checks(result.checks)
        say()
        say(preflight_sentence(result), style="bold")
    return 0 if result.ok else 1


def _preflight(store: "ControlStore", name: str) -> Preflight:
    """Raises `StreamNotFoundError` or `StoreError`."""
    return load_preflight(services.settings(), services.own_lake(), store, name, now=store.now())


def _say_checks(checks: Iterable[Check]) -> None:
    """A line for each check, and one for its remedy where something is to be done."""
    for check in checks:
        say(f"{state_text(check.outcome):<10} {check.name}: {check.detail}", style=STYLES[check.outcome])
        if check.remedy and check.outcome is not Outcome.OK:
            say(f"           → {check.remedy}")
