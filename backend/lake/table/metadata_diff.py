"""What changed of the table itself between two states, or by each commit: columns, constraints, partitioning,
properties, protocol and features.

Rule: pure but for `load_metadata_changes`. A field is the same field when its column-mapping id says so; without ids,
when its path does. A commit is compared with what was in force before it: where that is not in the log any more,
nothing is guessed, the change is said to be unknown. A schema that cannot be read is `TableCorruptError`; in a list of
changes it hides the columns alone.
Source: Delta protocol, "Schema Serialization Format" and "Column Mapping".
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from backend.errors import LakehouseError, TableCorruptError
from backend.lake.model import Commit, Metadata, Protocol, TableRef, VersionReader
from backend.lake.table.schema import SchemaColumn, columns, simple_type

CLUSTERED_BY = "clustered by"
Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One trait of a field that differs. `what` is "type", "nullability" or "comment"."""

    names: Names
    what: str
    before: str | None
    after: str | None

    @property
    def path(self) -> str:
        return ".".join(self.names)


@dataclass(frozen=True, slots=True)
class SchemaDiff:
    """`renamed` holds (old path, new path), known by column-mapping id; without ids a rename is a drop and an add.
    Elements of arrays and maps are fields too."""

    added: tuple[SchemaColumn, ...] = ()
    dropped: tuple[SchemaColumn, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    changed: tuple[FieldChange, ...] = ()
    partitioning: tuple[tuple[str, ...], tuple[str, ...]] | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.dropped or self.renamed or self.changed or self.partitioning)


@dataclass(frozen=True, slots=True)
class PropertyChange:
    """One table property, protocol version, feature or description that differs; None: not set."""

    key: str
    before: str | None
    after: str | None


def diff_schemas(before: Metadata, after: Metadata) -> SchemaDiff:
    """What changed from one version's columns to another's; nested fields by dotted path."""
    old, new = columns(before, with_elements=True), columns(after, with_elements=True)
    pairs = _paired(old, new)
    kept_old, kept_new = {a.names for a, _ in pairs}, {b.names for _, b in pairs}
    partitioning = (before.partition_columns, after.partition_columns)
    return SchemaDiff(
        added=tuple(field for field in new if field.names not in kept_new),
        dropped=tuple(field for field in old if field.names not in kept_old),
        renamed=tuple((a.path, b.path) for a, b in pairs if a.names[-1] != b.names[-1]),  # not what is in it
        changed=tuple(change for a, b in pairs for change in _changes(a, b)),
        partitioning=partitioning if before.partition_columns != after.partition_columns else None,
    )


