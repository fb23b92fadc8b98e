"""An act on a table: what is asked, what it would do, and what it did with the proof.

Rule: one value travels unchanged from page, terminal or file to the host. It names the version that its preview saw.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, ClassVar, TypeAlias, get_args

from backend.access import Actor
from backend.errors import JobError, SettingsError
from backend.format import utc_text
from backend.jobs.model import Job, JobKind, JobRequest

TIME_LIMIT_S = 6 * 3_600.0
_INTENT_HINT = "write it with --intent FILE of a command that acts on tables, such as `weir optimize`"


@dataclass(frozen=True, slots=True)
class Optimize:
    """Merge small files. `partition`: values of partition columns, None for null; all of the table where empty.

    `zorder_by`: columns to lay rows out by. `full`: all files of a clustered table. `purge`: instead, rewrite the files
    that have deletion vectors. Files below `small_bytes` are merged into ones of up to `target_bytes`; 0: as the table
    and the settings say. `prove_rows`: every row is read again, in the old files and in the new ones, and compared.
    """

    kind: ClassVar[JobKind] = JobKind.OPTIMIZE
    partition: Mapping[str, str | None] = field(default_factory=dict)
    zorder_by: tuple[str, ...] = ()
    full: bool = False
    purge: bool = False
    small_bytes: int = 0
    target_bytes: int = 0
    prove_rows: bool = False


@dataclass(frozen=True, slots=True)
class Vacuum:
    """Delete the files that no version within the table's retention needs. `lite`: found by the log, not by listing."""

    kind: ClassVar[JobKind] = JobKind.VACUUM
    lite: bool = False


@dataclass(frozen=True, slots=True)
class Restore:
    """Make a former version the latest again. `keeps_properties`: today's properties stay. `stops_writers`: streams
    that write the table are stopped first, and started again after."""

    kind: ClassVar[JobKind] = JobKind.RESTORE
    to_version: int = 0
    keeps_properties: bool = False
    stops_writers: bool = False


@dataclass(frozen=True, slots=True)
class Rewind:
    """Make a former version the latest again, and set the checkpoint of the stream that writes the table back to before
    the batches that it wrote since: its next start runs them again. `stream`: its name, which a preview fills in."""

    kind: ClassVar[JobKind] = JobKind.REWIND
    to_version: int = 0
    stream: str = ""


@dataclass(frozen=True, slots=True)
class Repair:
    """Give the rows that a condition lets through other values, replace or delete them. `where`: SQL over one row, in
    DuckDB's dialect as everywhere. `values`: SQL for each column that changes, of the row as it was.

    `from_version`, `from_table` (name or URI): the rows that satisfy it there come in their place; of the table itself
    where it is None, of the latest version likewise. `stops_writers`: as of a restore.

    `of_commit`: only rows as the commit of that version wrote them, all of them where `where` is empty. Without
    `values` that takes back what it did: what it wrote goes, what it took away comes, what was written since stays.
    """

    kind: ClassVar[JobKind] = JobKind.REPAIR
    where: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    from_version: int | None = None
    from_table: str | None = None
    stops_writers: bool = False
    of_commit: int | None = None

    @property
    def takes_rows(self) -> bool:
        return self.from_version is not None or self.from_table is not None


@dataclass(frozen=True, slots=True)
class Alter:
    """Change what a table's metadata says; of columns, the outermost alone.

    `comment`: of the table, None to leave it. `add_columns`: types of new, nullable columns by name, some of them with
    `column_comments`. `rename_columns`: new names by old ones. `widen_columns`: wider types by name. `add_constraints`:
    CHECK conditions by name.
    """

    kind: ClassVar[JobKind] = JobKind.ALTER
    set_properties: Mapping[str, str] = field(default_factory=dict)
    unset_properties: tuple[str, ...] = ()
    comment: str | None = None
    add_columns: Mapping[str, str] = field(default_factory=dict)
    column_comments: Mapping[str, str] = field(default_factory=dict)
    rename_columns: Mapping[str, str] = field(default_factory=dict)
    drop_columns: tuple[str, ...] = ()
    widen_columns: Mapping[str, str] = field(default_factory=dict)
    add_constraints: Mapping[str, str] = field(default_factory=dict)
    drop_constraints: tuple[str, ...] = ()

    def words(self) -> Iterator[str]:
        """Each change, in a few words."""
        yield from (f"{key} = {value}" for key, value in self.set_properties.items())
        yield from (f"{key} unset" for key in self.unset_properties)
        if self.comment is not None:
            yield f"comment {self.comment!r}"
        yield from (f"add column {name} {kind}" for name, kind in self.add_columns.items())
        yield from (f"rename {old} to {new}" for old, new in self.rename_columns.items())
        yield from (f"drop column {name}" for name in self.drop_columns)
        yield from (f"widen {name} to {kind}" for name, kind in self.widen_columns.items())
        yield from (f"add constraint {name}: {text}" for name, text in self.add_constraints.items())
        yield from (f"drop constraint {name}" for name in self.drop_constraints)


