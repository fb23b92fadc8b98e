"""The audit trail: one chain for all processes, what breaks it is named, denials stay, and who sees what of it."""

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from backend.access import Access, Actor, Grant, Role
from backend.errors import StoreError, StreamRefusedError
from backend.jobs.model import JobEnd, JobKind, JobState
from backend.lake.model import TableRef
from backend.store.audit import CUT, HIDDEN, TrailHead
from backend.store.leases import job_resource
from backend.store.store import ControlStore
from backend.stream_model.stream import AuditEntry
from tests.worlds.store.statements import past_the_store
from tests.worlds.store.values import DECLARATION, JOB, NOW

ANN, BEN = Actor("ann"), Actor("ben")
GENESIS = "0" * 64
TABLE = TableRef("/lake/silver/orders", "silver/orders", "/lake", "silver")
TEXT = "1 row; silver/orders v3; SELECT iban FROM silver.orders"


def say(store: ControlStore, *entries: AuditEntry) -> None:
    for entry in entries:
        store.note(entry)


def entry(actor: str = "ann", action: str = "pin", subject: str = "silver/orders", **more: object) -> AuditEntry:
    return replace(AuditEntry(NOW, actor, action, subject, "because", "v3"), **more)


@pytest.fixture
def kept(store: ControlStore) -> ControlStore:
    """A trail of six rows."""
    say(store, *(entry(reason=f"why {number}") for number in range(1, 7)))
    return store


# the chain: its form is a promise (docs/security.md), so it is computed here once more --------------------------------


def told(connection: Connection) -> list[dict[str, object]]:
    return [dict(row) for row in connection.execute(sa.text("SELECT * FROM audit ORDER BY id")).mappings()]


def at_text(at: object) -> str:
    moment = datetime.fromisoformat(str(at))
    return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC).isoformat(timespec="microseconds")


def chain(rows: list[dict[str, object]]) -> list[str]:
    hashes, before = [], GENESIS
    for row in rows:
        line = [1, before, row["id"], at_text(row["at"])]
        line += [row[name] for name in ("actor", "action", "subject", "reason", "detail")]
        line += [row[name] for name in ("role", "granted_by", "result", "version_before", "version_after")]
        before = sha256(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()
        hashes.append(before)
    return hashes


def test_the_form_of_a_row_is_what_the_documentation_promises(store: ControlStore, store_url: str) -> None:
    say(store, entry(), entry("josé", detail='a "word"\n\u2028\x7f \U0001f600', version_before=3, version_after=4))
    with past_the_store(store_url) as connection:
        rows = told(connection)
    assert [row["hash"] for row in rows] == chain(rows)
    assert rows[0]["hash"] == "30b2a4005666790cfe6b5f7ea7fae2320c7361f23f0340f9271013dd8f3190ae"  # once said, it stays
    assert store.audit_head() == TrailHead(2, str(rows[-1]["hash"]))


def test_an_empty_trail_holds(store: ControlStore) -> None:
    assert store.verify_audit().problem == "" and store.audit_head() == TrailHead(0, GENESIS)
    assert "no row has the given hash" in store.verify_audit(known="f" * 64).problem


WRITERS = """
import sys
from datetime import UTC, datetime
from backend.access import Actor
from backend.store.store import ControlStore
from backend.stream_model.stream import AuditEntry
store = ControlStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for number in range(25):
    store.note(AuditEntry(datetime.now(UTC), sys.argv[2], "pin", "t", f"why {number}"))
"""


def test_several_processes_write_one_chain(store: ControlStore, store_url: str) -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITERS, store_url, f"p{number}"], **pipes, text=True)
        for number in range(4)
    ]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    ends = [(writer.communicate(timeout=60)[1], writer.returncode) for writer in writers]
    assert [code for _, code in ends] == [0] * 4, ends
    checked = store.verify_audit()
    assert (checked.problem, checked.head.number) == ("", 100)
    assert {each.actor for each in store.audit_entries(limit=100)} == {"p0", "p1", "p2", "p3"}