def diff_properties(
    before: tuple[Metadata, Protocol], after: tuple[Metadata, Protocol], *, clustered: tuple[Names, Names] = ((), ())
) -> tuple[PropertyChange, ...]:
    """Table properties, name, description, protocol versions and features, and the columns that the table is clustered
    by, that differ, sorted by key."""
    old, new = (_properties(*side, by) for side, by in zip((before, after), clustered, strict=True))
    return tuple(
        PropertyChange(key, old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    )


def _properties(metadata: Metadata, protocol: Protocol, clustered: Names) -> dict[str, str]:
    properties = dict(metadata.configuration)
    properties |= {CLUSTERED_BY: ", ".join(clustered)} if clustered else {}
    properties |= {f"feature: {name}": "supported" for name in protocol.features}
    properties["protocol: minReaderVersion"] = str(protocol.min_reader_version)
    properties["protocol: minWriterVersion"] = str(protocol.min_writer_version)
    properties |= {"table name": metadata.name} if metadata.name else {}
    properties |= {"table description": metadata.description} if metadata.description else {}
    return properties


def _paired(old: tuple[SchemaColumn, ...], new: tuple[SchemaColumn, ...]) -> list[tuple[SchemaColumn, SchemaColumn]]:
    """The fields both versions have: by id where both carry one, else by path without regard to case."""
    by_id = {field.field_id: field for field in old if field.field_id is not None}
    by_path = {_without_case(field.names): field for field in old} | {field.names: field for field in old}
    exact = {field.names for field in new}
    pairs = []
    for field in new:
        match = by_id.get(field.field_id) if field.field_id is not None else None
        candidate = by_path.get(field.names) or by_path.get(_without_case(field.names))
        if candidate and candidate.names != field.names and candidate.names in exact:
            candidate = None  # it is another field, whose name differs in case alone
        if match is None and candidate and (candidate.field_id is None or field.field_id is None):
            match = candidate
        if match is not None:
            pairs.append((match, field))
    return pairs


def _changes(a: SchemaColumn, b: SchemaColumn) -> Iterator[FieldChange]:
    if a.kind != b.kind:  # what is inside shows as fields of its own, so that a change is told once
        yield FieldChange(b.names, "type", a.kind, b.kind)
    if a.nullable != b.nullable:
        words = ("nullable" if field.nullable else "not null" for field in (a, b))
        yield FieldChange(b.names, "nullability", *words)
    if a.comment != b.comment:
        yield FieldChange(b.names, "comment", a.comment, b.comment)


def _without_case(names: Names) -> Names:
    return tuple(name.lower() for name in names)


# commit by commit -------------------------------------------------------------------------------------------------

_CONSTRAINT = "delta.constraints."
_NUMBERS = (("reader", "min_reader_version"), ("writer", "min_writer_version"))


class ChangeKind(StrEnum):
    TABLE = "table"  # created, or made anew under another id
    COLUMN = "column"
    PROPERTY = "property"
    CONSTRAINT = "constraint"
    PARTITIONING = "partitioning"
    PROTOCOL = "protocol"
    FEATURE = "feature"
    DESCRIPTION = "description"
    UNKNOWN = "unknown"  # something was set, what it was before cannot be known


@dataclass(frozen=True, slots=True)
class TableChange:
    """One change. `before` None: added; `after` None: removed. `trait` says which side of a column ("type", "name")."""

    kind: ChangeKind
    subject: str
    before: str | None = None
    after: str | None = None
    trait: str = ""


@dataclass(frozen=True, slots=True)
class InForce:
    """What holds for a table after a commit; None where it is not known."""

    metadata: Metadata | None = None
    protocol: Protocol | None = None

    def after(self, commit: Commit) -> "InForce":
        return InForce(commit.metadata or self.metadata, commit.protocol or self.protocol)


def needs_before(commits: Sequence[Commit]) -> int | None:
    """The version whose state `metadata_changes` needs, for a run of commits; None when it needs none."""
    setting = [c.version for c in commits if c.metadata is not None or c.protocol is not None]
    return min(setting) - 1 if setting and min(setting) > 0 else None


def metadata_changes(commits: Sequence[Commit], before: InForce | None) -> dict[int, tuple[TableChange, ...]]:
    """The changes of an unbroken run of commits, by version; those that changed nothing are not in it.

    `before` is what held before the run's first commit that sets anything, None where that cannot be known.
    """
    state, changes_by_version = before or InForce(), {}
    for commit in sorted(commits, key=lambda c: c.version):
        if commit.metadata is None and commit.protocol is None:
            continue
        changes = tuple(_changes_of_commit(commit, state))
        if changes:
            changes_by_version[commit.version] = changes
        state = state.after(commit)
    return changes_by_version


def compare(before: InForce, after: InForce) -> tuple[TableChange, ...]:
    """Everything that differs between two states of which both are known."""
    return (
        *_changes_of_metadata(before.metadata, after.metadata),
        *_changes_of_protocol(before.protocol, after.protocol),
    )


def _changes_of_commit(commit: Commit, state: InForce) -> Iterator[TableChange]:
    metadata, protocol = commit.metadata, commit.protocol
    if commit.version == 0 and metadata is not None:
        yield TableChange(ChangeKind.TABLE, metadata.id, None, _birth(metadata))
        return
    if metadata is not None and state.metadata is None:
        yield TableChange(ChangeKind.UNKNOWN, "schema and properties")
    elif metadata is not None:
        yield from _changes_of_metadata(state.metadata, metadata)
    if protocol is not None and state.protocol is None:
        yield TableChange(ChangeKind.UNKNOWN, "protocol")
    elif protocol is not None:
        yield from _changes_of_protocol(state.protocol, protocol)


def _birth(metadata: Metadata) -> str:
    """ "4 columns, 2 properties"."""
    top = sum(column.depth == 0 for column in _columns(metadata).values())
    parts = [f"{top} column{'' if top == 1 else 's'}"]
    if metadata.partition_columns:
        parts.append(f"partitioned by {', '.join(metadata.partition_columns)}")
    number = len(metadata.configuration)
    if number:
        parts.append(f"{number} propert{'y' if number == 1 else 'ies'}")
    return ", ".join(parts)


# metadata --------------------------------------------------------------------------------------------------------


def _changes_of_metadata(before: Metadata | None, after: Metadata | None) -> Iterator[TableChange]:
    if before is None or after is None:
        return
    if before.id != after.id:
        yield TableChange(ChangeKind.TABLE, after.id, before.id, after.id)
    yield from _column_changes(before, after)
    if before.partition_columns != after.partition_columns:
        keys = [", ".join(m.partition_columns) or None for m in (before, after)]
        yield TableChange(ChangeKind.PARTITIONING, "partitioned by", keys[0], keys[1])
    old, new = before.configuration, after.configuration
    for key in (key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)):
        kind = ChangeKind.CONSTRAINT if key.startswith(_CONSTRAINT) else ChangeKind.PROPERTY
        yield TableChange(kind, key.removeprefix(_CONSTRAINT), old.get(key), new.get(key))
    for subject, was, now in (
        ("table name", before.name, after.name),
        ("table description", before.description, after.description),
    ):
        if was != now:
            yield TableChange(ChangeKind.DESCRIPTION, subject, was, now)


