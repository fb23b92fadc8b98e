"""Acts on tables, done by Spark and proven from the log: OPTIMIZE, VACUUM, RESTORE, properties.

Rule: what was previewed is looked at again first; where that changed, nothing is done. A job that is begun twice does
not act twice: its commits carry its id, and behind the first of them it carries on. An act that a concurrent commit
broke is tried again, a restore and a repair never.
"""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import structlog
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from backend.access import Actor
from backend.errors import StreamRefusedError
from backend.format import bytes_text, cut, things
from backend.jobs.model import Job
from backend.lake.catalog import layer_of
from backend.lake.files.clustering import look_up
from backend.lake.lake import Lake
from backend.lake.model import Commit, OperationMetrics, TableRef
from backend.lake.retention.runs import DELETED_FILES, retention_of
from backend.lake.storage.storage import Storage
from backend.maintenance.alter import OF_ENGINES, checks
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
from backend.maintenance.restore import load_rewind
from backend.redaction import without_secrets
from backend.settings import Settings
from backend.store.store import ControlStore
from backend.streams.faults import CONFLICTS
from backend.streams.reset import CheckpointMove, TableBack, read_move
from pipelines.jobs.alter import altered_proofs, literal, rehearse, set_statements, statements, unset_statements
from pipelines.jobs.clone_and_drop import Dropping, clone_commits, clone_statement, cloned
from pipelines.jobs.rows import repair_table, repaired, require_one_reading, rewritten_proof, table_rows, why_failed
from pipelines.jobs.stream_acts import ActListener, set_back, write_move
from pipelines.jvm.failures import describe
from pipelines.jvm.hadoop import CheckpointFiles, spark_uri
from pipelines.sinks.commits import sign
from pipelines.specs.tables import quoted

