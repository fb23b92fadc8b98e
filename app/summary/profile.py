"""The profile of a version: at once from the log, exact from the rows after a click, beside another version's.

Rule: no data file is opened before a person asked, and what it costs is said before. A profile once read is kept.
"""

from collections.abc import Callable

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import cache, services, state, viewer
from app.services import once
from app.summary import text as words
from app.ui import lists, work
from app.ui.lake import OpenTable
from app.ui.view.words import markdown_safe
from backend.lake.history.history import resolve_version
from backend.lake.model import Snapshot
from backend.sql import numbers
from backend.sql.numbers import NumbersProgress, Profile, from_log, profiled, readable, with_statistics

profiles = once(numbers.profiles)  # that were read from rows


def profile(opened: OpenTable) -> None:
    """The controls, what stands out, and the columns; raises what `resolve_version` and the lake raise."""
    snapshot = opened.snapshot
    if not profiled(snapshot):
        st.info("**The table has no columns yet.**", icon=":material/view_column:")
        return
    with st.container(horizontal=True, vertical_alignment="bottom", key="profile_controls"):
        text = st.text_input(
            "Compare with version", key=state.COMPARE, bind="query-params", placeholder="118, -5, latest, a time",
            icon=":material/compare_arrows:", width=260,
        )  # fmt: skip
        button = st.container(horizontal=True, vertical_alignment="center", key="profile_button")
    other = _other(opened, (text or "").strip())
    snapshots = [snapshot] if other is None else [other, snapshot]
    read = _read(snapshots, button)
    profiles_shown = [
        read.get(snapshot.version)
        or from_log(snapshot, cache.column_totals(snapshot, tuple(with_statistics(snapshot))))
        for snapshot in snapshots
    ]
    caption = words.source_sentence(profiles_shown[-1])
    if len(profiles_shown) == 2:
        caption += f" {words.differing_sentence(*profiles_shown)}"
    st.caption(markdown_safe(caption))
    shown = profiles_shown[-1]
    against = words.differences(profiles_shown[0], shown) if len(profiles_shown) == 2 else {}
    differing_first = sorted(shown.columns, key=lambda column: column.column not in against)
    lists.show(words.profile_columns(shown, against), differing_first, key="profile", alt="Profile of the columns")


def _other(opened: OpenTable, text: str) -> Snapshot | None:
    """The version to compare with; None where none is named, or this one."""
    if not text:
        return None
    lake = services.lake()
    version = resolve_version(lake, opened.ref, text, viewer.clock())
    return None if version == opened.snapshot.version else lake.snapshot(opened.ref, version)


def _read(snapshots: list[Snapshot], button: DeltaGenerator) -> dict[int, Profile]:
    """Profiles by version that were read from the rows, perhaps now; nothing is read before a person asked."""
    known_of, versions = profiles(), [snapshot.version for snapshot in snapshots]
    known = {
        value.version: value for snapshot in snapshots for value in known_of.known(snapshot, "", [snapshot.version])
    }
    missing = [snapshot for snapshot in snapshots if snapshot.version not in known]
    ref = snapshots[0].ref
    name = f"profile_{ref.uri}_{versions}"
    if missing and not work.is_asked(name):
        size, files = (sum(getattr(snapshot, total) for snapshot in missing) for total in ("size_bytes", "num_files"))
        with button:
            st.button("Read the rows", key="read_profile", icon=":material/play_arrow:", on_click=work.ask,
                      args=(name,))  # fmt: skip
            st.caption(words.cost_sentence(size, files))
    elif missing:
        last = work.run(lambda: known_of.over(services.lake(), ref, "", versions), key="profile", tell=_tell(missing))
        known |= {value.version: value for value in last.values} if last else {}
    return readable(list(known.values()))


def _tell(missing: list[Snapshot]) -> Callable[[NumbersProgress[Profile]], tuple[float, str]]:
    rows = {snapshot.version: snapshot.num_rows for snapshot in missing}

    def tell(step: NumbersProgress[Profile]) -> tuple[float, str]:
        total = rows.get(step.version or -1)
        share = step.rows_read / (2 * total) if total else 0.0
        done = (len(step.values) + min(1.0, share)) / max(1, step.total)
        return done, f"v{step.version}: {step.rows_read:,} rows read"

    return tell