def test_acts_that_lock_each_others_rows_do_not_wait_for_each_other_in_a_circle(store: ControlStore) -> None:
    """An incident pins after it is written down; a pin locks before. The trail's own lock comes last."""
    from backend.store.incidents import IncidentTable

    def work(number: int) -> None:
        ref = TableRef(f"/lake/{number % 4}", f"t{number % 4}", "/lake")
        if number % 2:
            store.pins.add(ref, number, actor=ANN, reason="x", now=NOW)
        else:
            hurt = IncidentTable(ref.uri, ref.name, None, number, NOW)
            store.incidents.act("open incident", "x", title="t", table=hurt, actor=ANN, now=NOW)

    with ThreadPoolExecutor(8) as people:
        list(people.map(work, range(40)))
    checked = store.verify_audit()
    assert (checked.problem, checked.head.number) == ("", 20 + 2 * 20)


# what breaks it -------------------------------------------------------------------------------------------------------

CHANGE = "UPDATE audit SET {} WHERE id = 3"
OTHER = {"role": "'admin'", "granted_by": "'x'", "version_before": "7", "version_after": "7"}
COLUMNS = [field.name for field in fields(AuditEntry) if field.name not in ("id", "at")]


def rechained(connection: Connection, *, first: int) -> None:
    """Whoever can write there knows how to compute hashes."""
    rows = told(connection)
    for row, now in zip(rows, chain(rows), strict=True):
        if row["id"] >= first:
            connection.execute(sa.text("UPDATE audit SET hash = :now WHERE id = :id"), {"now": now, "id": row["id"]})


def renumbered(connection: Connection) -> None:
    connection.execute(sa.text("DELETE FROM audit WHERE id = 3"))
    for number in (4, 5, 6):
        connection.execute(sa.text(f"UPDATE audit SET id = {number - 1} WHERE id = {number}"))


def put_between(connection: Connection) -> None:
    for number in (6, 5, 4, 3):
        connection.execute(sa.text(f"UPDATE audit SET id = {number + 1} WHERE id = {number}"))
    copied = ", ".join([*COLUMNS, "at", "hash"])
    connection.execute(sa.text(f"INSERT INTO audit (id, {copied}) SELECT 3, {copied} FROM audit WHERE id = 2"))


def swapped(connection: Connection) -> None:
    for was, now in ((3, 99), (4, 3), (99, 4)):
        connection.execute(sa.text(f"UPDATE audit SET id = {now} WHERE id = {was}"))


def one_rehashed(connection: Connection) -> None:
    connection.execute(sa.text(CHANGE.format("reason = 'another'")))
    rows = told(connection)
    now = chain(rows)[2]
    connection.execute(sa.text("UPDATE audit SET hash = :now WHERE id = 3"), {"now": now})


def forged_cut(connection: Connection) -> None:
    """Old rows go, and a row says they were cut; it cannot say so within the chain without being in it."""
    connection.execute(sa.text("DELETE FROM audit WHERE id < 3"))
    change = "UPDATE audit SET action = 'cut trail', detail = :detail WHERE id = 6"
    connection.execute(sa.text(change), {"detail": f"rows up to 2, hash {'f' * 64}"})


def execute(statement: str) -> Callable[[Connection], object]:
    return lambda connection: connection.execute(sa.text(statement))


TAMPERED: dict[str, tuple[Callable[[Connection], object], str]] = {
    **{
        f"another {name}": (execute(CHANGE.format(f"{name} = {OTHER.get(name, chr(39) * 2)}")), "row 3 was changed")
        for name in COLUMNS
    },
    "another time": (execute(CHANGE.format("at = '2026-03-01 12:00:00.123457+00:00'")), "row 3 was changed"),
    "another hash": (execute(CHANGE.format("hash = 'f'")), "row 3 was changed"),
    "its hash too": (one_rehashed, "row 4 was changed or put there, or the one before it"),
    "one taken out": (execute("DELETE FROM audit WHERE id = 3"), "rows 3 to 3 were taken out"),
    "several taken out": (execute("DELETE FROM audit WHERE id IN (3, 4)"), "rows 3 to 4 were taken out"),
    "the first taken out": (execute("DELETE FROM audit WHERE id < 3"), "rows 1 to 2 were taken out"),
    "one taken out, the others moved up": (renumbered, "row 3 was changed or put there"),
    "put between": (put_between, "row 3 was changed or put there"),
    "swapped": (swapped, "row 3 was changed or put there"),
    "a forged cut": (forged_cut, "row 3 was changed or put there"),
    "a negative number": (execute("UPDATE audit SET id = -1 WHERE id = 3"), "row 0 is there, which was cut"),
}  # fmt: skip


