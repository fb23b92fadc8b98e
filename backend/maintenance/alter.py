"""What a change of a table's metadata would do: properties, comment, columns, CHECK constraints.

Rule: `plan_alter` is pure. Refused is what no engine would understand, a column of a table that a declared stream
writes, and a constraint that rows violate.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from backend.errors import QueryError
from backend.format import cut, things
from backend.lake.files.clustering import declared_clustering
from backend.lake.lake import Lake
from backend.lake.model import Metadata, Protocol, Snapshot
from backend.lake.table.metadata_diff import column_names
from backend.lake.table.properties import explain_properties, is_on
from backend.lake.table.schema import columns, constraints, spelled
from backend.maintenance.column_types import may_widen, read_type
from backend.maintenance.model import ActPreview, Alter, Repair, TableAct
from backend.maintenance.readers import Users
from backend.maintenance.restore import RESTORE_BACK, changed_properties, property_losses
from backend.maintenance.rows_hit import RowsHit, count_hit
from backend.settings import Settings
from backend.sql.expression import check_row_condition

_PROTOCOL = ("delta.feature.", "delta.columnMapping.mode", "delta.minReaderVersion", "delta.minWriterVersion")
_RAISING = (
    "delta.enableDeletionVectors",
    "delta.enableRowTracking",
    "delta.enableTypeWidening",
    "delta.enableInCommitTimestamps",
    "delta.checkpointPolicy",
)
OF_ENGINES = ("delta.columnMapping.maxColumnId", "delta.inCommitTimestampEnablement", "delta.rowTracking.")
CONSTRAINT = "delta.constraints."
_MAPPING, _WIDENING, _NTZ = "delta.columnMapping.mode", "delta.enableTypeWidening", "delta.feature.timestampNtz"
_NEEDS_MAPPING = frozenset(" ,;{}()\n\t=")
_UNLIKE = ('"', "\\", "`", "--", "/*")  # what Spark and DuckDB read in two ways, or a log does not keep
Refusal = tuple[str, str]  # why, and what helps


def checked_alter(metadata: Metadata, asked: Alter) -> Alter:
    """The same with names as the table spells them and types as Spark does; raises `QueryError` for what the table does
    not have, or nobody can mean."""
    names = column_names(metadata)

    def own(name: str) -> str:
        if (found := spelled(name, names)) is None:
            raise QueryError(f"there is no column {name!r}", hint=f"the columns are {', '.join(names)}")
        return found

    checked = replace(
        asked,
        add_columns={name: read_type(kind) for name, kind in asked.add_columns.items()},
        rename_columns={own(old): new for old, new in asked.rename_columns.items()},
        drop_columns=tuple(map(own, asked.drop_columns)),
        widen_columns={own(name): read_type(kind) for name, kind in asked.widen_columns.items()},
        add_constraints={name.lower(): text.strip() for name, text in asked.add_constraints.items()},
        drop_constraints=tuple(name.lower() for name in asked.drop_constraints),
    )
    touched = [*checked.add_columns, *checked.rename_columns, *checked.rename_columns.values()]
    _check_once("column", [*touched, *checked.drop_columns, *checked.widen_columns])
    _check_once("constraint", [*checked.add_constraints, *checked.drop_constraints])
    for name, text in checked.add_constraints.items():
        _check_constraint(name, text, names)
    return checked


def _check_once(what: str, names: list[str]) -> None:
    lowered = [name.lower() for name in names]
    if twice := next((name for name in names if lowered.count(name.lower()) > 1), None):
        raise QueryError(f"{what} {twice!r} is named twice", hint="change it in one act after the other")


def _check_constraint(name: str, text: str, names: tuple[str, ...]) -> None:
    """It is kept as text, which every engine that writes the table reads for itself."""
    if not re.fullmatch(r"\w+", name):
        raise QueryError(f"{name!r} is no name for a constraint", hint="letters, digits and _ alone")
    if sign := next((sign for sign in _UNLIKE if sign in text), None):
        hint = "quoted names, backslashes and comments cannot stand in it: engines read them in different ways"
        raise QueryError(f"the condition of {name} has {sign} in it", hint=hint)
    for whole in (text, f"CASE WHEN {text} THEN true ELSE false END"):  # the second takes no "a) OR (b"
        check_row_condition(whole, names)


def violations(lake: Lake, snapshot: Snapshot, asked: Alter, settings: Settings) -> dict[str, RowsHit]:
    """The rows that are there and violate a new constraint, by its name; as for Delta, unknown is a violation."""
    return {
        name: count_hit(lake, snapshot, Repair(f"NOT coalesce((\n{text}\n), false)"), settings)
        for name, text in asked.add_constraints.items()
    }


def plan_alter(snapshot: Snapshot, asked: Alter, violating: Mapping[str, RowsHit], users: Users) -> ActPreview:
    """`asked` as `checked_alter` gives it."""
    metadata = snapshot.metadata
    now = metadata.configuration
    after = {key: value for key, value in {**now, **asked.set_properties}.items() if key not in asked.unset_properties}
    changed = changed_properties(now, after)
    rows = {row.key: row for row in explain_properties(replace(metadata, configuration=after))}
    others = list(_changes(metadata, asked))
    effect = "; ".join([*([f"properties change: {', '.join(changed)}"] if changed else []), *others])
    refused, way_out = next(_refusals(snapshot, asked, after, users), ("", ""))
    if not refused and (hits := [name for name, hit in violating.items() if hit.rows]):
        refused = "; ".join(f"{things(violating[name].rows, 'row')} violate {name}" for name in hits)
        way_out = f"repair them first: weir repair {snapshot.ref.name} --where …"
    counted = [hit.rows for hit in violating.values()]
    notes = [f"{key}: {row.meaning}" for key in asked.set_properties if (row := rows.get(key)) and row.meaning]
    notes += [f"{name}: {line}" for name, hit in violating.items() for line in (hit.unknown, *hit.samples) if line]
    return ActPreview(
        TableAct(snapshot.ref.uri, snapshot.ref.name, snapshot.version, asked),
        effect or "nothing changes",
        {
            "properties_changed": len(changed),
            "columns_changed": sum(map(len, (asked.add_columns, *_touched(asked)))),
            "rows_violating": None if None in counted else sum(filter(None, counted)),
        },
        tuple(notes),
        tuple(_risks(snapshot, asked, after, users)),
        way_back=_way_back(snapshot, asked, changed_properties(after, now)),
        refused=refused or ("" if effect else "it is so already"),
        way_out=way_out,
        typed=bool(asked.drop_columns),
    )


def _touched(asked: Alter) -> tuple[tuple[str, ...], ...]:
    """Columns that are there and change: renamed, dropped, widened."""
    return tuple(asked.rename_columns), asked.drop_columns, tuple(asked.widen_columns)


def _changes(metadata: Metadata, asked: Alter) -> Iterator[str]:
    """Beside properties."""
    if asked.comment is not None and asked.comment != (metadata.description or ""):
        yield f"the comment becomes {cut(asked.comment, 200)!r}"
    for name, kind in asked.add_columns.items():
        comment = asked.column_comments.get(name)
        yield f"a column {name} {kind} is added, null in every row" + (f": {cut(comment, 200)!r}" if comment else "")
    yield from (f"column {old} is called {new}" for old, new in asked.rename_columns.items())
    yield from (f"column {name} is dropped with its values" for name in asked.drop_columns)
    kinds = column_kinds(metadata)
    yield from (f"column {name} {kinds.get(name)} becomes {kind}" for name, kind in asked.widen_columns.items())
    yield from (f"every row must satisfy {name}: {text}" for name, text in asked.add_constraints.items())
    present = checks(metadata)
    yield from (f"rows need no longer satisfy {name}: {present.get(name)}" for name in asked.drop_constraints)


def column_kinds(metadata: Metadata) -> dict[str, str]:
    """Types of the outermost columns, as Spark's simple strings."""
    return {column.name: column.type for column in columns(metadata) if column.depth == 0}


