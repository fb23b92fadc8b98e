"""A change of a table's metadata: how people type it, and what it would do to whoever uses the table.

Rule: `plan_alter` is pure. What a column, a type or a property may become, Delta decides when the host asks it; refused
here is what Delta cannot know: a column of a table that a declared stream writes, a misspelled property, rows that
violate a constraint. Nothing of what was typed as a type reaches SQL but a type of the list here.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from backend.errors import QueryError
from backend.format import cut, things
from backend.lake.model import Metadata, Snapshot
from backend.lake.table.properties import changed_properties, explain_properties, is_on
from backend.lake.table.schema import column_kinds, column_names, constraints, spelled
from backend.maintenance.model import RESTORE_BACK, ActPreview, Alter, Lift, RowsHit, TableAct
from backend.maintenance.readers import Users
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
_NO_PROPERTIES = (*OF_ENGINES, "delta.constraints.")
_UNLIKE = ('"', "\\", "`", "--", "/*")  # what Spark and DuckDB read in two ways, or a log does not keep

_PLAIN = frozenset((
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "string", "binary", "date", "timestamp",
    "timestamp_ntz",
))  # fmt: skip
_ALSO = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint", "real": "float"}
_DECIMAL = re.compile(r"decimal\((\d{1,2})(?:,(\d{1,2}))?\)")
_ARRAY = re.compile(r"array<(.+)>")
_MAP = re.compile(r"map<(decimal\(\d+(?:,\d+)?\)|\w+),(.+)>")
_LONGEST = 200  # characters: a type within types is read by recursion
_NAME = re.compile(r'\s*(?:`(?P<ticked>(?:[^`]|``)+)`|"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[^\s=`"]+))\s*')
_COMMENT = re.compile(r"(?P<type>.*?)\s+COMMENT\s+'(?P<comment>(?:[^']|'')*)'", re.IGNORECASE | re.DOTALL)
_KNOWN = f"one of {', '.join(sorted(_PLAIN))}, decimal(10,2), array<int> or map<string,int>"


# what people type ------------------------------------------------------------------------------------------------


def read_name(text: str, *, such_as: str) -> tuple[str, str]:
    """The name that the text begins with, in backticks or double quotes where it is no plain word, and what follows;
    raises `QueryError`."""
    match = _NAME.match(text)
    if match is None:
        raise QueryError(f"{text!r} begins with no name", hint=f"such as {such_as}; an odd name goes into `backticks`")
    name = (match["ticked"] or "").replace("``", "`") or (match["quoted"] or "").replace('""', '"') or match["plain"]
    return name, text[match.end() :]


def read_whole_name(text: str, *, such_as: str) -> str:
    """A name that is all of the text; raises `QueryError`."""
    name, rest = read_name(text, such_as=such_as)
    if rest:
        raise QueryError(f"{text!r} is no name", hint=f"such as {such_as}; an odd name goes into `backticks`")
    return name


def read_pair(text: str, *, such_as: str) -> tuple[str, str]:
    """A name and what stands behind its equals sign; raises `QueryError`."""
    name, rest = read_name(text, such_as=such_as)
    if not rest.startswith("=") or not rest[1:].strip():
        raise QueryError(f"{text!r} says no value for {name!r}", hint=f"such as {such_as}")
    return name, rest[1:].strip()


def read_column(text: str) -> tuple[str, str, str]:
    """ "discount decimal(10,2) COMMENT 'of the order'" as name, type and comment; raises `QueryError`."""
    name, rest = read_name(text, such_as="discount decimal(10,2)")
    match = _COMMENT.fullmatch(rest.strip())
    kind, comment = (match["type"], match["comment"].replace("''", "'")) if match else (rest, "")
    return name, read_type(kind), comment


def read_type(text: str) -> str:
    """A type as Spark's simple string; raises `QueryError` for one that is not offered here."""
    kind = re.sub(r"\s+", "", text.lower())
    read = _read_type(kind) if len(kind) <= _LONGEST else None
    if read is None:
        raise QueryError(f"{text.strip()!r} is no type that can be given here", hint=_KNOWN)
    return read


def _read_type(kind: str) -> str | None:
    kind = _ALSO.get(kind, kind)
    if kind in _PLAIN:
        return kind
    if match := _DECIMAL.fullmatch(kind):
        precision, scale = int(match[1]), int(match[2] or 0)
        return f"decimal({precision},{scale})" if 0 <= scale <= precision <= 38 and precision else None
    if match := _ARRAY.fullmatch(kind):
        inner = _read_type(match[1])
        return inner and f"array<{inner}>"
    if match := _MAP.fullmatch(kind):
        key, value = map(_read_type, match.groups())
        return f"map<{key},{value}>" if key and value else None
    return None


def checked_alter(metadata: Metadata, asked: Alter) -> Alter:
    """The change with names as the table spells them and types as Spark does; raises `QueryError` for what the table
    does not have, or nobody can mean."""
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
    for name, text in checked.add_constraints.items():  # kept as text, which every engine reads for itself
        if not re.fullmatch(r"\w+", name):
            raise QueryError(f"{name!r} is no name for a constraint", hint="letters, digits and _ alone")
        if sign := next((sign for sign in _UNLIKE if sign in text), None):
            hint = "quoted names, backslashes and comments cannot stand in it: engines read them in different ways"
            raise QueryError(f"the condition of {name} has {sign} in it", hint=hint)
        for whole in (text, f"CASE WHEN {text} THEN true ELSE false END"):  # the second takes no "a) OR (b"
            check_row_condition(whole, names)
    return checked


