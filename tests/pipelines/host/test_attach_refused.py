"""`attach` within one application: a store that cannot be attached to, and an attachment that is closed."""

import json
from importlib import import_module
from pathlib import Path

import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from backend.store.store import ControlStore
from tests.worlds.processes import wait_until

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("store", ["postgresql://orders:pa@ss:s3cret@db/weir", "orders:s3cret"])
def test_no_word_of_an_address_that_cannot_be_read_is_logged(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, store: str
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "attach")
    assert import_module("weir_attach").attach(spark, store) is None
    assert "not attached to Weir: the store's URL cannot be read" in caplog.text
    assert "s3cret" not in caplog.text


def test_after_close_nothing_is_reported_and_a_new_attachment_begins(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "attach")
    attach = import_module("weir_attach").attach
    url = f"sqlite:///{tmp_path}/weir.db"
    ControlStore(url).close()
    before = spark._jsparkSession.streams().listListeners()
    first = attach(spark, url, "first")
    assert attach(spark, url) is first
    first.close()
    assert len(spark._jsparkSession.streams().listListeners()) == len(before), "its listener is off"
    second = attach(spark, url, "second")
    assert second is not first
    query = spark.readStream.format("rate").load().writeStream.queryName("later").format("memory").start()
    try:
        # Not processAllAvailable(): a rate goes on, so it need never return.
        wait_until(lambda: query.lastProgress is not None, "a micro-batch is done")
    finally:
        query.stop()
        first.close()  # once more: it does nothing, to the second one neither
        assert attach(spark, url) is second
        second.close()
    told: dict[str, list[str]] = {}
    with sa.create_engine(url).connect() as connection:
        for app_id, body in connection.execute(sa.text("SELECT app_id, body FROM attached_event ORDER BY id")):
            told.setdefault(app_id, []).append(json.loads(body)["event"])
    ended, after = told.values()
    assert "started" not in ended
    assert ended[-1] == "ended"
    assert "started" in after
    assert after[-1] == "ended"
