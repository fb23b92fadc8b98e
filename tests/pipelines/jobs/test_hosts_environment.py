"""What acts are given, and why, is written down as it was typed: Spark reads no variable of its host in it."""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from backend.access import Actor
from backend.jobs.model import JobKind, JobRequest, JobState
from backend.maintenance.model import (
    Alter,
    Arguments,
    Clone,
    Drop,
    Intent,
    Optimize,
    Purge,
    Repair,
    Restore,
    Rewind,
    Undrop,
    Vacuum,
    act_job,
)
from backend.maintenance.policies import PolicyPlans
from backend.streams.requeue import load_request, requeue_job
from backend.streams.reset import ResetLevel, ResetRequest, reset_job
from backend.table_policies import TablePolicy
from pipelines import expect, table
from pipelines.declare.pipeline import declaration
from tests.worlds.cases import few
from tests.worlds.spark.act_host import ActHost, ActTable
from tests.worlds.spark.declared import pipeline_of

pytestmark = [pytest.mark.spark, pytest.mark.ci, pytest.mark.timeout(600)]

HIDDEN = "${env:PATH}"
ANA, REASON, STREAM = Actor(f"ana {HIDDEN}"), f"to see {HIDDEN}", "silver_orders"
OF_STREAMS, MOVED = (JobKind.RESET, JobKind.REQUEUE, JobKind.REWIND), (JobKind.DROP, JobKind.UNDROP, JobKind.PURGE)
# Conditions and values that Spark evaluates; every kind hands on its reason by the same way.
EVALUATED = (JobKind.ALTER, JobKind.REPAIR)
OTHERS = [(kind,) for kind in JobKind if kind.is_act and kind not in EVALUATED]


class HidingTable(ActTable):
    NAME = f"sales/{HIDDEN}"


ARGUMENTS = {
    arguments.kind: arguments
    for arguments in (
        Optimize({"day": HIDDEN}, prove_rows=True),
        Vacuum(),
        Restore(2, keeps_properties=True),
        Rewind(1),
        Repair(f"\"day\" = '{HIDDEN}' AND id < 5", {"id": f"length('{HIDDEN}')"}),
        Alter({"more": HIDDEN}, ("note",), HIDDEN * 2, {"n": "int"}, {"n": HIDDEN}, add_constraints={
            "odd": f"day <> 'x{HIDDEN}'"
        }),
        Clone(f"kept/{HIDDEN}"),
        Drop(),
        Undrop(HidingTable.NAME),
        Purge(HidingTable.NAME),
    )
}  # fmt: skip

BEFORE: Mapping[JobKind, Arguments] = {
    JobKind.VACUUM: Alter({"delta.deletedFileRetentionDuration": "interval 0 seconds"}),
    JobKind.UNDROP: Drop(),
    JobKind.PURGE: Drop(),
}


def table_host(spark: SparkSession, home: Path) -> HidingTable:
    host = HidingTable(spark, home)
    host.write(HIDDEN, HIDDEN, "b")
    host.act(Alter({"note": HIDDEN}, comment=HIDDEN))
    host.sql("DELETE FROM {} WHERE day = 'b'")
    return host


def stream_host(spark: SparkSession, home: Path) -> ActHost:
    """Its stream has written two batches, and quarantined a row of each."""
    source, rules = str(home / "lake" / "bronze" / "orders"), [expect("known", "id > 0", on_violation="quarantine")]

    def add() -> None:
        spark.range(3).selectExpr("id", f"'{HIDDEN}' AS note").write.format("delta").mode("append").save(source)

    add()
    host = ActHost(spark, home, *pipeline_of(
        table(source), name=STREAM, trigger="available now", expectations=rules, table_properties={"note": HIDDEN}
    ).streams)  # fmt: skip
    host.lake.process(STREAM)
    add()
    host.lake.process(STREAM)
    return host


def asked(host: ActHost, kind: JobKind, now: datetime) -> JobRequest:
    if kind is JobKind.RESET:
        return reset_job(ResetRequest(STREAM, ResetLevel.FULL), actor=ANA, reason=REASON)
    if kind is JobKind.REQUEUE:
        declared = declaration(host.registry, host.streams[0], host.settings)
        where = f"note = '{HIDDEN}'"
        return requeue_job(load_request(host.reader(), declared, where, ["id = 7"]), actor=ANA, reason=REASON)
    if before := BEFORE.get(kind):
        host.run(host.submit(host.planned(HidingTable.NAME, before).act))
    name = {JobKind.REWIND: f"silver/{STREAM}", JobKind.UNDROP: "", JobKind.PURGE: ""}.get(kind, HidingTable.NAME)
    planned = host.planned(name, ARGUMENTS[kind])
    intent = Intent.parse(Intent.of(planned, REASON).file((planned.effect,), now=now))
    return act_job(intent.act, actor=ANA, reason=intent.reason)


def require_unread(host: ActHost, wanted: JobRequest) -> None:
    """Runs the job; asserts that the host's value is in no log, answer or audit below its home, but what was typed."""
    home, job = host.settings.home, host.ended(host.store.jobs.submit(wanted, now=datetime.now(UTC)))
    assert job.state is JobState.DONE, job.error
    written = b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())
    assert os.environ["PATH"].encode() not in written
    lines = [line for path in home.rglob("_delta_log/*.json") for line in path.read_text().splitlines()]
    stamps = [json.loads(line).get("commitInfo", {}).get("userMetadata", "{}") for line in lines]
    own = [json.loads(stamp) for stamp in stamps if job.job_id in stamp]
    assert all((stamp["by"], stamp["reason"]) == (job.actor, job.reason) for stamp in own)
    assert HIDDEN in job.reason and (own or job.kind in MOVED)


@pytest.mark.parametrize("kinds", few(1, [EVALUATED, *OTHERS]))
def test_no_kind_of_act_and_no_policy_reads_the_environment_of_its_host(
    spark: SparkSession, tmp_path: Path, kinds: Sequence[JobKind]
) -> None:
    host = (stream_host if kinds[0] in OF_STREAMS else table_host)(spark, tmp_path)
    for kind in kinds:
        require_unread(host, asked(host, kind, datetime.now(UTC)))
    if kinds is not EVALUATED:
        return
    policy = {"tables": HidingTable.NAME, "optimize": {"spares_files": 1}}
    settings = host.settings.model_copy(update={"policies": [TablePolicy.model_validate(policy)]})
    (plan,) = PolicyPlans(settings, host.reader()).plans(host.store, now=datetime.now(UTC))
    assert plan.job is not None, plan.why_not
    require_unread(host, plan.job)
