"""Questions to `backend.changes` as tests ask them: what is wanted as keywords."""

from typing import Any

from backend.changes import answer
from backend.changes import prepare as preparation
from backend.changes.model import Limits, Question, VersionDiff
from backend.changes.prepare import PreparedDiff
from backend.lake.model import TableRef
from backend.sql.session import CancelToken

Asked = dict[str, Any]  # fields of a `Question`, and of a comparison its `limits` and who takes all rows


def asked(**options: Any) -> Asked:
    return options


def diff(
    lake: Any, ref: TableRef, first: int, last: int, *, token: CancelToken | None = None, **wanted: Any
) -> VersionDiff:
    means = {name: wanted.pop(name) for name in ("take", "limits") if name in wanted}
    return answer.diff(lake, Question(ref, first, last, **wanted), token, **means)


def prepare(
    lake: Any, ref: TableRef, first: int, last: int, *, limits: Limits = Limits(), **wanted: Any
) -> PreparedDiff:
    return preparation.prepare(lake, Question(ref, first, last, **wanted), limits=limits)