def _check_once(what: str, names: list[str]) -> None:
    lowered = [name.lower() for name in names]
    if twice := next((name for name in names if lowered.count(name.lower()) > 1), None):
        raise QueryError(f"{what} {twice!r} is named twice", hint="change it in one act after the other")


# what it would do ------------------------------------------------------------------------------------------------


def plan_alter(snapshot: Snapshot, asked: Alter, violating: Mapping[str, RowsHit], users: Users) -> ActPreview:
    """`asked` as `checked_alter` gives it."""
    metadata = snapshot.metadata
    now = metadata.configuration
    after = {key: value for key, value in {**now, **asked.set_properties}.items() if key not in asked.unset_properties}
    changed = changed_properties(now, after)
    effect = "; ".join([*([f"properties change: {', '.join(changed)}"] if changed else []), *_changes(metadata, asked)])
    rows = {row.key: row for row in explain_properties(replace(metadata, configuration=after))}
    refused, way_out, lifts = "", "", tuple[Lift, ...]()
    if wrong := [f"{key}: {rows[key].problem}" for key in asked.set_properties if key in rows and rows[key].problem]:
        refused, way_out = "; ".join(wrong), "correct the spelling"
    elif own := [key for key in (*asked.set_properties, *asked.unset_properties) if key.startswith(_NO_PROPERTIES)]:
        refused = f"{', '.join(own)}: engines keep it themselves"
        way_out = "add or drop the constraint instead"
    elif users.writers and (asked.rename_columns or asked.drop_columns):
        streams = ", ".join(dict.fromkeys(writer.stream for writer in users.writers))
        refused = f"{streams} writes the table, and which columns is not declared: its next start may fail"
        way_out = "change what it writes, and leave it out of host.pipelines while the column goes"
    elif hits := [name for name, hit in violating.items() if hit.rows]:
        refused = "; ".join(f"{things(violating[name].rows, 'row')} violate {name}" for name in hits)
        way_out, lifts = "repair them first", (Lift("repair", (snapshot.ref.name, "--where", "…")),)
    elif not effect:
        refused = "it is so already"
    counted = [hit.rows for hit in violating.values()]
    notes = [f"{key}: {row.meaning}" for key in asked.set_properties if (row := rows.get(key)) and row.meaning]
    notes += [f"{name}: {line}" for name, hit in violating.items() for line in (hit.unknown, *hit.samples) if line]
    return ActPreview(
        TableAct(snapshot.ref.uri, snapshot.ref.name, snapshot.version, asked),
        effect or "nothing changes",
        {
            "properties_changed": len(changed),
            "columns_changed": len(asked.add_columns) + len(_touched(asked)),
            "rows_violating": None if None in counted else sum(filter(None, counted)),
        },
        tuple(notes),
        tuple(_risks(snapshot, asked, after, users)),
        way_back=_way_back(snapshot, asked, changed_properties(after, now)),
        refused=refused,
        way_out=way_out,
        lifts=lifts,
        typed=bool(asked.drop_columns),
    )


def _touched(asked: Alter) -> tuple[str, ...]:
    """Columns that are there and change: renamed, dropped, widened."""
    return (*asked.rename_columns, *asked.drop_columns, *asked.widen_columns)


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


def checks(metadata: Metadata) -> dict[str, str]:
    """CHECK conditions by name, which has no upper case in Delta."""
    return {constraint.name.lower(): constraint.expression for constraint in constraints(metadata)}


def _risks(snapshot: Snapshot, asked: Alter, after: Mapping[str, str], users: Users) -> Iterator[str]:
    """`after`: the properties as they will be."""
    for key, value in asked.set_properties.items():
        if key.startswith(_PROTOCOL) or (key in _RAISING and value.lower() not in ("false", "classic")):
            yield f"{key} raises the table's protocol for good: older readers and writers are shut out"
    yield from users.property_losses(snapshot.metadata.configuration, after)
    protocol = snapshot.protocol
    knows_constraints = "checkConstraints" in protocol.features or 3 <= protocol.min_writer_version <= 6
    if asked.add_constraints and not knows_constraints:
        yield "a constraint raises the table's protocol for good: writers that do not know constraints are shut out"
    for key in (*asked.set_properties, *asked.unset_properties):
        if key in users.properties:
            yield f"a stream declares {key} = {users.properties[key]}: its next start puts that back"
    if is_on(after, "delta.appendOnly") and any(writer.merges for writer in users.writers):
        yield "a stream changes rows here: with delta.appendOnly it fails"
    if asked.add_constraints:
        yield from (f"{w.stream} writes the table: a row that violates the constraint stops it" for w in users.writers)
    for reader in users.readers:
        if _touched(asked):
            yield f"{reader.stream} reads the table: it stops at this change, and goes on after a reset alone"
        elif asked.add_columns:
            yield f"{reader.stream} reads the table: it stops once at the new column, and goes on when it is started"
    if asked.rename_columns or asked.drop_columns:
        yield "queries that name the column fail from now on; earlier versions keep it"


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
