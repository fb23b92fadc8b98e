"""Acts on tables, done by Spark and proven from the log: OPTIMIZE, VACUUM, RESTORE, properties.

Rule: what was previewed is looked at again first; where that changed, nothing is done. A job that is begun twice does
not act twice: its commits carry its id, and behind the first of them it carries on. An act that a concurrent commit
broke is tried again, a restore and a repair never.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import structlog
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from backend.errors import StreamRefusedError
from backend.format import bytes_text, things
from backend.jobs.model import Job
from backend.lake.catalog import layer_of
from backend.lake.files.clustering import look_up
from backend.lake.lake import Lake
from backend.lake.model import Commit, OperationMetrics, Snapshot, TableRef
from backend.lake.retention.runs import DELETED_FILES, retention_of
from backend.lake.storage.storage import Storage
from backend.maintenance.alter import OF_ENGINES
from backend.maintenance.model import (
    ActPreview,
    ActResult,
    Alter,
    Clone,
    Drop,
    Optimize,
    Proof,
    Purge,
    Repair,
    Restore,
    Rewind,
    TableAct,
    Undrop,
    Vacuum,
)
from backend.maintenance.plan import preview
from backend.maintenance.readers import Users, load_users
from backend.maintenance.rewind import load_rewind
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.streams.faults import CONFLICTS
from pipelines.jobs.alter import (
    altered_proofs,
    literal,
    missing_constraints,
    set_statements,
    statements,
    unset_statements,
)
from pipelines.jobs.clone import clone_commits, clone_statement, cloned
from pipelines.jobs.condition import why_failed
from pipelines.jobs.drop import Dropping
from pipelines.jobs.repair import Repaired, repair_table, repaired, require_one_reading, table_rows
from pipelines.jobs.requeue import ActListener
from pipelines.jobs.rewind import read_plan, set_back, write_plan
from pipelines.jobs.same_rows import rewritten_proof
from pipelines.jobs.stopped_writers import stopped_writers
from pipelines.jvm.failures import describe
from pipelines.jvm.hadoop import CheckpointFiles, spark_uri
from pipelines.sinks.commits import sign
from pipelines.specs.tables import quoted

MOST_TRIES = 3
_AT_ONCE_S = 1e-9
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"  # VACUUM and RESTORE start 10,000 else

log = structlog.get_logger()


class TableActs:
    """What one host does to tables of the lake."""

    def __init__(self, settings: Settings, store: ControlStore) -> None:
        self._settings, self._store = settings, store
        # Readers ask an object store for news once a second at most: a proof is of now.
        always = settings.lake.model_copy(update={"refresh_s": _AT_ONCE_S})
        self._looks_each_time = settings.model_copy(update={"lake": always})

    def run(self, job: Job, session: SparkSession, listener: ActListener) -> ActResult:
        """Raises `StreamRefusedError` where it may not be done, or no longer as it was previewed."""
        act = TableAct.parse(job.request)
        lake = Lake(self._looks_each_time)
        moves = isinstance(act.arguments, Drop | Undrop | Purge)
        ref = self._place(act) if moves else lake.find(act.uri)
        work = _Work(session, lake, ref, act, job)
        listener.tell("looking at the table again")
        if moves:
            return Dropping(lake, ref, act, job, CheckpointFiles(session), lambda: self._previewed(work)).run(listener)
        sign(session, {str(job.kind): job.job_id, "by": job.actor, "reason": job.reason})
        session.conf.set(_LISTING_TASKS, str(4 * session.sparkContext.defaultParallelism))
        if isinstance(act.arguments, Rewind):
            return self._rewound(work, act.arguments, listener)
        with stopped_writers(self._store, job, act, lambda: self._users(work), listener) as stopped:
            is_begun = bool(work.own_commits()) and not isinstance(act.arguments, Vacuum)
            planned = None if is_begun else self._previewed(work, stopped)
            listener.changes(f"{act.kind} of {act.name}")
            if planned is None:
                work.carry_on()
                return work.done(None, ())
            return work.done(planned, self._do(work, planned))

    def _rewound(self, work: "_Work", asked: Rewind, listener: ActListener) -> ActResult:
        """A plan that is written down is carried on with, whichever host wrote it."""
        files, now = CheckpointFiles(work.session), self._store.now()
        plan = read_plan(self._settings, asked.stream, work.job)
        if plan is None:
            self._previewed(work)
            users = self._users(work)
            table = work.lake.snapshot(work.ref)
            facts = load_rewind(self._settings, work.lake, self._store, table, asked, users, now=now)
            plan = write_plan(self._settings, facts, work.job, files)
        listener.changes(f"rewind of {asked.stream}")
        restored = [work.restored(back.uri, back.name, back.version, back.to_version) for back in plan.tables]
        told = set_back(self._settings, asked.stream, plan, work.job, files)
        effect = f"{restored[0].effect}; {asked.stream} goes on behind batch {plan.batch}"
        proofs = [
            replace(proof, what=f"{back.name} is what it was")
            for back, result in zip(plan.tables, restored, strict=True)
            for proof in result.proofs
        ]
        log.info("stream_rewound", stream=asked.stream, batch=plan.batch, table=work.ref.name)
        return ActResult(effect, restored[0].version, {"batch": plan.batch}, (*proofs, told))

    def _place(self, act: TableAct) -> TableRef:
        """Where a table was or is; raises `PathRefusedError`."""
        return TableRef(act.uri, act.name, Storage(self._settings).root_of(act.uri), layer_of(act.name))

    def _users(self, work: "_Work") -> Users:
        now = self._store.now()
        return load_users(self._settings, work.lake, self._store, work.ref, work.asked.arguments, now=now)

    def _previewed(self, work: "_Work", stopped: Collection[str] = ()) -> ActPreview:
        """The act as it stands now. `stopped`: streams that wrote on until the act had stopped them."""
        act, lake, ref = work.asked, work.lake, work.ref
        users, now = self._users(work), self._store.now()
        planned = preview(self._settings, lake, ref, act.arguments, users, now=now, store=self._store)
        if planned.refused:
            raise StreamRefusedError(f"{act.kind} of {act.name}: {planned.refused}", hint=planned.way_out)
        is_of_rows = isinstance(act.arguments, Restore | Rewind | Repair | Drop)
        if planned.act.version != act.version and (is_of_rows or isinstance(act.arguments, Alter)):
            since = [
                commit
                for commit in lake.history(ref, starting_version=act.version + 1)
                if not (commit.origin and commit.origin.stream in stopped)
            ]
            if (is_of_rows and since) or any(commit.metadata for commit in since):
                raise StreamRefusedError(
                    f"{act.name} moved on since the preview: {'; '.join(map(_told, since[:3]))}",
                    hint="preview it again",
                )
        return planned

    def _do(self, work: "_Work", planned: ActPreview) -> tuple[str, ...]:
        """The commits that it had to give way to."""
        conflicts: list[str] = []
        while True:
            try:
                work.act(planned)
                return tuple(conflicts)
            except (PySparkException, Py4JJavaError) as exc:
                if (failure := why_failed(exc)) is not None:
                    raise failure from exc
                error_class, message = describe(exc)
                if not error_class.startswith(CONFLICTS):
                    raise
                conflicts.append(work.newest_by_others() or message)
                if isinstance(planned.act.arguments, Restore | Repair) or len(conflicts) == MOST_TRIES:
                    raise StreamRefusedError(
                        f"{planned.act.kind} of {planned.act.name} gave way to {conflicts[-1]} ({error_class})",
                        hint="try it while fewer writers are busy, or stop them first",
                    ) from exc
                log.info("act_gave_way", table=planned.act.name, error=error_class, to=conflicts[-1])


@dataclass(frozen=True, slots=True)
class _Work:
    session: SparkSession
    lake: Lake
    ref: TableRef
    asked: TableAct
    job: Job

    @property
    def _table(self) -> DeltaTable:
        return DeltaTable.forPath(self.session, spark_uri(self.ref.uri))

    @property
    def _name(self) -> str:
        return f"delta.{quoted(spark_uri(self.ref.uri))}"

    def own_commits(self) -> list[Commit]:
        """Newest first; those of a copy are in its own log."""
        if isinstance(self.asked.arguments, Clone):
            return clone_commits(self.lake, self.asked.arguments, self.job.job_id)
        since = self.lake.history(self.ref, starting_version=self.asked.version + 1)
        return [commit for commit in since if self.job.job_id in (commit.user_metadata or "")]

    def newest_by_others(self) -> str:
        since = self.lake.history(self.ref, starting_version=self.asked.version + 1, limit=10)
        return next((_told(commit) for commit in since if self.job.job_id not in (commit.user_metadata or "")), "")

    def act(self, planned: ActPreview) -> None:
        match planned.act.arguments:
            case Optimize() as optimize:
                self._optimize(optimize)
            case Vacuum(lite=lite):
                self.session.conf.set("spark.databricks.delta.vacuum.logging.enabled", "true")
                self.session.sql(f"VACUUM {self._name}{' LITE' if lite else ''}")
            case Restore() as restore:
                self._restore(restore)
            case Repair() as repair:
                repair_table(self.session, self.ref.uri, repair)
            case Alter() as alter:
                self._alter(alter)
            case Clone() as clone:
                self.session.sql(clone_statement(self.lake, self.ref, clone))

    def restored(self, uri: str, name: str, version: int, to_version: int) -> ActResult:
        """A table of the same stream as it was, with the properties of today."""
        asked = Restore(to_version, keeps_properties=True)
        work = _Work(self.session, self.lake, self.lake.find(uri), TableAct(uri, name, version, asked), self.job)
        work.carry_on() if work.own_commits() else work._restore(asked)
        return work.done(None, ())

    def carry_on(self) -> None:
        """After a host that died behind the first of its commits."""
        if isinstance(self.asked.arguments, Restore):
            self._keep_properties(self.asked.arguments)
        elif isinstance(self.asked.arguments, Alter):
            self._alter(self.asked.arguments)

    def done(self, planned: ActPreview | None, conflicts: tuple[str, ...]) -> ActResult:
        """What the log says of it now."""
        proving: Mapping[type, Callable[[ActPreview | None], ActResult]] = {
            Optimize: self._optimized, Vacuum: self._vacuumed, Restore: self._restored, Repair: self._repaired,
            Alter: self._altered, Clone: self._cloned,
        }  # fmt: skip
        result = proving[type(self.asked.arguments)](planned)
        log.info("table_act_done", table=self.ref.name, act=str(self.asked.kind), version=result.version)
        return replace(result, conflicts=conflicts)

    # OPTIMIZE ------------------------------------------------------------------------------------------------------

    def _optimize(self, asked: Optimize) -> None:
        conf = self.session.conf
        conf.set("spark.databricks.delta.optimize.minFileSize", str(asked.small_bytes))
        conf.set("spark.databricks.delta.optimize.maxFileSize", str(asked.target_bytes))
        where = " AND ".join(_equals(name, value) for name, value in asked.partition.items())
        clause = f" WHERE {where}" if where else ""
        if asked.purge:
            self.session.sql(f"REORG TABLE {self._name}{clause} APPLY (PURGE)")
            return
        order = ", ".join(map(quoted, asked.zorder_by))
        full = " FULL" if asked.full else ""
        self.session.sql(f"OPTIMIZE {self._name}{full}{clause}{f' ZORDER BY ({order})' if order else ''}")

    def _optimized(self, _: ActPreview | None) -> ActResult:
        """Its commits are looked at one by one: what others wrote in between is theirs."""
        commits = self.own_commits()
        files = {"files_in": 0, "bytes_in": 0, "files_out": 0, "bytes_out": 0}
        rows: dict[str, int | None] = {"in": 0, "out": 0}
        for commit in commits:
            difference = self.lake.file_difference(self.ref, commit.version - 1, commit.version)
            for side, table in (("in", difference.only_first), ("out", difference.only_second)):
                files[f"files_{side}"] += table.num_rows
                files[f"bytes_{side}"] += sum(table["size_bytes"].to_pylist())
                counted, known = table["num_records"], rows[side]
                live = None if counted.null_count else sum(counted.to_pylist()) - sum(table["deleted_rows"].to_pylist())
                rows[side] = None if known is None or live is None else known + live
        holds = None if None in rows.values() else rows["in"] == rows["out"]
        told = "a file does not say its rows"
        if holds is not None:
            told = f"{rows['in']:,} live rows in, {rows['out']:,} out"
        effect = (
            f"{things(files['files_in'], 'file')} ({bytes_text(files['bytes_in'])}) became "
            f"{things(files['files_out'], 'file')} ({bytes_text(files['bytes_out'])})"
            if commits
            else "nothing was left to merge"
        )
        if commits:
            effect += self._look_ups(commits[-1].version - 1, commits[0].version)
        proofs = [Proof("the same rows", holds, told)] if commits else []
        asked = self.asked.arguments
        if commits and isinstance(asked, Optimize) and asked.prove_rows:
            proofs.append(rewritten_proof(self.session, map(self._around, commits)))
        return ActResult(effect, self.lake.latest_version(self.ref), files, tuple(proofs))

    def _around(self, commit: Commit) -> tuple[Snapshot, Snapshot]:
        return self.lake.snapshot(self.ref, commit.version - 1), self.lake.snapshot(self.ref, commit.version)

    def _look_ups(self, before: int, after: int) -> str:
        """What finding a value cost in two versions, where the statistics tell it of both by one column."""
        asked = self.asked.arguments
        assert isinstance(asked, Optimize)
        was = look_up(self.lake.snapshot(self.ref, before), asked.zorder_by)
        now = was and look_up(self.lake.snapshot(self.ref, after), (was.column,))
        if was is None or now is None or was.column != now.column:
            return ""
        return f"; {now.look_up_text}, before {was.average_text}"

    # VACUUM --------------------------------------------------------------------------------------------------------

    def _vacuumed(self, planned: ActPreview | None) -> ActResult:
        """Every file that versions within the retention need is looked for."""
        snapshot = self.lake.snapshot(self.ref)
        retention = retention_of(snapshot.metadata.configuration, DELETED_FILES)
        now = self.job.requested_at
        assert retention.duration is not None and planned is not None
        left = self.lake.unneeded_files(self.ref, removed_before=now - retention.duration)
        before, size = planned.figures["files"] or 0, planned.figures["size_bytes"] or 0
        oldest = self.lake.version_at(self.ref, now - retention.duration)
        *_, seen = self.lake.see_files(self.ref, oldest or 0, sample=None)
        *_, latest = self.lake.see_files(self.ref, snapshot.version, sample=None)
        missing = seen.missing + latest.missing
        looked = f"all {seen.total:,} files of v{seen.version} and {latest.total:,} of v{latest.version} are there"
        gone = f"{things(missing, 'file')} of v{seen.version} or v{latest.version} are missing"
        proof = Proof("versions within the retention are whole", missing == 0, gone if missing else looked)
        effect = f"{things(before - len(left.paths), 'file')} ({bytes_text(size - left.size_bytes)}) were deleted"
        figures = {
            "files": before - len(left.paths),
            "size_bytes": size - left.size_bytes,
            "files_left": len(left.paths),
        }
        return ActResult(effect, snapshot.version, figures, (proof,))

    # RESTORE -------------------------------------------------------------------------------------------------------

    def _restore(self, asked: Restore) -> None:
        self._table.restoreToVersion(asked.to_version)
        self._keep_properties(asked)

    def _keep_properties(self, asked: Restore) -> None:
        """Those of the version that was previewed, which is the one before the restore."""
        if asked.keeps_properties:
            kept = self.lake.snapshot(self.ref, self.asked.version).metadata.configuration
            then = self.lake.snapshot(self.ref, asked.to_version).metadata.configuration
            ours = {key: value for key, value in kept.items() if not key.startswith(OF_ENGINES)}
            others = [key for key in then if key not in kept and not key.startswith(OF_ENGINES)]
            changed = {key: value for key, value in ours.items() if then.get(key) != value}
            for statement in (*set_statements(self._name, changed), *unset_statements(self._name, others)):
                self.session.sql(statement)

    def _restored(self, _: ActPreview | None) -> ActResult:
        asked = self.asked.arguments
        assert isinstance(asked, Restore)
        own = self.own_commits()
        latest = own[0].version if own else self.lake.latest_version(self.ref)
        difference = self.lake.file_difference(self.ref, asked.to_version, latest)
        odd = difference.only_first.num_rows + difference.only_second.num_rows
        told = f"{things(odd, 'file')} differ" if odd else f"every file of v{latest} is one of v{asked.to_version}"
        rows = self.lake.snapshot(self.ref, latest).num_rows
        proof = Proof("it is what it was", odd == 0, told)
        return ActResult(f"v{asked.to_version} is the latest again", latest, {"rows": rows}, (proof,))

    # repair --------------------------------------------------------------------------------------------------------

    def _repaired(self, planned: ActPreview | None) -> ActResult:
        asked, own = self.asked.arguments, self.own_commits()
        assert isinstance(asked, Repair)
        latest = own[0].version if own else self.lake.latest_version(self.ref)
        return repaired(self.session, self.ref.uri, asked, Repaired(latest, self._rows_moved(own), planned))

    def _rows_moved(self, own: list[Commit]) -> OperationMetrics:
        """By the commit's own metrics; Spark leaves them out where whole files went and no row came."""
        metrics = own[0].metrics if own else OperationMetrics(rows_inserted=0, rows_updated=0, rows_deleted=0)
        if metrics.rows_deleted is not None or metrics.files_added != 0:
            return metrics
        before, after = (self.lake.snapshot(self.ref, own[0].version - back).num_rows for back in (1, 0))
        gone = None if before is None or after is None else before - after
        return replace(metrics, rows_inserted=0, rows_deleted=gone)

    # metadata ------------------------------------------------------------------------------------------------------

    def _alter(self, asked: Alter) -> None:
        metadata = self.lake.snapshot(self.ref).metadata
        for name in missing_constraints(asked, metadata):
            require_one_reading(Repair(asked.add_constraints[name]), table_rows(self.session, self.ref.uri))
        for statement in statements(asked, metadata, self._name):
            self.session.sql(statement)

    def _altered(self, _: ActPreview | None) -> ActResult:
        asked = self.asked.arguments
        assert isinstance(asked, Alter)
        snapshot = self.lake.snapshot(self.ref)
        return ActResult(
            ", ".join(asked.words()), snapshot.version, {}, tuple(altered_proofs(asked, snapshot.metadata))
        )

    # copy ----------------------------------------------------------------------------------------------------------

    def _cloned(self, _: ActPreview | None) -> ActResult:
        asked = self.asked.arguments
        assert isinstance(asked, Clone)
        return cloned(self.session, self.lake, self.ref, asked)


def _told(commit: Commit) -> str:
    by = commit.origin.stream if commit.origin and commit.origin.stream else commit.user or commit.job or ""
    return f"v{commit.version} {commit.operation or 'a commit'}{f' by {by}' if by else ''}"


def _equals(name: str, value: str | None) -> str:
    return f"{quoted(name)} IS NULL" if value is None else f"{quoted(name)} = {literal(value)}"