@pytest.mark.parametrize("how", TAMPERED)
def test_the_first_row_that_is_not_as_it_was_written_is_named(kept: ControlStore, store_url: str, how: str) -> None:
    assert kept.verify_audit().problem == ""
    change, problem = TAMPERED[how]
    with past_the_store(store_url) as connection:
        if store_url.startswith("sqlite") and how == "another time":
            change = execute(CHANGE.format("at = '2026-03-01 12:00:00.123457'"))
        change(connection)
    assert problem in kept.verify_audit().problem


def test_rows_of_foreign_types_are_named_too(kept: ControlStore, store_url: str) -> None:
    if not store_url.startswith("sqlite"):
        pytest.skip("PostgreSQL refuses them itself")
    with past_the_store(store_url) as connection:
        connection.execute(sa.text("UPDATE audit SET reason = x'00ff' WHERE id = 4"))
    assert "row 4 was changed" in kept.verify_audit().problem


@pytest.mark.parametrize("how", ["the newest gone", "all anew"])
def test_who_holds_the_heads_hash_sees_what_is_written_anew(kept: ControlStore, store_url: str, how: str) -> None:
    held = kept.audit_head().hash
    say(kept, entry(reason="why 7"))
    assert kept.verify_audit(known=held).problem == "", "it grew since"
    with past_the_store(store_url) as connection:
        if how == "the newest gone":
            connection.execute(sa.text("DELETE FROM audit WHERE id > 4"))
        else:
            connection.execute(sa.text(CHANGE.format("actor = 'ben'")))
            rechained(connection, first=3)
    assert kept.verify_audit().problem == "", "nobody can tell without it"
    assert "no row has the given hash" in kept.verify_audit(known=held).problem


FORMER = ("at", "actor", "action", "subject", "reason", "detail")


def test_a_former_weir_that_still_runs_writes_no_row_without_a_hash(store_url: str, store: ControlStore) -> None:
    with past_the_store(store_url) as connection, pytest.raises(sa.exc.IntegrityError):
        connection.execute(
            sa.text(f"INSERT INTO audit ({', '.join(FORMER)}) VALUES (:at, 'a', 'pin', 't', '', '')"),
            {"at": NOW.replace(tzinfo=None) if store_url.startswith("sqlite") else NOW},
        )  # fmt: skip
    assert store.verify_audit().problem == ""


# the old end ----------------------------------------------------------------------------------------------------------


def old(store: ControlStore, *days: int) -> None:
    say(store, *(entry(at=NOW - timedelta(days=each), reason=f"{each} days") for each in days))


def test_the_old_end_is_cut_and_the_rest_can_still_be_checked(store: ControlStore) -> None:
    old(store, 200, 150, 120, 50, 1)
    head = store.audit_head().hash
    before = NOW - timedelta(days=90)
    assert store.cut_audit(before=before, now=NOW) == 3
    newest, *_ = rest = store.audit_entries()
    assert [each.reason for each in rest] == ["store.audit_retention_days", "1 days", "50 days"]
    assert (newest.actor, newest.action) == ("host", CUT) and newest.detail.startswith("rows up to 3, hash ")
    checked = store.verify_audit(known=head)
    assert (checked.problem, checked.first, checked.head.number) == ("", 4, 6)
    assert store.cut_audit(before=before, now=NOW) == 0, "there is nothing more, and no row says so"
    later = NOW + timedelta(days=60)
    assert store.cut_audit(before=later - timedelta(days=90), now=later) == 1
    assert store.verify_audit(known=head).problem == "" and store.verify_audit().first == 5


def test_one_old_row_stays_where_it_is_the_newest(store: ControlStore) -> None:
    old(store, 200, 190)
    assert store.cut_audit(before=NOW, now=NOW) == 1 and store.verify_audit().problem == ""
    assert store.cut_audit(before=NOW, now=NOW) == 1 and store.audit_entries()[0].action == CUT


