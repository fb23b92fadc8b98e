"""The audit trail: who asked for what, as what role, why, when, and what came of it, denials too; and who sees it.

Rule: an act is admitted in the transaction that makes it visible, before it changes anything: one that cannot be
written down does not happen. Each row has a hash of itself and of the row before, one chain for all processes; its form
is a promise (docs/security.md).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.access import NEEDS, OF_STREAMS, Access, Actor, Role, check, permission
from backend.format import cut as cut_text
from backend.store.engine import TRAIL
from backend.store.schema import EPOCH, Row, audit, readable, row_of
from backend.stream_model.stream import OF_QUERIES, OF_VIEWERS, AuditEntry

FORMAT = 1
CHAINED = [field.name for field in fields(AuditEntry)][1:-1]  # after the time
CUT, HIDDEN = "cut trail", "(its author's alone)"
_NO_ACTS = (*OF_QUERIES, *OF_VIEWERS, "look as", "export audit", CUT)
EVERY: Mapping[str, object] = {}
_CUT_TO = re.compile(r"rows up to ([0-9]+), hash ([0-9a-f]{64})")
_LOCK = 0x57454953  # beside that of the schema
_PIECE = 10_000  # rows that are read at once
_MOST_DENIED = 500  # characters of what a denied person sent


def admit(connection: Connection, access: Access, *, now: datetime, outcome: str = "") -> None:
    """Checks the act and writes it down, also where it is denied; `outcome` is what comes of it. Raises
    `StreamRefusedError`."""
    allowed, name = permission(access.actor, access.operation, access.resource, owner=access.owner), access.actor.name
    parameters = ", ".join(f"{key}: {value}" for key, value in access.parameters.items())
    texts = access.resource, access.reason.strip(), "; ".join(filter(None, [outcome, parameters]))
    entry = AuditEntry(now, name, access.operation, *texts, allowed.role or "", allowed.by)
    if not allowed.allowed:
        told = (_harmless(access.resource), _harmless(access.reason), _harmless(texts[2]))
        connection.info[TRAIL][1].append(AuditEntry(now, name, access.operation, *told, "", allowed.by, "denied"))
    check(access)
    note(connection, entry)


def note(connection: Connection, entry: AuditEntry) -> None:
    """Writes down what a host made of an act, or what was done and changed nothing: a query, a login, a denial."""
    connection.info[TRAIL][0].append(entry)


def note_of_viewer(connection: Connection, entry: AuditEntry) -> None:
    """Writes down a login, a logout, or what was refused before anything was done: of a front end."""
    if entry.action not in OF_VIEWERS:
        raise ValueError(entry.action)
    note(connection, replace(entry, result="denied") if entry.action.endswith("refused") else entry)


def _harmless(text: str) -> str:
    """What every database takes: nobody keeps a denial out of the trail by what they send."""
    return cut_text("".join(sign if sign.isprintable() else "�" for sign in text), _MOST_DENIED)


# the chain -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TrailHead:
    """The number and the hash of the newest row."""

    number: int
    hash: str


NO_ROWS = TrailHead(0, "0" * 64)


@dataclass(frozen=True, slots=True)
class TrailCheck:
    """What holds from the row `first` to the `head`; the `problem` of the row after that."""

    first: int
    head: TrailHead
    problem: str = ""


def following(before: TrailHead, row: Row) -> TrailHead:
    """What the row after `before` has as number and hash."""
    number, at = before.number + 1, row["at"].astimezone(UTC).isoformat(timespec="microseconds")
    line = [FORMAT, before.hash, number, at, *(row[name] for name in CHAINED)]
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"), default=str)
    return TrailHead(number, sha256(text.encode()).hexdigest())


def append(connection: Connection, entries: Sequence[AuditEntry]) -> None:
    """For the end of a transaction: others that write to the trail wait until it is over."""
    if entries:
        _lock(connection)
        newest, rows = head(connection), list[dict[str, Any]]()
        for row in map(row_of, entries):
            newest = following(newest, row)
            rows.append(row | {"id": newest.number, "hash": newest.hash})
        connection.execute(sa.insert(audit), rows)


def head(connection: Connection) -> TrailHead:
    row = connection.execute(sa.select(audit.c.id, audit.c.hash).order_by(audit.c.id.desc()).limit(1)).first()
    return TrailHead(*row) if row else NO_ROWS


def _lock(connection: Connection) -> None:
    if connection.dialect.name != "sqlite":  # which lets one transaction write at a time
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))


def verify(connection: Connection, *, known: str = "") -> TrailCheck:
    """Reads the whole trail. `known`: the hash that its head once had."""
    last_cut = sa.select(audit.c.detail).where(audit.c.action == CUT).order_by(audit.c.id.desc()).limit(1)
    at_cut = _CUT_TO.fullmatch(connection.execute(last_cut).scalar() or "")
    newest = TrailHead(int(at_cut[1]), at_cut[2]) if at_cut else NO_ROWS
    first, is_known, query = newest.number + 1, known in ("", newest.hash), sa.select(audit).order_by(audit.c.id)
    if connection.execute(query.where(audit.c.id < first)).first():
        return TrailCheck(first, newest, f"row {first - 1} is there, which was cut")
    while rows := connection.execute(query.where(audit.c.id > newest.number).limit(_PIECE)).mappings().all():
        for row in rows:
            after = following(newest, row)
            if row["id"] != after.number:
                return TrailCheck(first, newest, f"rows {after.number} to {row['id'] - 1} were taken out")
            if row["hash"] != after.hash:
                problem = f"row {after.number} was changed or put there, or the one before it was changed"
                return TrailCheck(first, newest, problem)
            newest, is_known = after, is_known or after.hash == known
    problem = "" if is_known else "no row has the given hash: the newest were taken out, or all were written anew"
    return TrailCheck(first, newest, problem)


def cut(connection: Connection, *, before: datetime, now: datetime) -> int:
    """Deletes the rows from before, once a day; how many. The trail says which was the last, and its hash."""
    _lock(connection)
    oldest = connection.execute(sa.select(audit).order_by(audit.c.id).limit(1)).first()
    if oldest is None or oldest.at > before - timedelta(days=1):
        return 0
    kept = connection.execute(sa.select(sa.func.min(audit.c.id)).where(audit.c.at >= before)).scalar()
    is_older = audit.c.id < (kept or head(connection).number)
    last = connection.execute(sa.select(audit).where(is_older).order_by(audit.c.id.desc()).limit(1)).first()
    if last is None:
        return 0
    detail = f"rows up to {last.id}, hash {last.hash}"
    note(connection, AuditEntry(now, "host", CUT, "audit", "store.audit_retention_days", detail))
    return int(connection.execute(sa.delete(audit).where(is_older)).rowcount)


# reading it ----------------------------------------------------------------------------------------------------------


def entries(
    connection: Connection, where: Mapping[str, object] = EVERY, *, since: datetime = EPOCH, on: str = "*",
    limit: int = 100, subject: str | None = None, seen_by: Actor | None = None, acts_only: bool = False,
) -> list[AuditEntry]:  # fmt: skip
    """Newest first, as a person sees them; None: nobody is asking. `where`: values of fields, empty for any; `on`: a
    pattern of tables or streams. `acts_only`: what was done to tables and streams, no query, login or denial."""
    query = sa.select(audit).where(
        audit.c.at >= since, *(audit.c[name] == value for name, value in where.items() if value not in ("", None))
    )
    query = query.order_by(audit.c.id.desc()).limit(min(max(limit, 100), _PIECE))
    if acts_only:
        query = query.where(audit.c.action.not_in(_NO_ACTS), audit.c.result != "denied")
    if subject is not None:
        query = query.where(audit.c.subject == subject)
    found, rows = list[AuditEntry](), connection.execute(query).mappings().all()
    while rows and len(found) < limit:
        for entry in readable(AuditEntry, "audit", rows):
            if any(fnmatchcase(name, on) for name in entry.subject.split(", ")) and (seen := shown_to(seen_by, entry)):
                found.append(seen)
        rows = connection.execute(query.where(audit.c.id < rows[-1]["id"])).mappings().all()
    return sorted(found[:limit], key=lambda entry: entry.at, reverse=True)


def shown_to(actor: Actor | None, entry: AuditEntry) -> AuditEntry | None:
    """One's own, and what is about tables and streams that one has a role for. The text of a query is its author's and
    admins' alone, and so are logins and the like."""
    if actor is None or entry.actor == (actor.looks_as or actor.name):
        return entry
    kinds = {entry.action, entry.action.removeprefix("cancel "), f"{entry.action.rpartition(' ')[0]} job"}
    of_tables, of_stream = not kinds.isdisjoint(NEEDS), not kinds.isdisjoint(OF_STREAMS)
    roles = {actor.role_for(None)}
    if of_tables and not entry.subject.endswith("…"):  # cut: it does not say of which
        roles = {actor.role_for(name, of_stream=of_stream) for name in entry.subject.split(", ")}
    if roles == {Role.ADMIN}:
        return entry
    if None in roles or not of_tables:
        return None
    return replace(entry, detail=HIDDEN) if entry.action in OF_QUERIES else entry
