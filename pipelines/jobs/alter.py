"""A table's metadata changed by Spark, statement by statement, and proven from the log.

Rule: Delta says what may be. Several statements are rehearsed on an empty table of the same protocol and metadata, so
that what it refuses is refused before anything is done. An act whose host died passes over what it did. Whatever was
typed is a quoted name or a literal of SQL, but for types, which Weir wrote itself, and conditions, which its parser has
read.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pyspark.sql import SparkSession

from backend.lake.model import Metadata, Snapshot
from backend.lake.table.schema import column_kinds
from backend.maintenance.alter import checks
from backend.maintenance.model import Alter, Proof
from pipelines.jvm.hadoop import CheckpointFiles, spark_uri
from pipelines.specs.tables import quoted


def statements(asked: Alter, metadata: Metadata, table: str, *, begun: bool = False) -> Iterator[str]:
    """What is to be done, constraints before all that no data can break; `table` as SQL names it. `begun`: columns and
    constraints that are as asked are this act's own."""
    act, present, held = f"ALTER TABLE {table}", column_kinds(metadata), checks(metadata)
    gone = {name for name in asked.drop_constraints if begun and name not in held}
    yield from (f"{act} DROP CONSTRAINT {quoted(name)}" for name in asked.drop_constraints if name not in gone)
    for name, condition in asked.add_constraints.items():
        if not (begun and name in held):
            yield f"{act} ADD CONSTRAINT {quoted(name)} CHECK (\n{condition}\n)"
    now = metadata.configuration
    yield from set_statements(table, {key: text for key, text in asked.set_properties.items() if now.get(key) != text})
    if asked.comment is not None and asked.comment != (metadata.description or ""):
        yield f"COMMENT ON TABLE {table} IS {literal(asked.comment)}"
    for name, kind in asked.add_columns.items():
        if not (begun and name in present):
            comment = asked.column_comments.get(name)
            yield f"{act} ADD COLUMNS ({quoted(name)} {kind}{f' COMMENT {literal(comment)}' if comment else ''})"
    for old, new in asked.rename_columns.items():
        if not begun or old in present:
            yield f"{act} RENAME COLUMN {quoted(old)} TO {quoted(new)}"
    yield from (f"{act} DROP COLUMN {quoted(name)}" for name in asked.drop_columns if not begun or name in present)
    for name, kind in asked.widen_columns.items():
        if present.get(name) != kind:
            yield f"{act} ALTER COLUMN {quoted(name)} TYPE {kind}"
    yield from unset_statements(table, [key for key in asked.unset_properties if key in now])


def set_statements(table: str, properties: Mapping[str, str]) -> Iterator[str]:
    if pairs := ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items()):
        yield f"ALTER TABLE {table} SET TBLPROPERTIES ({pairs})"


def unset_statements(table: str, keys: Sequence[str]) -> Iterator[str]:
    if names := ", ".join(map(literal, keys)):
        yield f"ALTER TABLE {table} UNSET TBLPROPERTIES IF EXISTS ({names})"


def rehearse(session: SparkSession, snapshot: Snapshot, made: Callable[[str], Iterable[str]], folder: str) -> None:
    """The statements that are `made` for a table, done to an empty one in `folder`, which is deleted after. Raises what
    Delta says of the first that it refuses."""
    files, uri = CheckpointFiles(session), spark_uri(folder)
    files.write(f"{uri}/_delta_log/{0:020d}.json", "\n".join(map(json.dumps, _empty_table(snapshot))))
    try:
        for statement in made(f"delta.{quoted(uri)}"):
            session.sql(statement)
    finally:
        files.remove(uri)


def _empty_table(snapshot: Snapshot) -> Iterator[dict[str, object]]:
    """The first commit of a table like this one, without a row. Source: Delta protocol, "Actions"."""
    protocol, metadata = snapshot.protocol, snapshot.metadata
    yield {"commitInfo": {"timestamp": 0, "inCommitTimestamp": 0, "operation": "CREATE TABLE"}}
    versions = {"minReaderVersion": protocol.min_reader_version, "minWriterVersion": protocol.min_writer_version}
    reader = {"readerFeatures": protocol.reader_features} if protocol.min_reader_version >= 3 else {}
    writer = {"writerFeatures": protocol.writer_features} if protocol.min_writer_version >= 7 else {}
    yield {"protocol": {**versions, **reader, **writer}}
    about: dict[str, object] = {"schemaString": metadata.schema_json, "partitionColumns": metadata.partition_columns}
    since = "delta.inCommitTimestampEnablement"  # of a later version
    kept = {key: value for key, value in metadata.configuration.items() if not key.startswith(since)}
    about |= {"configuration": kept, "format": {"provider": "parquet", "options": {}}}
    yield {"metaData": {"id": str(uuid.uuid4()), **about}}
    if "clustering" in protocol.writer_features:
        for domain, configuration in snapshot.domains.items():
            yield {"domainMetadata": {"domain": domain, "configuration": configuration, "removed": False}}


def altered_proofs(asked: Alter, metadata: Metadata) -> Iterator[Proof]:
    """What the log says now of all that was asked for."""
    now, kinds, present = metadata.configuration, column_kinds(metadata), checks(metadata)
    odd = [key for key, value in asked.set_properties.items() if now.get(key) != value]
    odd += [key for key in asked.unset_properties if key in now]
    if asked.set_properties or asked.unset_properties:
        yield _proof("the properties are set", odd)
    if asked.comment is not None:
        yield _proof("the comment is set", [] if asked.comment == (metadata.description or "") else ["the comment"])
    if asked.add_columns or asked.rename_columns or asked.drop_columns or asked.widen_columns:
        wanted = {**asked.add_columns, **asked.widen_columns}
        odd = [name for name, kind in wanted.items() if kinds.get(name) != kind]
        odd += [new for old, new in asked.rename_columns.items() if old in kinds or new not in kinds]
        yield _proof("the columns are as asked", odd + [name for name in asked.drop_columns if name in kinds])
    if asked.add_constraints or asked.drop_constraints:
        odd = [name for name, text in asked.add_constraints.items() if _bare(present.get(name, "")) != _bare(text)]
        yield _proof("the constraints are as asked", odd + [name for name in asked.drop_constraints if name in present])


def literal(value: str) -> str:
    """A literal of Spark SQL: nothing in it can end it, or be read from the host's environment."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("${", "$\\{")
    return f"'{escaped}'"


def _proof(what: str, odd: list[str]) -> Proof:
    return Proof(what, not odd, f"{', '.join(odd)}: not as asked" if odd else "the log has each as asked")


def _bare(condition: str) -> str:
    """Delta keeps a condition's words with one space between any two of them."""
    return "".join(condition.split())