def test_it_is_cut_once_a_day_alone(store: ControlStore) -> None:
    old(store, 90, 1)
    assert store.cut_audit(before=NOW - timedelta(days=89, hours=12), now=NOW) == 0
    assert store.cut_audit(before=NOW - timedelta(days=89), now=NOW) == 1


@pytest.mark.parametrize("how", ["the row of the cut", "what was kept", "what was cut comes back"])
def test_a_cut_hides_nothing(store: ControlStore, store_url: str, how: str) -> None:
    old(store, 200, 150, 50, 1)
    store.cut_audit(before=NOW - timedelta(days=90), now=NOW)
    statement, problem = {
        "the row of the cut": ("DELETE FROM audit WHERE id = 5", "rows 1 to 2 were taken out"),
        "what was kept": ("DELETE FROM audit WHERE id = 3", "rows 3 to 3 were taken out"),
        "what was cut comes back": ("UPDATE audit SET id = 2 WHERE id = 3", "row 2 is there, which was cut"),
    }[how]
    with past_the_store(store_url) as connection:
        connection.execute(sa.text(statement))
    assert problem in store.verify_audit().problem


# denials --------------------------------------------------------------------------------------------------------------

GRANTS = (
    Grant(role=Role.MAINTAINER, group="data", on=("silver/*", "stream:silver_*")),
    Grant(role=Role.ADMIN, user="root"),
    Grant(role=Role.ADMIN, user="sid", on=("silver/*",)),
    Grant(role=Role.VIEWER, user="gil", on=("gold/*", "stream:gold_*")),
)


def who(name: str, *groups: str, default: Role | None = Role.VIEWER, refused: str = "") -> Actor:
    return Actor(name, refused, frozenset(groups), GRANTS, default)


def test_a_row_says_as_what_role_and_by_which_grant(store: ControlStore) -> None:
    store.pins.add(TABLE, 3, actor=who("ann", "data"), reason="May", now=NOW)
    store.saved.save("Totals", "SELECT 1", actor=who("eve"), reason="for all", now=NOW)
    saved, pinned = store.audit_entries()
    assert (pinned.role, pinned.result) == ("maintainer", "done")
    assert pinned.granted_by == "maintainer of silver/*, stream:silver_*: group data"
    assert (saved.role, saved.granted_by) == ("viewer", "auth.default_role = viewer")


def test_a_denial_stays_though_its_transaction_does_not(store: ControlStore) -> None:
    store.declare([DECLARATION], now=NOW)
    with pytest.raises(StreamRefusedError, match="group data"):
        store.request(DECLARATION.name, "stop", reason="because", actor=who("eve"), now=NOW)
    (denied,) = store.audit_entries()
    assert (denied.actor, denied.action, denied.subject, denied.result, denied.role) == (
        "eve", "stop", DECLARATION.name, "denied", "",
    )  # fmt: skip
    assert denied.granted_by == f"operators of {DECLARATION.name} may: group data, user root"
    assert store.desired() == {} and store.audit_entries(acts_only=True) == [] and store.verify_audit().problem == ""


@pytest.mark.parametrize("reason", ["\ud800", "a\0b", "x" * 100_000, "two\nlines", "\u202e"])
def test_nobody_keeps_a_denial_out_of_the_trail_by_what_they_send(store: ControlStore, reason: str) -> None:
    with pytest.raises(StreamRefusedError):
        store.pins.add(TABLE, 3, actor=who("eve"), reason=reason, now=NOW)
    (denied,) = store.audit_entries()
    assert denied.result == "denied" and len(denied.reason) <= 500 and denied.reason.isprintable()


def test_of_several_streams_one_denial_is_enough_and_no_act_is_told(store: ControlStore) -> None:
    store.declare([DECLARATION, replace(DECLARATION, name="gold_x")], now=NOW)
    with pytest.raises(StreamRefusedError):
        store.request_all((DECLARATION.name, "gold_x"), "stop", reason="x", actor=who("ann", "data"), now=NOW)
    assert [(each.subject, each.result) for each in store.audit_entries()] == [("gold_x", "denied")]


