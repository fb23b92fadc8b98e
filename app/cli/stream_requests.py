"""`weir start|stop|drain|restart`: of one stream, or of many that are chosen by a rule.

Rule: an act is the wish of a named person with a reason; the host carries it out. It is written for all streams or for
none, and who was left out is said.
"""

from typing import TYPE_CHECKING, NamedTuple

from app import services
from app.cli import preflight
from app.cli.output import Document, Shapes, only, print_json, print_table, say, shaped
from app.cli.store import is_host_alive, required_store, streams_and_hosts
from app.streams.text import consequence
from backend.format import things
from backend.stream_model.overrides import Setting, check_overrides, compare, parse_overrides, shown
from backend.stream_model.stream import Action
from backend.streams.acts import ActPlan, Selection, plan_acts
from backend.streams.checkpoint import pinned_by

if TYPE_CHECKING:
    from backend.store.store import ControlStore
    from backend.streams.faults import Preflight
    from backend.streams.verdict import StreamStatus

Preflights = dict[str, "Preflight"]
_WISH = only("name", "generation", "reason", "actor", "requested_at", desired="state")
_AS_IT_IS = only("state", name="declaration.name", desired="desired.state")
_SHAPES: Shapes = {**preflight.SHAPES, Setting: shaped(empty_is_null=("note",))}


class Change(NamedTuple):
    """Settings that one stream shall run with: `KEY=VALUE` texts, or the declared ones again and then these."""

    texts: tuple[str, ...] = ()
    as_declared: bool = False

    def __bool__(self) -> bool:
        return bool(self.texts) or self.as_declared

    def of(self, status: "StreamStatus") -> dict[str, str] | None:
        """All overrides afterwards; None where nothing was said of them."""
        if not self:
            return None
        before = status.desired.overrides if status.desired and not self.as_declared else {}
        return {**before, **parse_overrides(self.texts)}


def request(action: Action, selection: Selection, reason: str, change: Change, *, as_json: bool) -> int:
    """Write the wishes; the exit code says whether they were accepted, not whether they have been carried out.

    A start is asked for whatever a preflight finds; what stands against it is said.
    """
    store = required_store()
    plan, preflights = _planned(store, action, selection)
    settings_of = _settings(store, plan, change)
    overrides = {status.declaration.name: after for status in plan.asked if (after := change.of(status)) is not None}
    wishes = store.request_all(
        plan.names, action, reason=reason, actor=services.actor(), now=store.now(), overrides=overrides
    )
    alive = is_host_alive(store.hosts(now=services.now()))
    if as_json:
        asked = [
            _WISH(wish)
            | {"asked": True, "host_alive": alive}
            | {"settings": settings_of[wish.name], "preflight": preflights.get(wish.name)}
            for wish in wishes
        ]
        print_json(asked[0] if selection.name else [*asked, *_left_out(plan)], _SHAPES)
        return 0
    for wish in wishes:
        say(
            f"{wish.name}: {wish.state.value} asked for by {wish.actor}. `weir stream {wish.name}` shows when it is so."
        )
        _say_settings(settings_of[wish.name])
        _say_against(preflights.get(wish.name))
    _say_left_out(plan)
    if wishes and not alive:
        say("No host is alive: it will be done when one starts (`weir host`).", style="yellow")
    return 0


def preview(action: Action, selection: Selection, change: Change, *, as_json: bool) -> int:
    """Say what would be asked of whom, and ask nothing."""
    store = required_store()
    plan, preflights = _planned(store, action, selection)
    settings_of = _settings(store, plan, change)
    if as_json:
        unasked = [
            _AS_IT_IS(status)
            | {"asked": False, "would_ask": action}
            | {"settings": settings_of[name], "preflight": preflights.get(name)}
            for status in plan.asked
            if (name := status.declaration.name)
        ]
        print_json([*unasked, *_left_out(plan)], _SHAPES)
        return 0
    say(f"{action} would be asked of {things(len(plan.asked), 'stream')}, in this order. Nothing was asked.")
    for status in plan.asked:
        name, desired = status.declaration.name, status.desired.state.value if status.desired else "–"
        say(f"{name}: wanted {desired}, observed {status.state.value}")
        _say_settings(settings_of[name])
        _say_against(preflights.get(name))
    _say_left_out(plan)
    return 0


def _planned(store: "ControlStore", action: Action, selection: Selection) -> tuple[ActPlan, Preflights]:
    """Who is asked, and what stands against each start."""
    plan = plan_acts(action, selection, streams_and_hosts()[0], now=services.now())
    if action not in ("start", "restart"):
        return plan, {}
    return plan, {name: preflight.load(store, name) for name in plan.names}


def _settings(store: "ControlStore", plan: ActPlan, change: Change) -> dict[str, tuple[Setting, ...]]:
    """What each is overridden with now and afterwards; raises `OverrideError` where it cannot be."""
    declarations, settings_of = store.declarations(), dict[str, tuple[Setting, ...]]()
    for status in plan.asked:
        declared, before = declarations[status.declaration.name], status.desired.overrides if status.desired else {}
        after = change.of(status)
        if after is None:
            settings_of[declared.name] = compare(declared, before, before)
            continue
        check_overrides(declared, after)
        settings_of[declared.name] = compare(declared, before, after, pinned_by(services.settings(), declared))
    return settings_of


def _left_out(plan: ActPlan) -> list[Document]:
    return [{"name": stream.name, "asked": False, "left_out": stream.why} for stream in plan.left_out]


def _say_settings(settings: tuple[Setting, ...]) -> None:
    if settings:
        rows = (
            (setting.key, *map(shown, (setting.declared, setting.now, setting.after)), setting.note)
            for setting in settings
        )
        print_table(("setting", "declared", "now", "after", ""), rows)


def _say_left_out(plan: ActPlan) -> None:
    if plan.left_out:
        print_table(("left out", "why"), ((stream.name, stream.why) for stream in plan.left_out))


def _say_against(against: "Preflight | None") -> None:
    if against and not against.ok:
        preflight.say_checks(against.failed)
        say(consequence(against), style="yellow")
