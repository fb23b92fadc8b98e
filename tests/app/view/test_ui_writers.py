"""Who wrote a commit: the same words on History, Summary, Changes and First bad version."""

from dataclasses import replace

import pytest

from app.history.view.commits import Known, commits_frame
from app.search.text import commit_facts, commit_text
from app.summary.view.summary import writers_sentence
from app.ui.view.writers import last_by_another, writer_text
from backend.lake.model import StreamOrigin
from tests.worlds.lake.made import NOW, commit

QUERY = "7c1b0a12-0000"


@pytest.mark.parametrize(
    ("origin", "names", "stream", "batch"),
    [
        (StreamOrigin("orders", QUERY, None, 41), {}, "orders", ", batch 41"),
        (StreamOrigin("orders", None, None, None), {}, "orders", ""),
        (StreamOrigin(None, QUERY, None, 0), {QUERY: "orders"}, "orders", ", batch 0"),
        (StreamOrigin(None, QUERY, None, None), {}, "query 7c1b0a12", ""),
    ],
)
def test_a_stream_and_its_batch(origin: StreamOrigin, names: dict[str, str], stream: str, batch: str) -> None:
    wrote = replace(commit(1), origin=origin, user="ann")
    assert writer_text(wrote, names) == stream + batch
    assert commits_frame([wrote], NOW, Known(names))["Who"].tolist() == [stream + batch]
    assert commit_text(wrote, names).startswith(f"WRITE by stream {stream}{batch}, 2026")
    assert commit_facts(wrote, names)["Stream"] == stream + batch
    assert writers_sentence([wrote], names) == f"Its only commit is by stream {stream}."


def test_else_the_user_else_the_engine() -> None:
    assert writer_text(replace(commit(1), user="ann"), {}) == "ann"
    assert writer_text(commit(1), {}) == "Spark"
    assert writer_text(replace(commit(1), engine=None), {}) == "–"


def test_the_last_commit_by_another_writer() -> None:
    batches = [replace(commit(v), origin=StreamOrigin(None, query, None, v)) for v, query in ((4, "q2"), (3, "q1"))]
    ann, bob = replace(commit(2), user="ann"), replace(commit(1), user="bob")
    assert last_by_another([*batches, ann], {"q1": "orders", "q2": "orders"}) == ann, "batches of one stream"
    assert last_by_another([*batches, ann], {}) == batches[1]
    assert last_by_another([ann, replace(ann, version=1), bob], {}) == bob
    assert last_by_another([ann], {}) is None and last_by_another([], {}) is None