@dataclass(frozen=True, slots=True)
class Clone:
    """Copy a version (None: the latest) to another place: an address, or a name below the same root. `shallow`: the
    copy has a log of its own and reads the data files of this table."""

    kind: ClassVar[JobKind] = JobKind.CLONE
    target: str = ""
    version: int | None = None
    shallow: bool = False


@dataclass(frozen=True, slots=True)
class Drop:
    """Move the table aside, below its root, where nobody finds it as a table. Nothing of it is deleted."""

    kind: ClassVar[JobKind] = JobKind.DROP


@dataclass(frozen=True, slots=True)
class Undrop:
    """Bring a dropped table back to its place. `dropped`: the job that dropped it."""

    kind: ClassVar[JobKind] = JobKind.UNDROP
    dropped: str = ""


@dataclass(frozen=True, slots=True)
class Purge:
    """Delete a dropped table for good. `dropped`: the job that dropped it."""

    kind: ClassVar[JobKind] = JobKind.PURGE
    dropped: str = ""


Arguments: TypeAlias = Optimize | Vacuum | Restore | Rewind | Repair | Alter | Clone | Drop | Undrop | Purge
_ARGUMENTS: Mapping[JobKind, Callable[..., Arguments]] = {kind.kind: kind for kind in get_args(Arguments)}


@dataclass(frozen=True, slots=True)
class TableAct:
    """`uri` and `name` of the table; `version`: its latest when the act was previewed."""

    uri: str
    name: str
    version: int
    arguments: Arguments

    @property
    def kind(self) -> JobKind:
        return self.arguments.kind

    @property
    def subject(self) -> str:
        """What no other act may change meanwhile: the table, or the stream of a rewind, which nobody starts then."""
        return self.arguments.stream if isinstance(self.arguments, Rewind) else self.name

    def text(self) -> str:
        return json.dumps({"kind": self.kind, **asdict(self)})

    @classmethod
    def parse(cls, text: str) -> "TableAct":
        """Raises `JobError` for what is no act."""
        try:
            return cls.of(json.loads(text))
        except ValueError as exc:
            raise JobError(f"an act cannot be read: {exc}", hint="ask for it again") from exc

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "TableAct":
        """The act that a JSON object holds; raises `ValueError` for what is none."""
        try:
            kind = _ARGUMENTS[JobKind(body["kind"])]
            given = {
                key: tuple(value) if isinstance(value, list) else value for key, value in body["arguments"].items()
            }
            return cls(str(body["uri"]), str(body["name"]), int(body["version"]), kind(**given))
        except (KeyError, TypeError, AttributeError) as exc:
            raise ValueError(str(exc)) from exc


@dataclass(frozen=True, slots=True)
class RowsHit:
    """`rows` and the `files` that hold them; None where counting took too long, then `unknown` says so."""

    rows: int | None
    files: int | None
    samples: tuple[str, ...] = ()
    unknown: str = ""

    @property
    def rows_text(self) -> str:
        return "an unknown number" if self.rows is None else f"{self.rows:,}"


RESTORE_BACK = "RESTORE to v{0} takes it back"


@dataclass(frozen=True, slots=True)
class Lift:
    """What lifts a refusal: a command by its verb, of streams, a table or a job first. A page has a control for it."""

    verb: str
    subjects: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ActPreview:
    """What an act would do. `figures`: counts and bytes by name, None where one is not known. `refused`: why it may not
    be done, empty where it may; `way_out`: what helps then, and `lifts`: by which acts. `typed`: whether the table's
    name has to be typed."""

    act: TableAct
    effect: str
    figures: Mapping[str, int | None] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    way_back: str = ""
    refused: str = ""
    way_out: str = ""
    lifts: tuple[Lift, ...] = ()
    typed: bool = False