def test_a_denial_that_cannot_be_written_is_an_error_and_no_act(store: ControlStore, store_url: str) -> None:
    fault = "ALTER TABLE audit ADD CONSTRAINT full_disk CHECK (false) NOT VALID"
    if store_url.startswith("sqlite"):
        fault = "CREATE TRIGGER full_disk BEFORE INSERT ON audit BEGIN SELECT RAISE(ABORT, 'full_disk'); END"
    with past_the_store(store_url) as connection:
        connection.execute(sa.text(fault))
    with pytest.raises(StoreError, match="full_disk"):
        store.pins.add(TABLE, 3, actor=who("eve"), reason="x", now=NOW)
    assert store.pins.of_table(TABLE) == []


def test_what_changes_nothing_but_the_trail_is_admitted_alike(store: ControlStore) -> None:
    store.admit(Access(who("root"), "ann", "look as", "she sees no rows"), now=NOW)
    with pytest.raises(StreamRefusedError):
        store.admit(Access(who("eve"), "ann", "look as", "curious"), now=NOW)
    assert [(each.actor, each.result) for each in store.audit_entries()] == [("eve", "denied"), ("root", "done")]
    assert store.audit_entries(acts_only=True) == []


def test_what_a_host_made_of_an_act_says_from_and_to_which_version(store: ControlStore) -> None:
    wanted = replace(JOB, kind=JobKind.OPTIMIZE, subject="silver/orders", request='{"version": 7}')
    for number, end in enumerate((
        JobEnd(JobState.DONE, answer='{"version": 8}', detail="merged"),
        JobEnd(JobState.FAILED, error="no disk"),
    )):  # fmt: skip
        asked = store.jobs.submit(replace(wanted, fingerprint=f"f{number}"), now=NOW)
        lease = store.acquire(job_resource(asked.job_id), "h", ttl_s=60)
        store.jobs.begin(lease, asked.job_id, now=NOW)
        store.jobs.end(lease, asked.job_id, end, now=NOW)
    failed, _, done, _ = store.audit_entries()
    assert (done.action, done.result, done.version_before, done.version_after) == ("optimize done", "done", 7, 8)
    assert (failed.action, failed.result, failed.version_before, failed.version_after) == (
        "optimize failed", "failed", 7, None,
    )  # fmt: skip


@pytest.mark.parametrize("forged", ["no json", "[]", '"version"', '{"version": "8"}', '{"version": null}', "null"])
def test_a_forged_request_of_a_job_keeps_no_host_from_ending_it(store: ControlStore, forged: str) -> None:
    asked = store.jobs.submit(replace(JOB, kind=JobKind.OPTIMIZE, request=forged), now=NOW)
    lease = store.acquire(job_resource(asked.job_id), "h", ttl_s=60)
    store.jobs.begin(lease, asked.job_id, now=NOW)
    store.jobs.end(lease, asked.job_id, JobEnd(JobState.DONE, answer=forged, detail="merged"), now=NOW)
    ended = store.audit_entries()[0]
    assert (ended.version_before, ended.version_after) == (None, None)


# who sees it ----------------------------------------------------------------------------------------------------------

ENTRIES = {
    "a pin of silver": entry("ann", "pin"),
    "a start of silver": entry("ann", "start", "silver_orders"),
    "a requeue of gold that failed": entry("ann", "requeue failed", "gold_orders"),
    "a pin of gold": entry("ann", "pin", "gold/orders"),
    "a table like the stream": entry("ann", "pin", "gold_orders"),
    "a query of silver": entry("ann", "query", detail=TEXT),
    "a query of both": entry("ann", "query", "gold/orders, silver/orders", detail=TEXT),
    "a query of very many": entry("ann", "query", "gold/a, gold/b, gold/c …", detail=TEXT),
    "a query of a host": entry("ann", "query job", detail=TEXT),
    "a query that was cancelled": entry("ann", "cancel query job", detail=TEXT),
    "a query that was denied": entry("ann", "query", detail=TEXT, result="denied"),
    "another case": entry("ann", "pin", "Gold/orders"),
    "a twin": entry("ann", "pin", "g\u03bfld/orders"),
    "a login": entry("ann", "login", "weir"),
    "a login under a table's name": entry("ann", "login", "gold/orders"),
    "an act nobody knows": entry("ann", "erase", "gold/orders"),
    "a look": entry("root", "look as", "gil"),
}