MOST_TRIES = 3
_LONGEST_REFUSAL = 1_000  # characters of what Delta says
_AT_ONCE_S = 1e-9
PAUSE_S, MOST_S = 0.5, 900.0  # that a stream is waited for until it has stopped
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
        root = Storage(self._settings).root_of(act.uri) if moves else ""
        ref = TableRef(act.uri, act.name, root, layer_of(act.name)) if moves else lake.find(act.uri)
        work = _Work(session, lake, ref, act, job, f"{self._settings.checkpoints_uri}/.rehearsed/{job.job_id}")
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
                return work.done(None)
            return work.done(planned, self._do(work, planned))

    def _rewound(self, work: "_Work", asked: Rewind, listener: ActListener) -> ActResult:
        """A plan that is written down is carried on with, whichever host wrote it."""
        settings, job, files = self._settings, work.job, CheckpointFiles(work.session)
        move = read_move(settings, asked.stream, job.job_id)
        if move is None or move.batch is None:
            self._previewed(work)
            users, now, table = self._users(work), self._store.now(), work.lake.snapshot(work.ref)
            back = load_rewind(settings, work.lake, self._store, table, asked, users, now=now)
            versions = {spark_uri(uri): version for uri, version in back.versions.items()}
            move = CheckpointMove.of(job, str(job.kind), versions, batch=back.batch, tables=back.tables)
            write_move(settings, asked.stream, move, files)
        listener.changes(f"rewind of {asked.stream}")
        restored = [work.restored(table) for table in move.tables]
        checkpoint = set_back(settings, asked.stream, f"{settings.checkpoints_uri}/{asked.stream}", move, files)
        proofs = [
            replace(proof, what=f"{table.name} is what it was")
            for table, result in zip(move.tables, restored, strict=True)
            for proof in result.proofs
        ]
        log.info("stream_rewound", stream=asked.stream, batch=move.batch, table=work.ref.name)
        effect = f"{restored[0].effect}; {asked.stream} goes on behind batch {move.batch}"
        return ActResult(effect, restored[0].version, {"batch": move.batch}, (*proofs, checkpoint))

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
                    if not isinstance(planned.act.arguments, Alter):
                        raise
                    # What names the column or the constraint often stands in the lines beneath the first.
                    lines = " ".join(str(exc).split()) if isinstance(exc, PySparkException) else message
                    reason = cut(without_secrets(lines), _LONGEST_REFUSAL)
                    raise StreamRefusedError(f"Delta refuses it: {reason}", hint=f"it calls it {error_class}") from exc
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
    rehearsal: str  # a folder of the job's own

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
                commit = repair.of_commit
                ends = [] if commit is None else [self.lake.snapshot(self.ref, v) for v in (commit - 1, commit)]
                repair_table(self.session, self.ref.uri, repair, ends)
            case Alter() as alter:
                self._alter(alter)
            case Clone() as clone:
                self.session.sql(clone_statement(self.lake, self.ref, clone))

    def restored(self, back: TableBack) -> ActResult:
        """A table of a rewound stream as it was, with the properties of today."""
        asked = Restore(back.to_version, keeps_properties=True)
        act = TableAct(back.uri, back.name, back.version, asked)
        work = replace(self, ref=self.lake.find(back.uri), asked=act)
        work.carry_on() if work.own_commits() else work._restore(asked)
        return work.done(None)

    def carry_on(self) -> None:
        """After a host that died behind the first of its commits."""
        if isinstance(self.asked.arguments, Restore):
            self._keep_properties(self.asked.arguments)
        elif isinstance(self.asked.arguments, Alter):
            self._alter(self.asked.arguments)

    def done(self, planned: ActPreview | None, conflicts: tuple[str, ...] = ()) -> ActResult:
        """What the log says of it now."""
        match self.asked.arguments:
            case Optimize() as optimize:
                result = self._optimized(optimize)
            case Restore() as restore:
                result = self._restored(restore)
            case Repair() as repair:
                result = self._repaired(repair, planned)
            case Alter() as alter:
                snapshot = self.lake.snapshot(self.ref)
                proofs = tuple(altered_proofs(alter, snapshot.metadata))
                result = ActResult(", ".join(alter.words()), snapshot.version, {}, proofs)
            case Clone() as clone:
                result = cloned(self.session, self.lake, self.ref, clone)
            case _:
                assert planned is not None
                result = self._vacuumed(planned)
        log.info("table_act_done", table=self.ref.name, act=str(self.asked.kind), version=result.version)
        return replace(result, conflicts=conflicts)

    # OPTIMIZE ------------------------------------------------------------------------------------------------------

    def _optimize(self, asked: Optimize) -> None:
        conf = self.session.conf
        conf.set("spark.databricks.delta.optimize.minFileSize", str(asked.small_bytes))
        conf.set("spark.databricks.delta.optimize.maxFileSize", str(asked.target_bytes))
        equals = (
            f"{quoted(name)} {'IS NULL' if value is None else f'= {literal(value)}'}"
            for name, value in asked.partition.items()
        )
        clause = f" WHERE {' AND '.join(equals)}" if asked.partition else ""
        if asked.purge:
            self.session.sql(f"REORG TABLE {self._name}{clause} APPLY (PURGE)")
            return
        order = ", ".join(map(quoted, asked.zorder_by))
        full = " FULL" if asked.full else ""
        self.session.sql(f"OPTIMIZE {self._name}{full}{clause}{f' ZORDER BY ({order})' if order else ''}")

    def _optimized(self, asked: Optimize) -> ActResult:
        """Its commits are looked at one by one: what others wrote in between is theirs."""
        commits, latest = self.own_commits(), self.lake.latest_version(self.ref)
        files = {"files_in": 0, "bytes_in": 0, "files_out": 0, "bytes_out": 0}
        if not commits:
            return ActResult("nothing was left to merge", latest, files)
        rows: dict[str, int | None] = {"in": 0, "out": 0}
        versions = [commit.version for commit in commits]
        around = [(self.lake.snapshot(self.ref, v - 1), self.lake.snapshot(self.ref, v)) for v in versions]
        for commit in commits:
            difference = self.lake.file_difference(self.ref, commit.version - 1, commit.version)
            for side, table in (("in", difference.only_first), ("out", difference.only_second)):
                files[f"files_{side}"] += table.num_rows
                files[f"bytes_{side}"] += sum(table["size_bytes"].to_pylist())
                counted, known = table["num_records"], rows[side]
                live = None if counted.null_count else sum(counted.to_pylist()) - sum(table["deleted_rows"].to_pylist())
                rows[side] = None if known is None or live is None else known + live
        effect = (
            f"{things(files['files_in'], 'file')} ({bytes_text(files['bytes_in'])}) became "
            f"{things(files['files_out'], 'file')} ({bytes_text(files['bytes_out'])})"
        )
        # What finding a value cost before and costs now, where the statistics tell it of both by one column.
        was = look_up(around[-1][0], asked.zorder_by)
        now = was and look_up(around[0][1], (was.column,))
        if was is not None and now is not None and was.column == now.column:
            effect += f"; {now.look_up_text}, before {was.average_text}"
        proofs = [Proof("the same rows", None, "a file does not say its rows")]
        if None not in rows.values():
            detail = f"{rows['in']:,} live rows in, {rows['out']:,} out"
            proofs = [Proof("the same rows", rows["in"] == rows["out"], detail)]
        if asked.prove_rows:
            proofs.append(rewritten_proof(self.session, around))
        return ActResult(effect, latest, files, tuple(proofs))

    # VACUUM --------------------------------------------------------------------------------------------------------

    def _vacuumed(self, planned: ActPreview) -> ActResult:
        """Every file that versions within the retention need is looked for."""
        snapshot, now = self.lake.snapshot(self.ref), self.job.requested_at
        retention = retention_of(snapshot.metadata.configuration, DELETED_FILES).duration
        assert retention is not None
        left = self.lake.folder_files(self.ref).unneeded(removed_before=now - retention)
        oldest = self.lake.version_at(self.ref, now - retention)
        *_, seen = self.lake.see_files(self.ref, oldest or 0, sample=None)
        *_, latest = self.lake.see_files(self.ref, snapshot.version, sample=None)
        missing = seen.missing + latest.missing
        looked = f"all {seen.total:,} files of v{seen.version} and {latest.total:,} of v{latest.version} are there"
        gone = f"{things(missing, 'file')} of v{seen.version} or v{latest.version} are missing"
        proof = Proof("versions within the retention are whole", missing == 0, gone if missing else looked)
        files = (planned.figures["files"] or 0) - len(left.paths)
        size_bytes = (planned.figures["size_bytes"] or 0) - left.size_bytes
        figures = {"files": files, "size_bytes": size_bytes, "files_left": len(left.paths)}
        effect = f"{things(files, 'file')} ({bytes_text(size_bytes)}) were deleted"
        return ActResult(effect, snapshot.version, figures, (proof,))

    # RESTORE -------------------------------------------------------------------------------------------------------

    def _restore(self, asked: Restore) -> None:
        DeltaTable.forPath(self.session, spark_uri(self.ref.uri)).restoreToVersion(asked.to_version)
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

    def _restored(self, asked: Restore) -> ActResult:
        own = self.own_commits()
        latest = own[0].version if own else self.lake.latest_version(self.ref)
        difference = self.lake.file_difference(self.ref, asked.to_version, latest)
        odd = difference.only_first.num_rows + difference.only_second.num_rows
        told = f"{things(odd, 'file')} differ" if odd else f"every file of v{latest} is one of v{asked.to_version}"
        rows = self.lake.snapshot(self.ref, latest).num_rows
        proof = Proof("it is what it was", odd == 0, told)
        return ActResult(f"v{asked.to_version} is the latest again", latest, {"rows": rows}, (proof,))

    # repair --------------------------------------------------------------------------------------------------------

    def _repaired(self, asked: Repair, planned: ActPreview | None) -> ActResult:
        """By the commit's own metrics; Spark leaves them out where whole files went and no row came."""
        own = self.own_commits()
        latest = own[0].version if own else self.lake.latest_version(self.ref)
        metrics = own[0].metrics if own else OperationMetrics(rows_inserted=0, rows_updated=0, rows_deleted=0)
        if metrics.rows_deleted is None and metrics.files_added == 0:
            before, after = (self.lake.snapshot(self.ref, version).num_rows for version in (latest - 1, latest))
            gone = None if before is None or after is None else before - after
            metrics = replace(metrics, rows_inserted=0, rows_deleted=gone)
        return repaired(self.session, self.ref.uri, asked, latest, metrics, planned)

    # metadata ------------------------------------------------------------------------------------------------------

    def _alter(self, asked: Alter) -> None:
        snapshot, begun = self.lake.snapshot(self.ref), bool(self.own_commits())
        present = checks(snapshot.metadata)
        for name, condition in asked.add_constraints.items():
            if name not in present:
                require_one_reading(Repair(condition), table_rows(self.session, self.ref.uri))
        todo = list(statements(asked, snapshot.metadata, self._name, begun=begun))
        if len(todo) > 1 and not begun:
            rehearse(self.session, snapshot, lambda name: statements(asked, snapshot.metadata, name), self.rehearsal)
        for statement in todo:
            self.session.sql(statement)


