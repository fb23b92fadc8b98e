"""Acts on a table from any of its pages: a button where the finding stands, one dialog for all, and the way back.

Rule: the dialog says in figures what will happen, then asks. A click asks the stream host, which looks at the table
again, does it, and proves it; the Acts page shows how far it is.
"""

from dataclasses import replace

import streamlit as st

from app import cache, errors, services, state, viewer
from app.navigation import Params, table_link
from app.ui import dialogs
from app.ui.view.acts import ACTS, act_title, loss_text, preview_lines
from app.ui.view.words import markdown_safe, sentence
from backend.changes.model import VersionDiff
from backend.errors import LakehouseError
from backend.lake.files.file_sizes import partition_codes
from backend.lake.history.history import resolve_version
from backend.lake.model import TableRef
from backend.lake.storage.folder import normal_uri
from backend.lake.table.schema import column_names, partition_values
from backend.maintenance.alter import read_column, read_pair
from backend.maintenance.model import Alter, Arguments, Clone, Optimize, Repair, Restore, Rewind, TableAct, act_job
from backend.streams.requeue import parse_repairs

_ACT = "table_act"
WHOLE = "All of the table"


def act_button(ref: TableRef, version: int, arguments: Arguments, *, key: str, label: str = "") -> None:
    """Opens the dialog on the next full run; off where nobody may act here. `label`: not the act's own."""
    look, effect = ACTS[arguments.kind], "Says first what it will do, and asks for a reason"
    act, blocked = TableAct(ref.uri, ref.name, version, arguments), viewer.read_only_reason()
    dialogs.button(_ACT, act, f"{label or look.label}…", key=key, icon=look.icon, effect=effect, blocked=blocked)


def is_written_here(uri: str) -> bool:
    """Whether a stream writes the table, whoever runs it."""
    streams = (status.declaration for status in cache.streams_reading().streams)
    return any(normal_uri(output.uri) == uri for stream in streams if not stream.is_view for output in stream.outputs)


def act_dialog() -> None:
    """Called once by every page with such buttons: says what was just asked, and opens the dialog that is due."""
    dialogs.dialog(_ACT, _dialog, title=lambda act: f"{act_title(act.kind, act.name)}?", width="large")


def _dialog(act: TableAct) -> None:
    with errors.boundary():
        arguments = _chosen(act)
        if isinstance(arguments, str):
            st.caption(arguments)
            return
        asked = replace(act, arguments=arguments)
        planned = cache.act_preview(asked)
        st.markdown("\n".join(f"- {markdown_safe(line)}" for line in preview_lines(planned)))
        if planned.refused:
            cache.act_preview.clear(asked)  # whoever does what it says opens the dialog again at once
        title = act_title(asked.kind, act.name)
        dialogs.ask(
            _ACT,
            f"{sentence(planned.refused)} {sentence(planned.way_out)}".strip(),
            label=ACTS[asked.kind].label,
            typed=act.name if planned.typed else "",
            job=lambda reason: act_job(planned.act, actor=viewer.actor(), reason=reason),
            done=f"{title}: asked for. Its host does it next; Acts shows how far it is.",
        )


# what is chosen in the dialog ------------------------------------------------------------------------------------


def _chosen(act: TableAct) -> Arguments | str:
    """What is asked once that was chosen; a sentence where something is still to be said."""
    match act.arguments:
        case Optimize() as asked:
            asked = asked if asked.purge else _optimize(act, asked)
            label = "Prove each row: read the old files and the new ones again, and compare"
            return replace(asked, prove_rows=st.checkbox(label, key="act_prove_rows"))
        case Restore() as asked:
            label = "Keep today's properties (retention, change feed, owner, …)"
            keeps = st.checkbox(label, value=True, key="act_keeps_properties")
            return replace(asked, keeps_properties=keeps, stops_writers=_stops_writers(act))
        case Clone() as asked:
            help_text = "A name below the same root, or an address below another one."
            target = st.text_input("Where to", key="act_target", placeholder=f"{act.name}_copy", help=help_text) or ""
            shallow = st.checkbox("Shallow: reads the data files of this table", key="act_shallow")
            if not target.strip():
                return "Say where to, and press Enter."
            return replace(asked, target=target.strip(), shallow=shallow)
        case Repair() as asked:
            return _repair(act, asked)
        case Alter() as asked:
            return _alter(act) if asked == Alter() else asked
    return act.arguments


def _optimize(act: TableAct, asked: Optimize) -> Optimize:
    """All of it or one partition, laid out by columns or not."""
    snapshot = services.lake().snapshot(services.lake().find(act.uri))
    partition: dict[str, str | None] = {}
    if snapshot.metadata.partition_columns:
        shown = st.selectbox("Where", [WHOLE, *sorted(partition_codes(snapshot)[1])], key="act_partition")
        partition = {} if shown == WHOLE else partition_values(shown, snapshot.metadata)
    columns = [name for name in column_names(snapshot.metadata) if name not in snapshot.metadata.partition_columns]
    zorder: list[str] = []
    if "delta.clustering" not in snapshot.domains:
        help_text = "ZORDER BY: rows that are near in these columns come to lie in the same files. Rewrites all files."
        zorder = st.multiselect("Lay rows out by", columns, key="act_zorder", help=help_text, max_selections=4)
    return replace(asked, partition=partition, zorder_by=tuple(zorder))