def _column_changes(before: Metadata, after: Metadata) -> Iterator[TableChange]:
    if before.schema_json == after.schema_json:
        return
    try:
        difference = diff_schemas(before, after)
    except TableCorruptError:
        yield TableChange(ChangeKind.UNKNOWN, "columns")
        return
    old, new = _columns(before), _columns(after)
    renamed = dict(difference.renamed)
    for column in _outermost(difference.added):
        yield TableChange(ChangeKind.COLUMN, column.path, None, column.type)
    for column in _outermost(difference.dropped):
        yield TableChange(ChangeKind.COLUMN, column.path, column.type, None)
    for was, path in difference.renamed:
        yield TableChange(ChangeKind.COLUMN, path, was, path, "name")
    for change in difference.changed:
        before_text, after_text = (
            simple_type(text) if change.what == "type" else text for text in (change.before, change.after)
        )
        yield TableChange(ChangeKind.COLUMN, change.path, before_text, after_text, change.what)
    former = {path: was for was, path in renamed.items()}
    yield from _trait_changes(old, new, former)
    yield from _moves(old, new, former)


def _moves(
    old: Mapping[str, SchemaColumn], new: Mapping[str, SchemaColumn], former: Mapping[str, str]
) -> Iterator[TableChange]:
    """The columns, of those that both have, that stand elsewhere among their siblings."""
    siblings: dict[tuple[str, ...], list[str]] = {}
    for path, column in new.items():
        if former.get(path, path) in old:
            siblings.setdefault(column.names[:-1], []).append(path)
    order = {path: place for place, path in enumerate(old)}
    for after in siblings.values():
        before = sorted(after, key=lambda path: order[former.get(path, path)])
        blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
        unmoved = {path for block in blocks for path in after[block.b : block.b + block.size]}
        for path in after:
            if path not in unmoved:
                yield TableChange(ChangeKind.COLUMN, path, _place(before, path), _place(after, path), "position")


def _place(paths: Sequence[str], path: str) -> str:
    at = paths.index(path)
    return f"after {paths[at - 1]}" if at else "first"


def _trait_changes(
    old: Mapping[str, SchemaColumn], new: Mapping[str, SchemaColumn], former: Mapping[str, str]
) -> Iterator[TableChange]:
    """Defaults and generation expressions of the columns that both have."""
    for path, column in new.items():
        was = old.get(former.get(path, path))
        if was is None:
            continue
        for trait, a, b in (
            ("default", was.default, column.default),
            ("generated as", was.generated_as, column.generated_as),
        ):
            if a != b:
                yield TableChange(ChangeKind.COLUMN, path, a, b, trait)


def _outermost(fields: Sequence[SchemaColumn]) -> list[SchemaColumn]:
    """Without what lies inside of another: an added struct is one change."""
    names = {field.names for field in fields}
    return [field for field in fields if not any(field.names[:depth] in names for depth in range(1, len(field.names)))]


def _columns(metadata: Metadata) -> dict[str, SchemaColumn]:
    try:
        return {column.path: column for column in columns(metadata)}
    except TableCorruptError:
        return {}


# protocol --------------------------------------------------------------------------------------------------------


def _changes_of_protocol(before: Protocol | None, after: Protocol | None) -> Iterator[TableChange]:
    if before is None or after is None:
        return
    for word, name in _NUMBERS:
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield TableChange(ChangeKind.PROTOCOL, word, str(old), str(new))
    for name in sorted(set(before.features) ^ set(after.features)):
        gone = name in before.features
        yield TableChange(ChangeKind.FEATURE, name, "supported" if gone else None, None if gone else "supported")


# reading ---------------------------------------------------------------------------------------------------------


def load_metadata_changes(
    lake: VersionReader, ref: TableRef, commits: Sequence[Commit]
) -> dict[int, tuple[TableChange, ...]]:
    """`metadata_changes` of a run; a state before it that is gone or cannot be read makes its change unknown."""
    before = None
    if (version := needs_before(commits)) is not None:
        with suppress(LakehouseError):
            snapshot = lake.snapshot(ref, version)
            before = InForce(snapshot.metadata, snapshot.protocol)
    return metadata_changes(commits, before)
