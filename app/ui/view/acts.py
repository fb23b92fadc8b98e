"""The words of an act on a table, for page and terminal alike.

Rule: what will happen comes first, then what it risks, then whether it can be taken back.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from functools import reduce
from typing import NamedTuple

import orjson

from app.columns import Column
from app.ui.view.words import sentence
from backend.changes.model import NetCounts, VersionDiff
from backend.format import UNKNOWN, age_s, ago, clock_text, count_text, duration_text, things
from backend.jobs.model import Job, JobKind, JobState
from backend.lake.model import Commit
from backend.maintenance.clone_and_drop import DroppedTable
from backend.maintenance.model import (
    ActPreview,
    ActResult,
    Alter,
    Clone,
    Drop,
    Optimize,
    Purge,
    Repair,
    Restore,
    Rewind,
    TableAct,
    Undrop,
    Vacuum,
)
from backend.maintenance.policies import PolicyPlan
from backend.stream_model.stream import AuditEntry


class ActLook(NamedTuple):
    """How an act is called and drawn, and the page where it is done: one of a table, of a dropped one the Acts page."""

    label: str
    icon: str
    page: str


ACTS: Mapping[JobKind, ActLook] = {
    JobKind.OPTIMIZE: ActLook("Optimize", ":material/compress:", "health"),
    JobKind.VACUUM: ActLook("Vacuum", ":material/delete_sweep:", "health"),
    JobKind.RESTORE: ActLook("Restore", ":material/restore_page:", "versions"),
    JobKind.REWIND: ActLook("Rewind", ":material/fast_rewind:", "versions"),
    JobKind.CLONE: ActLook("Copy", ":material/content_copy:", "versions"),
    JobKind.REPAIR: ActLook("Repair rows", ":material/healing:", "changes"),
    JobKind.ALTER: ActLook("Edit properties", ":material/tune:", "properties"),
    JobKind.DROP: ActLook("Drop", ":material/delete:", "properties"),
    JobKind.UNDROP: ActLook("Undrop", ":material/restore_from_trash:", "acts"),
    JobKind.PURGE: ActLook("Purge", ":material/delete_forever:", "acts"),
}
LABELS = {kind: look.label for kind, look in ACTS.items()}
STATES: Mapping[JobState, str] = {
    JobState.QUEUED: "… Queued",
    JobState.RUNNING: "▶ Running",
    JobState.DONE: "✓ Done",
    JobState.FAILED: "✕ Failed",
    JobState.CANCELLED: "– Cancelled",
}
_PLAN_STATES = {"due": "… Due", "running": "▶ Running", "waiting": "– Waiting", "resting": "✕ Resting"}
_TERMS = {  # what a policy says, by the key of its setting
    "spares_files": "once merging spares {} files",
    "spares_share": "once it spares a share of {}",
    "every_hours": "at most every {}",
    "most_bytes": "at most {} bytes at once",
    "lite": "by the log",
    "column": "rows by their {}",
    "older_than_days": "older than {}",
    "window": "in the window {} (UTC)",
    "window_minutes": "for {}",
}
_SECONDS = {"every_hours": 3_600, "older_than_days": 86_400, "window_minutes": 60}
_GENERATION = re.compile(r", generation \d+")  # of a request, for hosts
MOST_AUDIT = 1_000_000  # rows of the audit trail, in a terminal or a file
_HOLDS = {True: "proven", False: "DOES NOT HOLD", None: "not known"}


def act_title(kind: JobKind, table: str) -> str:
    """ "Optimize silver/orders", "Repair rows of silver/orders"."""
    label = LABELS[kind]
    return f"{label} of {table}" if " " in label else f"{label} {table}"


def act_of(commit: Commit) -> str | None:
    """The job of the act that made the commit, as its `userMetadata` names it; None for any other commit."""
    try:
        noted = orjson.loads(commit.user_metadata or "{}")
    except orjson.JSONDecodeError:
        return None
    if not isinstance(noted, dict):
        return None
    jobs = (noted.get(kind.value) for kind in LABELS)
    return next((job for job in jobs if isinstance(job, str)), None)


def act_words(act: TableAct) -> str:
    """What of the table, in a few words."""
    match act.arguments:
        case Optimize() as asked:
            where = ", ".join(f"{name}={'null' if value is None else value}" for name, value in asked.partition.items())
            order = f" by {', '.join(asked.zorder_by)}" if asked.zorder_by else ""
            files = "files with deletion vectors" if asked.purge else f"{where or 'whole table'}{order}"
            return files + (", rows proven" if asked.prove_rows else "")
        case Vacuum(lite=lite):
            return "by the log" if lite else "whole table"
        case Restore() as asked:
            return f"to v{asked.to_version}" + (", properties kept" if asked.keeps_properties else "")
        case Rewind() as asked:
            return f"to v{asked.to_version}, with stream {asked.stream}"
        case Repair(takes_rows=True) as asked:
            version = "the latest" if asked.from_version is None else f"v{asked.from_version}"
            source = f"{version} of {asked.from_table}" if asked.from_table else version
            return f"replace where {asked.where} by {source}"
        case Repair() as asked:
            values = ", ".join(f"{column} = {text}" for column, text in asked.values.items())
            of, without = ("", "delete") if asked.of_commit is None else (f" of v{asked.of_commit}", "take back rows")
            where = f" where {asked.where}" if asked.where else ""
            return f"{f'set {values}' if values else without}{of}{where}"
        case Clone() as asked:
            version = "the latest" if asked.version is None else f"v{asked.version}"
            return f"{version} to {asked.target}" + (", shallow" if asked.shallow else "")
        case Alter() as asked:
            return ", ".join(asked.words())
        case Drop():
            return "moved aside"
        case Undrop(dropped=job) | Purge(dropped=job):
            return f"as job {job} dropped it"


def job_clock(job: Job, now: datetime) -> str:
    """ "asked 3 min ago, began 2 s later, ended after 14 s": one clock, so that no two times of an act disagree."""
    words = f"asked {ago(job.requested_at, now)}"
    if job.started_at:
        words += f", began {duration_text((job.started_at - job.requested_at).total_seconds())} later"
        if job.ended_at:
            words += f", ended after {duration_text((job.ended_at - job.started_at).total_seconds())}"
    return words


def last_run_text(plan: PolicyPlan, now: datetime) -> str:
    """ "✓ Done · 3 min ago"; a dash before the first."""
    last = plan.runs.last
    return f"{STATES[last.state]} · {ago(last.ended_at or last.requested_at, now)}" if last else UNKNOWN


def next_run_text(plan: PolicyPlan, now: datetime, zone: str | None = None) -> str:
    """ "Fri 02:00 UTC"; what else it waits for stands beside it."""
    if plan.due:
        return "now"
    return clock_text(plan.next_at, zone, now) if plan.next_at else UNKNOWN


@dataclass(frozen=True, slots=True)
class ListedAct:
    """An act on a table, which is a job with its proof, or on a stream, an entry of the audit trail."""

    address: str
    at: datetime
    subject: str
    act: str
    state: str
    what: str
    actor: str
    reason: str

    def holds(self, words: str) -> bool:
        """Whether each of the words stands somewhere in it."""
        text = " ".join(astuple(self)[2:]).casefold()
        return all(word in text for word in words.casefold().split())


def listed_acts(jobs: Iterable[Job], entries: Iterable[AuditEntry], roots: Iterable[str]) -> list[ListedAct]:
    """Newest first. `jobs`: acts on tables; of the audit trail what is no such job and no trial."""
    rows = []
    for job in jobs:
        act, label, state = TableAct.parse(job.request), LABELS[job.kind], STATES[job.state]
        what, reason = act_text(act_words(act), roots), act_text(job.reason, roots)
        rows.append(ListedAct(job.job_id, job.requested_at, act.name, label, state, what, job.actor, reason))
    for entry in entries:
        if not entry.action.startswith(tuple(f"{kind} " for kind in (*LABELS, JobKind.REQUEUE_PREVIEW))):
            address, what = f"{entry.at.timestamp():.6f}", act_text(entry.detail, roots)
            action, reason = entry.action.capitalize(), act_text(entry.reason, roots)
            rows.append(ListedAct(address, entry.at, entry.subject, action, "", what, entry.actor, reason))
    return sorted(rows, key=lambda row: row.at, reverse=True)


def act_columns(now: datetime) -> list[Column[ListedAct]]:
    """Acts on tables and streams."""
    return [
        Column("Table or stream", lambda row: row.subject, key="subject"),
        Column("Act", lambda row: row.act, key="act"),
        Column("State", lambda row: row.state, "state", key="state", is_optional=True),
        Column("What", lambda row: row.what, width=200, key="what"),
        Column("When", lambda row: age_s(row.at, now), "ago"),
        Column("By", lambda row: row.actor, key="actor"),
        Column("Reason", lambda row: row.reason, width=350, key="reason"),
    ]


def log_columns(now: datetime, roots: Sequence[str] = (), *, of_all: bool = False) -> list[Column[AuditEntry]]:
    """The columns of the audit trail: when, who, what, why. What lies below one of the `roots` stands by its name.
    `of_all`: with what came of it, and the number."""
    return [
        Column("When", lambda entry: age_s(entry.at, now), "ago"),
        Column("Act", lambda entry: entry.action),
        Column("Stream or table", lambda entry: entry.subject),
        Column("Reason", lambda entry: act_text(entry.reason, roots), width="large"),
        Column("Who", lambda entry: entry.actor),
        Column("Detail", lambda entry: act_text(_GENERATION.sub("", entry.detail), roots) or None),
        Column("At", lambda entry: entry.at, "moment"),
        Column("Result", lambda entry: entry.result if of_all else None, is_optional=True),
        Column("Row", lambda entry: entry.id if of_all else None, "plain", is_optional=True),
    ]


def act_text(text: str, roots: Iterable[str]) -> str:
    """What was written of an act: a policy in words, and by its name what lies below one of the `roots`."""
    if text.startswith("policy: "):
        return f"policy: {policy_words(text)}"
    places = [f"{root.rstrip('/')}/" for root in sorted(roots, key=len, reverse=True) if root.strip("/")]
    return reduce(lambda text, place: text.replace(place, ""), places, text)


def policy_words(text: str) -> str:
    """ "once merging spares 20 files, at most every 1 d" of what a policy or its job says."""
    words = []
    for term in filter(None, text.removeprefix("policy: ").partition(": ")[2].split(", ")):
        key, _, value = term.partition(" ")
        if key in _SECONDS and value.isdecimal():
            value = duration_text(int(value) * _SECONDS[key])
        words.append(_TERMS.get(key, f"{key} {{}}").format(value))
    return ", ".join(words) or "whenever it is due"


def policy_columns(now: datetime, zone: str | None = None) -> list[Column[PolicyPlan]]:
    """What ran, what is next, and why it waits."""
    return [
        Column("Table", lambda plan: plan.table, key="table"),
        Column("Act", lambda plan: LABELS[plan.kind]),
        Column("State", lambda plan: _PLAN_STATES[plan.state], "state"),
        Column("Last", lambda plan: last_run_text(plan, now)),
        Column("Next", lambda plan: next_run_text(plan, now, zone)),
        Column("Why it waits", lambda plan: plan.why_not, width=240),
        Column("Policy", lambda plan: policy_words(plan.text), width=300),
    ]


def dropped_columns(now: datetime) -> list[Column[DroppedTable]]:
    """Tables that lie aside, whole."""
    return [
        Column("Table", lambda table: table.name, key="name"),
        Column("Job", lambda table: table.job_id, key="job_id", on="terminal"),
        Column("Version", lambda table: table.version, "version", key="version"),
        Column("Rows", lambda table: table.num_rows, "count", key="num_rows"),
        Column("Size", lambda table: table.size_bytes, "bytes", key="size_bytes"),
        Column("Dropped", lambda table: age_s(datetime.fromisoformat(table.dropped_at), now), "ago"),
        Column("By", lambda table: table.actor, key="actor"),
        Column("Reason", lambda table: table.reason, width="medium", key="reason"),
    ]


def preview_lines(planned: ActPreview, loss: str = "") -> list[str]:
    """What happens and what it risks come first; of going back the risks, as what was erased by duty comes back, then
    the `loss` of rows. Without the refusal, which says alone that nothing is to be merged."""
    if planned.refused and planned.figures.get("files_in") == 0:
        return []
    risks = (f"Risk: {risk}" for risk in planned.risks)
    goes_back = isinstance(planned.act.arguments, Restore | Rewind)
    first = (*risks, loss, planned.effect) if goes_back else (planned.effect, *risks)
    back = [f"Way back: {planned.way_back}"] if planned.way_back and not planned.refused else []
    return [sentence(line) for line in (*first, *planned.notes, *back) if line]


def loss_text(diff: VersionDiff | None, bad: VersionDiff | None = None, rule: str = "") -> str:
    """What going back from the second version to the first does to rows; exact copies of rows that stay are no loss.
    Empty where rows were not compared. `bad`: the same of rows that break the `rule` alone; the others are good."""
    if diff is None or diff.changes.net.total is None:
        return ""
    net, repeats = diff.changes.net, diff.explanation.repeats

    def apart(total: int, num_bad: int | None) -> str:
        known = total and num_bad is not None and num_bad <= total
        return f" ({num_bad or 0:,} bad, {total - (num_bad or 0):,} good)" if known else ""

    broken = bad.changes.net if bad is not None else NetCounts(None, None, None)
    means = f"; bad is what breaks `{rule}`" if bad is not None else ""
    copies = repeats.copies if repeats and repeats.copies else 0
    alike = f" ({count_text(copies)} exact copies of rows that stay: no loss)" if copies else ""
    go, come = "goes" if net.inserted == 1 else "go", "comes" if net.deleted == 1 else "come"
    get = "gets" if net.updated == 1 else "get"
    older = "" if net.updated is None else f", {things(net.updated, 'row')} {get} older values"
    older += apart(net.updated or 0, broken.updated)
    goes = f"{things(net.inserted, 'row')} {go}{apart(net.inserted or 0, broken.inserted)}{alike}"
    return f"{goes}, {count_text(net.deleted)} {come} back{apart(net.deleted or 0, broken.deleted)}{older}{means}"


def result_lines(result: ActResult) -> list[str]:
    """What was done, the proofs, and what it had to give way to."""
    proofs = (f"{proof.what}: {_HOLDS[proof.holds]} ({proof.detail})" for proof in result.proofs)
    conflicts = (f"tried again after {conflict}" for conflict in result.conflicts)
    latest = "" if result.version is None else f"; the latest version is v{result.version}"
    lines = (f"{result.effect}{latest}", *proofs, *conflicts)
    return [sentence(line) for line in lines]