def _stops_writers(act: TableAct) -> bool:
    label = "Stop the streams that write it meanwhile, and start them again after"
    return is_written_here(act.uri) and st.checkbox(label, key="act_stops_writers")


def _repair(act: TableAct, asked: Repair) -> Repair | str:
    where = st.text_input("Which rows", asked.where, key="act_where", placeholder="SQL over a row: amount < 0")
    version = st.text_input(
        "Take them from version", key="act_from_version", placeholder="118, -5, yesterday",
        help="Rows that satisfy the condition in that version replace those that satisfy it now.",
    )  # fmt: skip
    deletes = not version and st.checkbox("Delete them", key="act_deletes")
    given = version or deletes or st.text_area(
        "Their new values", key="act_values", height=90, placeholder="amount = abs(amount)",
        help="One line a column: column = SQL over the row as it was.",
    )  # fmt: skip
    stops = _stops_writers(act)
    if not (where or "").strip() or not given:
        return "Say which rows, and what to do with them, then press Enter."
    if version:
        lake = services.lake()
        number = resolve_version(lake, lake.find(act.uri), version, viewer.clock())
        return Repair(where.strip(), from_version=number, stops_writers=stops)
    values = {} if deletes else parse_repairs([line for line in str(given).splitlines() if line.strip()])
    return Repair(where.strip(), values, stops_writers=stops)


def _alter(act: TableAct) -> Alter | str:
    """Properties; of the rest one new column and one new constraint at a time: `weir alter` takes more."""
    metadata = services.lake().snapshot(services.lake().find(act.uri)).metadata
    example, help_text = "delta.appendOnly = true", "One line a property: key = value"
    given = st.text_area("Set", key="act_set", height=90, placeholder=example, help=help_text)
    unset = st.multiselect("Take away", sorted(metadata.configuration), key="act_unset")
    pairs = [line.partition("=") for line in (given or "").splitlines() if line.strip()]
    asked = Alter({key.strip(): value.strip() for key, _, value in pairs}, tuple(unset))
    before, example = metadata.description or "", "discount decimal(10,2) COMMENT 'of the order'"
    with st.expander("Comment, column, constraint", key="act_more"):
        comment = st.text_input("Comment", before, key="act_comment") or ""
        column = st.text_input("New column", key="act_column", placeholder=example) or ""
        such_as = "positive = amount >= 0"
        constraint = st.text_input("New constraint", key="act_constraint", placeholder=such_as) or ""
        if comment != before:
            asked = replace(asked, comment=comment)
        if column.strip():
            name, kind, text = read_column(column)
            asked = replace(asked, add_columns={name: kind}, column_comments={name: text} if text else {})
        if constraint.strip():
            asked = replace(asked, add_constraints=dict([read_pair(constraint, such_as=such_as)]))
    return "Say what is to change, and press Ctrl+Enter." if asked == Alter() else asked


# back to a former version ---------------------------------------------------------------------------------------------


def way_back(ref: TableRef, latest: int, to_version: int, since: VersionDiff | None = None) -> None:
    """Back to `to_version`: the table alone, or with the stream that writes it. `since`: what differs between that and
    the latest version, where somebody compared them."""
    is_streamed = is_written_here(ref.uri)
    with st.container(border=True, key="way_back"):
        st.markdown(f"**Back to v{to_version}**")
        asked = Restore(to_version, keeps_properties=True, stops_writers=is_streamed)
        try:
            planned = cache.act_preview(TableAct(ref.uri, ref.name, latest, asked))
        except LakehouseError as exc:
            st.caption(markdown_safe(f"{sentence(exc.message)} {sentence(exc.hint)}"))
            return
        lost = loss_text(since)
        lines = [*([sentence(lost)] if lost else []), *preview_lines(planned)]
        st.markdown("\n".join(f"- {markdown_safe(line)}" for line in lines))
        if planned.refused:
            st.caption(markdown_safe(f"{sentence(planned.refused)} {sentence(planned.way_out)}"))
        with st.container(horizontal=True, vertical_alignment="center", key="back_buttons"):
            if not planned.refused:
                act_button(ref, latest, Restore(to_version), key="restore")
                if is_streamed:
                    act_button(ref, latest, Rewind(to_version), key="rewind")
            ends: Params = {state.FROM: latest, state.TO: to_version, state.ACROSS_REPLACE: "true"}
            table_link(ref.name, f"What going back to v{to_version} changes", ends, page="changes")
