"""A control store that cannot be attached to: the application goes on, and the log tells no secret."""

from importlib import import_module
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("store", ["postgresql://orders:pa@ss:s3cret@db/weir", "orders:s3cret"])
def test_no_word_of_an_address_that_cannot_be_read_is_logged(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, store: str
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "attach")
    assert import_module("weir_attach").attach(spark, store) is None
    assert "not attached to Weir: the store's URL cannot be read" in caplog.text
    assert "s3cret" not in caplog.text
