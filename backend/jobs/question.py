"""What changed between two versions: the question, as page, terminal and stream host ask it alike, and as the document
of a job.

Rule: knows nothing of how it is answered, so that whoever asks which versions a job needs does not load the engine of
diffs. The same question about the same tables is the same text, so its hash names the job that answers it.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import orjson

from backend.errors import DiffError
from backend.lake.model import TableRef

FORMAT = 7  # grows when a former host or page would misread the documents


class DiffMethod(StrEnum):
    """How changed rows were found."""

    CHANGE_FEED = "change_feed"
    ROW_ID = "row_id"  # rows of the files that only one state has, paired by the id that row tracking gave them
    KEY_JOIN = "key_join"  # rows of the files that only one state has, paired by a key
    MULTISET = "multiset"  # the same rows without a key: what came and what went
    LOG_ONLY = "log_only"  # `reasons` say why; everything but rows is still there
    SAME_VERSION = "same_version"  # from = to: nothing to find


@dataclass(frozen=True, slots=True)
class Question:
    """What changed between two versions of a table, or between one of it and one of the table `against`?

    `from_version` may be the newer one: what would going back change? `key` and `columns` are as a person gave them
    (None: the key that is found, all columns), `remembered_key` is the one given last. Only changes whose row satisfies
    the SQL `where` before or after are wanted; floats within `tolerance` are equal. `method` is the only one allowed
    (None: the best). At most `row_limit` changed rows come back. At most `max_bytes` of data files are read here,
    unless a method is named; the stream host (`on_host`) reads any amount. `table_ids` tell tables under one path
    apart; where the table was replaced between the two versions, they are compared `across_replace` as two tables.
    """

    ref: TableRef
    from_version: int
    to_version: int
    against: TableRef | None = None
    key: tuple[str, ...] | None = None
    remembered_key: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    where: str | None = None
    tolerance: float = 0.0
    method: DiffMethod | None = None
    row_limit: int = 1_000
    max_bytes: int | None = None
    on_host: bool = False
    table_ids: tuple[str, ...] = ()
    across_replace: bool = False


def question_text(question: Question) -> str:
    """The document of a job. Where a table's root lies is each process's own affair."""
    body = asdict(question)
    for table in ("ref", "against"):
        if body[table]:
            body[table] = {"uri": body[table]["uri"], "name": body[table]["name"]}
    return to_document(body)


def question_of(text: str, root_of: Callable[[str], str]) -> Question:
    """`root_of` gives the root above an address; raises `DiffError` for a document of another Weir,
    `PathRefusedError` for a table outside every root."""
    body = of_document(text)
    tables = {
        name: TableRef(body[name]["uri"], body[name]["name"], root_of(body[name]["uri"])) if body[name] else None
        for name in ("ref", "against")
    }
    lists = {
        name: None if body[name] is None else tuple(body[name])
        for name in ("key", "remembered_key", "columns", "table_ids")
    }
    method = DiffMethod(body["method"]) if body["method"] else None
    return Question(**{**body, **tables, **lists, "method": method})


def to_document(body: dict[str, Any]) -> str:
    """The text of a question, or of what a host says of its result."""
    return orjson.dumps({"format": FORMAT, **body}, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()


def of_document(text: str) -> dict[str, Any]:
    """Raises `DiffError` for a document of another Weir."""
    body = orjson.loads(text)
    if body.pop("format", None) != FORMAT:
        raise DiffError("this comparison was asked for or made by another version of Weir", hint="compare again")
    return dict(body)
