"""Pinned versions on the versions page: which are, and the dialog that pins or unpins the chosen one.

Rule: a pin is the wish of a named person with a reason; it takes effect at once, no host is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from app import errors, navigation, services, state, viewer
from app.ui import dialogs
from app.ui.view.words import markdown_safe, sentence
from app.versions.text import pin_words
from backend.lake.model import Pin, TableRef
from backend.times import parse_time

_PIN = "pin"
_CALLED, _UNTIL = "pin_called", "pin_until"
_MOST_LISTED = 20


@dataclass(frozen=True, slots=True)
class _Asked:
    """`pin`: the one that is to go; None: the version is to be pinned."""

    ref: TableRef
    version: int
    pin: Pin | None


def pins_of(ref: TableRef) -> list[Pin] | None:
    """The table's pins by version; None where the store does not answer, which is shown."""
    with errors.boundary():
        store = services.existing_store()
        return store.pins.of_table(ref) if store else []
    return None


def listed(ref: TableRef, pins: Sequence[Pin]) -> None:
    """Every pin of the table, each with a link to its version."""
    for pin in pins[:_MOST_LISTED]:
        with st.container(horizontal=True, key=f"pin_{pin.version}"):
            st.markdown(f":material/keep: {markdown_safe(sentence(pin_words(pin, services.now())))}")
            navigation.table_link(ref.name, f"Show v{pin.version}", {state.AT: pin.version}, page="versions")
    if len(pins) > _MOST_LISTED:
        st.caption(f"{len(pins) - _MOST_LISTED} more are pinned: `weir versions {markdown_safe(ref.name)}` lists all.")


def pin_button(ref: TableRef, version: int, pins: Sequence[Pin]) -> None:
    """Opens the dialog on the next full run; off where nobody may act here."""
    pin = next((pin for pin in pins if pin.version == version), None)
    blocked = viewer.read_only_reason()
    effect = blocked or ("VACUUM may take its files again" if pin else "Weir's VACUUM then leaves its files alone")
    icon = ":material/keep_off:" if pin else ":material/keep:"
    label = "Unpin…" if pin else "Pin…"
    if st.button(label, key="pin", icon=icon, disabled=blocked is not None, help=markdown_safe(effect)):
        dialogs.open_dialog(_PIN, _Asked(ref, version, pin))


def pin_dialog() -> None:
    """Called once by the page: says what was just done, and opens the dialog that is due."""

    def title(asked: _Asked) -> str:
        return f"{'Unpin' if asked.pin else 'Pin'} v{asked.version} of {asked.ref.name}?"

    dialogs.dialog(_PIN, _dialog, title=title, width="small")


def _dialog(asked: _Asked) -> None:
    with errors.boundary():
        if asked.pin:
            st.markdown(markdown_safe(sentence(pin_words(asked.pin, services.now()))))
            st.markdown("Without the pin, VACUUM deletes its files once the table's retention lets it.")
        else:
            st.markdown("VACUUM by Weir is refused while it would delete a file of this version.")
            st.caption("Other engines' VACUUM heeds no pin, and until when Delta lets it be read stays as it is.")
        label, boxes = ("Unpin", None) if asked.pin else ("Pin", _boxes)
        reason = dialogs.reason(_PIN, label=label, boxes=boxes)
        if reason is None:
            return
        pins, actor, now = services.store().pins, viewer.actor(), services.now()
        if asked.pin:
            pins.remove(asked.ref, asked.version, actor=actor, reason=reason, now=now)
        else:
            name, until = (str(st.session_state[key] or "") for key in (_CALLED, _UNTIL))
            ends = parse_time(until, viewer.clock(), end_of_day=True) if until else None
            pins.add(asked.ref, asked.version, actor=actor, reason=reason, now=now, name=name, until=ends)
        dialogs.asked(_PIN, f"v{asked.version} is {'not pinned any more' if asked.pin else 'pinned'}")


def _boxes() -> None:
    means = "Means this version wherever one is asked, also in SQL: VERSION AS OF 'features-2026-11'"
    st.text_input("Name (optional)", key=_CALLED, placeholder="features-2026-11", help=means)
    st.text_input("Until (optional)", key=_UNTIL, placeholder="2026-12-31", help="The end of that day, UTC")
