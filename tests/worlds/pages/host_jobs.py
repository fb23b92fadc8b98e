"""Questions of a page that a stream host answers: a real store and result tables as a host leaves them, no Spark."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
from deltalake import write_deltalake
from streamlit.testing.v1 import AppTest

from backend.changes.changed_rows import Pairing, RowBucket
from backend.changes.host_job import SUMMARY, DiffSummary
from backend.changes.model import DiffMethod
from backend.jobs.documents import HostAnswer, to_document
from backend.jobs.model import Job, JobEnd, JobProgress, JobState
from backend.query.answer import PLACE
from backend.store.leases import job_resource
from backend.store.store import ControlStore
from tests.worlds.lake import builders
from tests.worlds.pages.opened import open_page, param, press
from tests.worlds.store.stream_store import HOST, beat

QUERY = 'SELECT order_id, amount FROM "silver/orders" ORDER BY order_id'
_ROW = pa.struct([("c0", pa.int64()), ("c1", pa.string())])
_CHANGES = pa.schema(
    [("what", pa.string()), ("number", pa.int64()), ("n", pa.int64()), ("detail", pa.string()), ("before", _ROW),
     ("after", _ROW)]
)  # fmt: skip


@dataclass
class World:
    """A home with a table to ask about, and the store that the pages open."""

    home: Path
    store: ControlStore

    def job(self) -> Job:
        """The only job that was asked for."""
        (job,) = self.store.jobs.unfinished()
        return job

    def run(self, job: Job, end: JobEnd | None = None) -> None:
        """As the host would: begin, say how far it is, and end."""
        now = datetime.now(UTC)
        lease = self.store.acquire(job_resource(job.job_id), HOST, ttl_s=60)
        assert lease is not None
        self.store.jobs.begin(lease, job.job_id, now=now)
        self.store.jobs.report(lease, job.job_id, JobProgress("comparing rows", 3, 8))
        if end is not None:
            self.store.jobs.end(lease, job.job_id, end, now=now)

    def write_result(self, job: Job, rows: pa.Table) -> str:
        uri = self.home / "results" / f"{job.job_id}-1"
        uri.parent.mkdir(exist_ok=True)
        write_deltalake(uri, rows)
        return str(uri)


def three_versions(path: Path) -> Path:
    """0 orders 1 to 3, 1 order 4, 2 order 1 is gone and order 2 paid."""
    builders.write(path, {"order_id": [1, 2, 3], "status": ["new"] * 3})
    builders.write(path, {"order_id": [4], "status": ["new"]})
    return builders.write(path, {"order_id": [2, 3, 4], "status": ["paid", "new", "new"]}, mode="overwrite")


class ChangesOnHost:
    """The Changes page, with versions that differ by more than is read where the page is."""

    page, table, build = "changes", "orders", staticmethod(three_versions)
    link: ClassVar[dict[str, str]] = {"table": "orders", "from_": "0", "to": "2", "key": "order_id"}
    settings: ClassVar[dict[str, str]] = {"WEIR_LAKE__DIFF_MAX_BYTES": "1"}
    kind, ask, start = "diff", "to_host", "start_job"
    shown, cancelled = "1 row inserted, 1 updated, 1 deleted", "Cancelled: no row was kept."

    @staticmethod
    def answer(world: World, job: Job, *, truncated: bool = False) -> JobEnd:
        """As Spark writes it: order 2 was paid, order 1 is gone, order 4 came."""
        summary = DiffSummary(
            DiffMethod.KEY_JOIN, Pairing(("order_id", "status"), ("order_id",)),
            {
                "insert": RowBucket(1, 1 + truncated, 1, 0),
                "update": RowBucket(1, 1, 1, 1),
                "delete": RowBucket(1, 1, 0, 1),
            },
            {"status": 1},
            by="by Spark 4.2.0 on host-a",
        )  # fmt: skip
        new = [{"c0": i, "c1": "new"} for i in (1, 2, 4)]
        rows = [
            (SUMMARY, 0, 0, to_document(summary), None, None),
            ("insert", 0, 1, None, None, new[2]),
            ("update", 0, 1, None, new[1], {"c0": 2, "c1": "paid"}),
            ("delete", 0, 1, None, new[0], None),
        ]
        table = pa.Table.from_pylist([dict(zip(_CHANGES.names, row, strict=True)) for row in rows], _CHANGES)
        return JobEnd(JobState.DONE, world.write_result(job, table))


class QueryOnHost:
    """The Query page."""

    page, table, build = "query", "silver/orders", staticmethod(builders.orders_table)
    link: ClassVar[dict[str, str]] = {"query": QUERY}
    settings: ClassVar[dict[str, str]] = {}
    kind, ask, start = "query", "query_host", "start_job"
    shown, cancelled = "2 rows from silver/orders v", "Cancelled: no row was kept."

    @staticmethod
    def answer(
        world: World, job: Job, *, is_cut: bool = False, columns: tuple[str, str] = ("order_id", "amount")
    ) -> JobEnd:
        """Rows as a host keeps them, which a reader gives in any order."""
        uri = world.write_result(job, pa.table({PLACE: [2, 1], "c0": [20, 10], "c1": [2.5, 1.5]}))
        answer = HostAnswer(columns, 2, is_cut, "Spark 4.2.0 on host-a")
        return JobEnd(JobState.DONE, uri, answer=to_document(answer))


OnHost = type[ChangesOnHost] | type[QueryOnHost]


def asked(world: World, question: OnHost, **more: str) -> AppTest:
    """The page after its button was pressed, with a host that is alive."""
    beat(world.store, datetime.now(UTC))
    return press(open_page(question.page, **question.link | more), question.ask)


def linked(app: AppTest, question: OnHost) -> AppTest:
    """A second viewer, or a reload: the page as this one's URL opens it."""
    return open_page(question.page, **{key: param(app, key) for key in app.query_params})