def seen(store: ControlStore, actor: Actor | None) -> dict[str, str]:
    say(store, *(replace(each, reason=name) for name, each in ENTRIES.items()))
    return {each.reason: each.detail for each in store.audit_entries(limit=100, seen_by=actor)}


def test_an_admin_sees_all_and_so_does_everybody_where_nothing_is_configured(store: ControlStore) -> None:
    everything = {name: each.detail for name, each in ENTRIES.items()}
    for actor in (who("root"), Actor("joe"), None, who("zoe", default=Role.ADMIN), who("root", refused="as if")):
        assert seen(store, actor) == everything, actor


def test_a_viewer_sees_no_text_of_anothers_query_and_no_login(store: ControlStore) -> None:
    of_eve = seen(store, who("eve"))
    assert {name for name, detail in of_eve.items() if detail == HIDDEN} == {
        name for name in ENTRIES if name.startswith("a query")
    }
    assert not {"a login", "a look", "an act nobody knows"} & of_eve.keys()
    assert TEXT not in of_eve.values()


def test_one_sees_what_one_has_a_role_for_alone(store: ControlStore) -> None:
    of_gil = seen(store, who("gil", default=None))
    assert of_gil == {"a requeue of gold that failed": "v3", "a pin of gold": "v3"}
    of_data = seen(store, who("dan", "data", default=None))
    assert set(of_data) == {
        "a pin of silver", "a start of silver", "a query of silver", "a query of a host", "a query that was cancelled",
        "a query that was denied",
    }  # fmt: skip
    assert TEXT not in of_data.values()
    assert seen(store, who("nobody", default=None)) == {}
    assert seen(store, who("nobody", "DATA", "data,", "silver/*", default=None)) == {}, "twins of a group"


def test_an_admin_of_some_tables_sees_the_queries_of_these_alone(store: ControlStore) -> None:
    of_sid = seen(store, who("sid"))
    assert of_sid["a query of silver"] == TEXT and of_sid["a query of both"] == HIDDEN


def test_ones_own_is_seen_whatever_one_may_and_by_nobody_of_a_like_name(store: ControlStore) -> None:
    mine = {name: each.detail for name, each in ENTRIES.items() if each.actor == "ann"}
    assert seen(store, who("ann", default=None)) == mine
    for name in ("Ann", "ann ", "\u0430nn", "an", "ann%", "", "*"):
        assert seen(store, who(name, default=None)) == {}


def test_who_only_looks_without_a_login_sees_no_texts(store: ControlStore) -> None:
    assert TEXT not in seen(store, Actor("unknown viewer at 10.0.0.9", "Weir is read-only")).values()


def test_what_is_not_seen_takes_no_place_of_what_is(store: ControlStore) -> None:
    say(store, entry("ann", "pin", "gold/orders"), *(entry("ann", "login", "weir") for _ in range(250)))
    assert [each.subject for each in store.audit_entries(limit=1, seen_by=who("gil", default=None))] == ["gold/orders"]


@pytest.mark.parametrize(
    ("given", "reasons"),
    [
        ({"where": {"actor": "ben"}}, ["3"]),
        ({"where": {"action": "login"}}, ["2"]),
        ({"where": {"result": "denied"}}, ["1"]),
        ({"where": {"id": 2}}, ["2"]),
        ({"on": "gold/*"}, ["3"]),
        ({"on": "silver/orders"}, ["4", "1"]),
        ({"since": NOW - timedelta(hours=1)}, ["4", "3"]),
        ({"since": NOW - timedelta(hours=1), "where": {"actor": "ben"}}, ["3"]),
    ],
)
def test_entries_are_found_by_who_on_what_which_and_since(
    store: ControlStore, given: dict[str, object], reasons: list[str]
) -> None:
    before = NOW - timedelta(days=2)
    say(
        store,
        entry(at=before, reason="1", result="denied"), entry(at=before, action="login", subject="weir", reason="2"),
        entry("ben", subject="gold/orders, silver/b", action="query", reason="3"), entry(reason="4"),
    )  # fmt: skip
    assert [each.reason for each in store.audit_entries(**given)] == reasons  # type: ignore[arg-type]
    assert store.audit_entries(seen_by=who("gil", default=None), **{"where": {"id": 1}}) == []
