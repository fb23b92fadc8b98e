"""A table's metadata changed by Spark, statement by statement, and proven from the log.

Rule: what is so already is passed over, so that an act whose host died is carried on. Whatever was typed is a quoted
name or a literal of SQL, but for types, which Weir wrote itself, and conditions, which its parser has read.
"""

from collections.abc import Iterator, Mapping, Sequence

from backend.lake.model import Metadata
from backend.maintenance.alter import checks, column_kinds
from backend.maintenance.model import Alter, Proof
from pipelines.specs.tables import quoted


def statements(asked: Alter, metadata: Metadata, table: str) -> Iterator[str]:
    """What is still to be done, constraints before all that no data can break; `table` as SQL names it."""
    act, present = f"ALTER TABLE {table}", column_kinds(metadata)
    held = checks(metadata)
    yield from (f"{act} DROP CONSTRAINT {quoted(name)}" for name in asked.drop_constraints if name in held)
    for name in missing_constraints(asked, metadata):
        yield f"{act} ADD CONSTRAINT {quoted(name)} CHECK (\n{asked.add_constraints[name]}\n)"
    now = metadata.configuration
    yield from set_statements(table, {key: text for key, text in asked.set_properties.items() if now.get(key) != text})
    if asked.comment is not None and asked.comment != (metadata.description or ""):
        yield f"COMMENT ON TABLE {table} IS {literal(asked.comment)}"
    for name, kind in asked.add_columns.items():
        if name not in present:
            comment = asked.column_comments.get(name)
            yield f"{act} ADD COLUMNS ({quoted(name)} {kind}{f' COMMENT {literal(comment)}' if comment else ''})"
    for old, new in asked.rename_columns.items():
        if old in present:
            yield f"{act} RENAME COLUMN {quoted(old)} TO {quoted(new)}"
    yield from (f"{act} DROP COLUMN {quoted(name)}" for name in asked.drop_columns if name in present)
    for name, kind in asked.widen_columns.items():
        if present.get(name) != kind:
            yield f"{act} ALTER COLUMN {quoted(name)} TYPE {kind}"
    yield from unset_statements(table, [key for key in asked.unset_properties if key in now])


def missing_constraints(asked: Alter, metadata: Metadata) -> list[str]:
    present = checks(metadata)
    return [name for name in asked.add_constraints if name not in present]


def set_statements(table: str, properties: Mapping[str, str]) -> Iterator[str]:
    if pairs := ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items()):
        yield f"ALTER TABLE {table} SET TBLPROPERTIES ({pairs})"


def unset_statements(table: str, keys: Sequence[str]) -> Iterator[str]:
    if names := ", ".join(map(literal, keys)):
        yield f"ALTER TABLE {table} UNSET TBLPROPERTIES IF EXISTS ({names})"


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