@dataclass(frozen=True, slots=True)
class Proof:
    """One thing that must hold after an act, with what was compared. None: it could not be told."""

    what: str
    holds: bool | None
    detail: str


@dataclass(frozen=True, slots=True)
class ActResult:
    """What an act did: `version` is the table's latest after it, None where there is no table any more. `conflicts`:
    commits that it had to give way to."""

    effect: str
    version: int | None
    figures: Mapping[str, int | None] = field(default_factory=dict)
    proofs: tuple[Proof, ...] = ()
    conflicts: tuple[str, ...] = ()

    def sentence(self) -> str:
        """The result as the operation log keeps it."""
        words = {True: "holds", False: "DOES NOT HOLD", None: "not known"}
        proofs = "; ".join(f"{proof.what}: {words[proof.holds]} ({proof.detail})" for proof in self.proofs)
        version = "" if self.version is None else f", v{self.version}"
        return f"{self.effect}{version}" + (f"; {proofs}" if proofs else "")

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, job: Job) -> "ActResult":
        """Raises `JobError` where the job failed, or left what is no result."""
        try:
            body = json.loads(job.require_answer())
            proofs = tuple(Proof(**proof) for proof in body["proofs"])
            return cls(**{**body, "proofs": proofs, "conflicts": tuple(body["conflicts"])})
        except (ValueError, KeyError, TypeError) as exc:
            raise JobError(f"the result of the act cannot be read: {exc}", hint="look at the table's history") from exc


def act_job(act: TableAct, *, actor: Actor, reason: str) -> JobRequest:
    """What a host is asked; each is a job of its own, whoever asked the same before."""
    given = {name: _words(value) for name, value in asdict(act.arguments).items() if value or value == ""}
    fingerprint = f"{act.kind} {uuid.uuid4().hex}"
    return JobRequest(act.kind, act.subject, fingerprint, act.text(), actor, reason, TIME_LIMIT_S, given)


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={'null' if item is None else item}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


# an act written down ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Intent:
    """An act in a file, to be reviewed and carried out later, while it would do what the file says it does: YAML, which
    is comments for people and then one JSON document. `figures` and `risks`: of the preview that was reviewed."""

    act: TableAct
    reason: str
    figures: Mapping[str, int | None]
    risks: tuple[str, ...]

    @classmethod
    def of(cls, planned: ActPreview, reason: str) -> "Intent":
        return cls(planned.act, reason, planned.figures, planned.risks)

    def file(self, lines: tuple[str, ...], *, now: datetime) -> str:
        """The file's text, with the preview's lines as comments."""
        title = f"{self.act.kind} of {self.act.name} at v{self.act.version}, previewed {utc_text(now)}"
        comments = "".join(f"# {' '.join(line.split())}\n" for line in (title, *lines))
        body = {**asdict(self), "act": json.loads(self.act.text())}
        return f"{comments}{json.dumps(body, indent=2, ensure_ascii=False)}\n"

    @classmethod
    def parse(cls, text: str) -> "Intent":
        """Raises `SettingsError` for what is no such file."""
        try:
            body = json.loads("\n".join(line for line in text.splitlines() if not line.startswith("#")))
            return cls(TableAct.of(body["act"]), str(body["reason"]), dict(body["figures"]), tuple(body["risks"]))
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise SettingsError(f"this is no intent: {exc}", hint=_INTENT_HINT) from exc

    def moved(self, planned: ActPreview) -> list[str]:
        """What the act would do otherwise than it was reviewed; empty where nothing."""
        figures = [
            f"{name} was {self.figures.get(name)}, is {planned.figures.get(name)}"
            for name in (*self.figures, *(set(planned.figures) - set(self.figures)))
            if self.figures.get(name) != planned.figures.get(name)
        ]
        return figures + [f"a new risk: {risk}" for risk in planned.risks if risk not in self.risks]


def digest(text: str) -> str:
    """The text by which the audit trail names a file."""
    return f"sha256:{sha256(text.encode()).hexdigest()}"