def checks(metadata: Metadata) -> dict[str, str]:
    """CHECK conditions by name, which has no upper case in Delta."""
    return {constraint.name.lower(): constraint.expression for constraint in constraints(metadata)}


# refused ---------------------------------------------------------------------------------------------------------


def _refusals(snapshot: Snapshot, asked: Alter, after: Mapping[str, str], users: Users) -> Iterator[Refusal]:
    """`after`: the properties as they will be."""
    rows = {row.key: row for row in explain_properties(replace(snapshot.metadata, configuration=after))}
    named = (*asked.set_properties, *asked.unset_properties)
    if wrong := [f"{key}: {rows[key].problem}" for key in asked.set_properties if key in rows and rows[key].problem]:
        yield "; ".join(wrong), "correct the spelling"
    if own := [key for key in named if key.startswith(OF_ENGINES)]:
        yield f"{', '.join(own)}: engines keep it themselves", ""
    if of_constraints := [key for key in named if key.startswith(CONSTRAINT)]:
        yield f"{', '.join(of_constraints)} is a constraint, no property", "--add-constraint, --drop-constraint"
    present = checks(snapshot.metadata)
    if known := [name for name in asked.add_constraints if name in present]:
        yield f"there is a constraint {known[0]} already: {present[known[0]]}", "drop it first, or choose another name"
    if unknown := [name for name in asked.drop_constraints if name not in present]:
        yield f"there is no constraint {unknown[0]}", f"there are: {', '.join(present)}" if present else ""
    yield from _of_writers(asked, users)
    yield from _of_mapping(snapshot.metadata, asked, after)
    yield from _of_types(snapshot, asked, after)
    yield from _of_dependents(snapshot, asked, present)