# streams that write the table ------------------------------------------------------------------------------------


@contextmanager
def stopped_writers(
    store: ControlStore, job: Job, act: TableAct, users: Callable[[], Users], listener: ActListener
) -> Iterator[frozenset[str]]:
    """Stop, act, start in one request: the streams that the job stopped, while an act changes the rows of their table.

    Only what the job itself stopped does it start again, however it ends; a person who asked for something else before
    or meanwhile is not overruled. A host that takes the job over knows by the reason which streams those are. `users`:
    who uses the table, as of now. Raises `StreamRefusedError` where one does not stop.
    """
    if not (isinstance(act.arguments, Restore | Repair) and act.arguments.stops_writers):
        yield frozenset()
        return
    actor, reason = Actor(job.actor), f"{act.kind} of {act.name}, job {job.job_id}"
    wanted = store.desired()
    running = [name for name in users().stoppable_writers if name not in wanted or not wanted[name].wants_stop]
    if running:
        store.request_all(running, "stop", reason=reason, actor=actor, now=store.now())
    ours = frozenset(name for name, desired in store.desired().items() if desired.reason == reason)
    try:
        _wait(lambda: users().stoppable_writers, listener)
        yield ours
    finally:
        still = [name for name, desired in store.desired().items() if name in ours and desired.reason == reason]
        if still:
            store.request_all(still, "start", reason=reason, actor=actor, now=store.now())


def _wait(running: Callable[[], tuple[str, ...]], listener: ActListener) -> None:
    give_up = time.monotonic() + MOST_S
    while names := running():
        listener.tell(f"waiting for {', '.join(names)} to stop")
        if time.monotonic() > give_up:
            raise StreamRefusedError(
                f"{', '.join(names)} did not stop within {MOST_S:.0f} s", hint="stop it, then ask for the act again"
            )
        time.sleep(PAUSE_S)


def _told(commit: Commit) -> str:
    by = commit.origin.stream if commit.origin and commit.origin.stream else commit.user or commit.job or ""
    return f"v{commit.version} {commit.operation or 'a commit'}{f' by {by}' if by else ''}"
