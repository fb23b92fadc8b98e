"""`weir start|stop|drain|restart`: of one stream, or of many that are chosen by a rule.

Rule: an act is the wish of a named person with a reason; the host carries it out. It is written for all streams or for
none, and who was left out is said.
"""

from typing import TYPE_CHECKING, NamedTuple

from app.cli.output import Document, now, print_json, print_table, say
from app.cli.streams import documents, preflight
from app.cli.streams.listing import actor, is_host_alive, known_streams, required_store
from app.cli.tables.lake import services
from app.streams.text import consequence
from backend.format import things
from backend.stream_model.overrides import Setting, check_overrides, compare, parse_overrides, shown
from backend.stream_model.stream import Action
from backend.streams.acts import ActPlan, Selection, plan_acts
from backend.streams.checkpoint import pinned_by

if TYPE_CHECKING:
    from backend.settings import Settings
    from backend.store.store import ControlStore
    from backend.stream_model.stream import Desired
    from backend.streams.preflight.model import Preflight
    from backend.streams.verdict import StreamStatus

Found = dict[str, "Preflight"]


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
    settings, _ = services()
    with required_store(settings) as store:
        plan, found = _planned(store, action, selection, settings)
        settings_of = _settings(store, settings, plan, change)
        overrides = {each.declaration.name: after for each in plan.asked if (after := change.of(each)) is not None}
        wishes = store.request_all(
            plan.names, action, reason=reason, actor=actor(), now=store.now(), overrides=overrides
        )
        alive = is_host_alive(store.hosts(now=now()), settings)
    if as_json:
        told = [_wish(wish, found.get(wish.name), settings_of[wish.name], alive=alive) for wish in wishes]
        print_json(told[0] if selection.name else [*told, *_left_out(plan)])
        return 0
    for wish in wishes:
        say(
            f"{wish.name}: {wish.state.value} asked for by {wish.actor}. `weir stream {wish.name}` shows when it is so."
        )
        _say_settings(settings_of[wish.name])
        _say_against(found.get(wish.name))
    _say_left_out(plan)
    if wishes and not alive:
        say("No host is alive: it will be done when one starts (`weir host`).", style="yellow")
    return 0


def preview(action: Action, selection: Selection, change: Change, *, as_json: bool) -> int:
    """Say what would be asked of whom, and ask nothing."""
    settings, _ = services()
    with required_store(settings) as store:
        plan, found = _planned(store, action, selection, settings)
        settings_of = _settings(store, settings, plan, change)
    if as_json:
        told = [_as_it_is(each, action, found, settings_of[each.declaration.name]) for each in plan.asked]
        print_json([*told, *_left_out(plan)])
        return 0
    say(f"{action} would be asked of {things(len(plan.asked), 'stream')}, in this order. Nothing was asked.")
    for each in plan.asked:
        desired = each.desired.state.value if each.desired else "–"
        say(f"{each.declaration.name}: wanted {desired}, observed {each.state.value}")
        _say_settings(settings_of[each.declaration.name])
        _say_against(found.get(each.declaration.name))
    _say_left_out(plan)
    return 0


def _planned(
    store: "ControlStore", action: Action, selection: Selection, settings: "Settings"
) -> tuple[ActPlan, Found]:
    """Who is asked, and what stands against each start."""
    plan = plan_acts(action, selection, known_streams(settings)[0], now=now())
    if action in ("stop", "drain"):
        return plan, {}
    return plan, {name: preflight.load(settings, services()[1], store, name) for name in plan.names}


def _settings(
    store: "ControlStore", settings: "Settings", plan: ActPlan, change: Change
) -> dict[str, tuple[Setting, ...]]:
    """What each is overridden with now and afterwards; raises `OverrideError` where it cannot be."""
    declarations, found = store.declarations(), dict[str, tuple[Setting, ...]]()
    for status in plan.asked:
        name, before = status.declaration.name, status.desired.overrides if status.desired else {}
        after = change.of(status)
        if after is None:
            found[name] = compare(declarations[name], before, before)
            continue
        check_overrides(declarations[name], after)
        found[name] = compare(declarations[name], before, after, pinned_by(settings, declarations[name]))
    return found


def _wish(wish: "Desired", found: "Preflight | None", settings: tuple[Setting, ...], *, alive: bool) -> Document:
    return {
        "name": wish.name,
        "asked": True,
        "desired": wish.state.value,
        "generation": wish.generation,
        "reason": wish.reason,
        "actor": wish.actor,
        "requested_at": wish.requested_at,
        "host_alive": alive,
        "settings": [documents.setting(each) for each in settings],
        "preflight": preflight.document(found) if found else None,
    }


def _as_it_is(status: "StreamStatus", action: Action, found: Found, settings: tuple[Setting, ...]) -> Document:
    against = found.get(status.declaration.name)
    return {
        "name": status.declaration.name,
        "asked": False,
        "would_ask": action,
        "desired": status.desired.state.value if status.desired else None,
        "state": status.state.value,
        "settings": [documents.setting(each) for each in settings],
        "preflight": preflight.document(against) if against else None,
    }


def _left_out(plan: ActPlan) -> list[Document]:
    return [{"name": each.name, "asked": False, "left_out": each.why} for each in plan.left_out]


def _say_settings(settings: tuple[Setting, ...]) -> None:
    if settings:
        rows = ((each.key, shown(each.declared), shown(each.now), shown(each.after), each.note) for each in settings)
        print_table(("setting", "declared", "now", "after", ""), rows)


def _say_left_out(plan: ActPlan) -> None:
    if plan.left_out:
        print_table(("left out", "why"), ((each.name, each.why) for each in plan.left_out))


def _say_against(found: "Preflight | None") -> None:
    if found and not found.ok:
        preflight.say_checks(found.failed)
        say(consequence(found), style="yellow")