def _of_writers(asked: Alter, users: Users) -> Iterator[Refusal]:
    if users.writers and (asked.rename_columns or asked.drop_columns):
        streams = ", ".join(dict.fromkeys(writer.stream for writer in users.writers))
        yield (
            f"{streams} writes the table, and which columns is not declared: its next start may fail",
            "change what it writes, and leave it out of host.pipelines while the column goes",
        )


def _of_mapping(metadata: Metadata, asked: Alter, after: Mapping[str, str]) -> Iterator[Refusal]:
    """Names that are not those in the data files need Delta's column mapping."""
    for name in (*asked.add_columns, *asked.rename_columns.values()):
        if (present := spelled(name, column_names(metadata))) is not None:
            yield f"there is a column {present} already", "choose another name"
    if after.get(_MAPPING, "none").lower() == "none":
        odd = [name for name in asked.add_columns if _NEEDS_MAPPING & set(name)]
        if asked.rename_columns or asked.drop_columns or odd:
            what = f"the name {odd[0]!r} needs" if odd else "renaming and dropping columns need"
            yield f"{what} column mapping, which is off", f"--set {_MAPPING}=name, which is for good"


def _of_types(snapshot: Snapshot, asked: Alter, after: Mapping[str, str]) -> Iterator[Refusal]:
    kinds = column_kinds(snapshot.metadata)
    for name, kind in asked.widen_columns.items():
        if not may_widen(kinds.get(name, ""), kind):
            yield f"{name} {kinds.get(name)} cannot become {kind} without being written anew", "add a column instead"
    if asked.widen_columns and not is_on(after, _WIDENING):
        yield f"wider types need {_WIDENING}, which is off", f"--set {_WIDENING}=true, which shuts out older readers"
    new = (*asked.add_columns.values(), *asked.widen_columns.values())
    supported = "timestampNtz" in snapshot.protocol.features or _NTZ in asked.set_properties
    if any("timestamp_ntz" in kind for kind in new) and not supported:
        yield "timestamp_ntz needs a table feature that is off", f"--set {_NTZ}=supported, which is for good"


