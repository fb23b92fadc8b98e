"""The Audit page: the audit trail as its viewer may see it, by who, what, on what and since when.

Rule: what is asked stands in the URL; to take all of it away as a file is an act of an admin.
"""

from contextlib import nullcontext
from dataclasses import asdict
from functools import partial

import pyarrow as pa
import streamlit as st

from app import services, state, viewer
from app.ui.export import ExportOffer, export_button
from app.ui.lists import choose, facts
from app.ui.view.acts import MOST_AUDIT, log_columns
from backend.access import Access, Role, permission
from backend.sql.export import Exported, Format
from backend.times import parse_time

_MOST = 500  # rows that are shown
_FILTERS = {"Since": state.SINCE, "By": state.BY, "Act": state.OPERATION, "On": state.ACTED_ON}


def trail() -> None:
    with st.container(horizontal=True, key="audit_filters"):
        since, by, action, on = (
            st.text_input(label, key=key, bind="query-params", placeholder="7 d ago" if label == "Since" else "Any")
            for label, key in _FILTERS.items()
        )
    store, actor, clock, where = services.store(), viewer.actor(), viewer.clock(), {"actor": by, "action": action}
    begin, operation = parse_time(since or "7 d", clock), "export audit"
    asked = partial(store.audit_entries, where, since=begin, on=on or "*", seen_by=actor)
    rows, number = asked(limit=_MOST), state.get_int(state.AUDIT_ROW)
    names, columns = [str(row.id) for row in rows], log_columns(clock.now, services.settings().roots, of_all=True)
    if actor.role_for(None) is not Role.ADMIN:
        st.caption("Yours, and what concerns tables and streams that you have a role for.")
    if not rows:
        st.info("**No row fits.** Widen *Since*, or clear a filter.", icon=":material/search_off:")
    elif opened := choose(columns, rows, key="audit", names=names, alt="The audit trail, newest first"):
        state.set_params({state.AUDIT_ROW: opened})
        number = int(opened)

    def file(form: Format) -> Exported:
        def read(_: object) -> "nullcontext[pa.RecordBatchReader]":
            store.admit(Access(actor, "audit", operation, f"as {form.label}"), now=services.now())
            return nullcontext(pa.Table.from_pylist([*map(asdict, asked(limit=MOST_AUDIT))]).to_reader())

        return Exported("the audit trail", f"audit.{form.suffix}", form, read)

    if (may := permission(actor, operation, "audit")).allowed:
        export_button(ExportOffer("the audit trail", file, "", "weir audit --json > {}".format))
    else:
        st.button("Export", disabled=True, help=may.by, icon=":material/download:")
    for one in store.audit_entries({"id": number}, seen_by=actor) if number is not None else ():
        facts({name: str(value) for name, value in asdict(one).items() if value not in ("", None)})