def _of_dependents(snapshot: Snapshot, asked: Alter, present: Mapping[str, str]) -> Iterator[Refusal]:
    """What names the column in its text would read nothing, or something else, afterwards."""
    partitions, clustered = snapshot.metadata.partition_columns, declared_clustering(snapshot)
    for name in asked.drop_columns:
        if name in (*partitions, *clustered):
            yield f"the table is laid out by {name}", "write it anew without"
        if set(column_names(snapshot.metadata)) == set(asked.drop_columns):
            yield "a table needs a column", ""
    kept = [(f"constraint {key}", text) for key, text in present.items() if key not in asked.drop_constraints]
    kept += [(f"new constraint {key}", text) for key, text in asked.add_constraints.items()]
    kept += [(f"column {c.path}", c.generated_as) for c in columns(snapshot.metadata) if c.generated_as]
    for name in (name for names in _touched(asked) for name in names):
        word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
        if user := next((what for what, text in kept if word.search(text)), None):
            yield f"{user} is computed from {name}", "drop it first, in an act of its own"


# risks, way back -------------------------------------------------------------------------------------------------


def _risks(snapshot: Snapshot, asked: Alter, after: Mapping[str, str], users: Users) -> Iterator[str]:
    raising = [
        key
        for key, value in asked.set_properties.items()
        if key.startswith(_PROTOCOL) or (key in _RAISING and value.lower() not in ("false", "classic"))
    ]
    yield from (
        f"{key} raises the table's protocol for good: older readers and writers are shut out" for key in raising
    )
    yield from property_losses(snapshot.metadata.configuration, after, users)
    if asked.add_constraints and not _has_constraints(snapshot.protocol):
        yield "a constraint raises the table's protocol for good: writers that do not know constraints are shut out"
    for key in (*asked.set_properties, *asked.unset_properties):
        if key in users.properties:
            yield f"a stream declares {key} = {users.properties[key]}: its next start puts that back"
    if is_on(after, "delta.appendOnly") and any(writer.merges for writer in users.writers):
        yield "a stream changes rows here: with delta.appendOnly it fails"
    if asked.add_constraints:
        yield from (f"{w.stream} writes the table: a row that violates the constraint stops it" for w in users.writers)
    for reader in users.readers:
        if any(_touched(asked)):
            yield f"{reader.stream} reads the table: it stops at this change, and goes on after a reset alone"
        elif asked.add_columns:
            yield f"{reader.stream} reads the table: it stops once at the new column, and goes on when it is started"
    if asked.rename_columns or asked.drop_columns:
        yield "queries that name the column fail from here on; versions before have it as it was"


def _has_constraints(protocol: Protocol) -> bool:
    return "checkConstraints" in protocol.features or 3 <= protocol.min_writer_version <= 6


def _way_back(snapshot: Snapshot, asked: Alter, properties: list[str]) -> str:
    """RESTORE where values would be lost, else the inverse."""
    if asked.drop_columns or asked.widen_columns:
        return f"{RESTORE_BACK.format(snapshot.version)}, with every commit after it"
    present = checks(snapshot.metadata)
    inverse = [change for change in properties if not change.startswith(_PROTOCOL)] + [
        f"--rename-column {new}={old}" for old, new in asked.rename_columns.items()
    ]
    inverse += [f"--drop-column {name}, by column mapping" for name in asked.add_columns]
    inverse += [f"--drop-constraint {name}" for name in asked.add_constraints]
    inverse += [f"--add-constraint {name}={present.get(name)}" for name in asked.drop_constraints]
    if asked.comment is not None:
        inverse.append(f"--comment {snapshot.metadata.description or ''!r}")
    return f"the inverse: {', '.join(inverse)}" if inverse else ""
