"""Two versions of a table (or two tables): what the log alone tells of their difference, and which methods can compare
their rows, best first, and why the better ones cannot.

Rule: no row is read here. A method that is not possible leaves its reason behind, and new methods join `_LADDER` in
order of merit.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow.compute as pc

from backend.changes.key import PROPERTY, choose_key, join_columns, likely_keys
from backend.changes.model import (
    CommitChanges,
    DiffMethod,
    FilesDiff,
    KeyChoice,
    KeySource,
    Limits,
    LogChanges,
    Premises,
    Question,
)
from backend.changes.read import (
    DiffInput,
    total,
    two_tables,
    two_versions,
    why_no_row_ids,
    why_not_by_duckdb,
)
from backend.errors import DiffColumnError, DiffError, LakehouseError, QueryError
from backend.format import bytes_text
from backend.lake.files.clustering import declared_clustering
from backend.lake.history.history import predicate_text
from backend.lake.lake import Lake
from backend.lake.model import Commit, Snapshot
from backend.lake.table.metadata_diff import diff_properties, diff_schemas
from backend.lake.table.restricted import refused
from backend.lake.table.schema import column_types, spelled
from backend.sql.expression import check_row_condition, read_expression
from backend.sql.session import open_ahead

_KEY_HISTORY = 200  # commits looked through for MERGE predicates


@dataclass(frozen=True, slots=True)
class DiffPlan:
    """The methods that can answer, best first, and per method what speaks for or against it.

    `bytes_to_read` and `rows_to_read` are of data files (a change feed's are not known before: None).
    """

    methods: tuple[DiffMethod, ...]
    key: KeyChoice | None = None
    why: Mapping[DiffMethod, tuple[str, ...]] = field(default_factory=dict)
    against: Mapping[DiffMethod, str] = field(default_factory=dict)
    key_reasons: tuple[str, ...] = ()
    first_covered_version: int | None = None
    hint: str = ""
    bytes_to_read: int | None = None
    rows_to_read: int | None = None

    @property
    def method(self) -> DiffMethod:
        return self.methods[0]

    def reasons(self, method: DiffMethod, failed: Mapping[DiffMethod, str] | None = None) -> tuple[str, ...]:
        """What speaks for a method of the plan, and against each better one (`failed`: found out by trying)."""
        known = {**self.against, **(failed or {})}
        names: dict[str, list[str]] = {}
        for each in itertools.takewhile(lambda each: each is not method, _LADDER):
            if each in known:
                names.setdefault(known[each], []).append(METHOD_NAMES[each])
        said = tuple(f"not by {' or '.join(each)}: {reason}" for reason, each in names.items())
        return (*self.why.get(method, ()), *said, *self.key_reasons)


def _plan(lake: Lake, given: DiffInput, question: Question) -> DiffPlan:
    """The methods that the log allows; raises `DiffError` when the one asked for is not among them."""
    newer, low, high, is_one_table = given.newer, given.low, given.high, given.is_one_table
    if is_one_table and low == high:
        choose_key(question.key, newer.metadata, ())  # raises for one that is not there
        same = ("both sides are the same version: nothing can differ",)
        return DiffPlan((DiffMethod.SAME_VERSION,), why={DiffMethod.SAME_VERSION: same})
    for hidden in [side.hidden for side in (given.first, given.second) if side.hidden and side.hidden.is_all]:
        error = refused(hidden)
        return DiffPlan((DiffMethod.LOG_ONLY,), why={DiffMethod.LOG_ONLY: (error.message,)}, hint=error.hint)
    key, key_reasons = _key(lake, newer, question)
    if key is None and not is_one_table:
        key, key_reasons = _key(lake, given.first, question)
    if is_one_table and given.first.metadata.id != given.second.metadata.id:
        hint = (
            "compare two versions on the same side of the replacement, or as two tables: --across-replace, on the page "
            "under How to compare"
        )
        return DiffPlan((DiffMethod.LOG_ONLY,), why={DiffMethod.LOG_ONLY: (_replaced(given),)}, hint=hint)
    feed, no_feed, unread = None, "two tables share no change feed", None
    if is_one_table:
        feed = lake.cdf_support(newer.ref, low, high)
        no_feed = "" if feed.covered else feed.reason or "it does not cover this range"
    is_too_large = not question.on_host and question.max_bytes is not None and given.size_bytes > question.max_bytes
    try:
        for snapshot, files in given.states():
            lake.require_files(snapshot, files)
    except LakehouseError as exc:
        unread = exc.message
    if unread is None and question.method is None and is_too_large:
        limit = bytes_text(question.max_bytes)
        unread = f"{bytes_text(given.size_bytes)} of data files differ, more than {limit}"
    reasons = {
        DiffMethod.CHANGE_FEED: no_feed,
        DiffMethod.ROW_ID: _no_row_id(question, given, key) or unread,
        DiffMethod.KEY_JOIN: "no key is known" if key is None else unread,
        DiffMethod.MULTISET: unread,
    }
    against = {method: reason for method, reason in reasons.items() if reason}
    methods = tuple(method for method in _LADDER if method not in against)
    if question.method is not None:
        if question.method in against:
            reason = against[question.method]
            hint = "leave the method out to get the best one that is possible"
            raise DiffError(f"{METHOD_NAMES[question.method]} is not possible: {reason}", hint=hint)
        methods, against = (question.method,), {}
    reads_files, first = methods[0] in BY_FILES, feed.first_covered_version if feed else None
    hint = _hint_for_rows(low, high, first, is_too_large=is_too_large) if methods[0] is DiffMethod.LOG_ONLY else ""
    return DiffPlan(
        methods,
        key,
        {method: tuple(_why(question, given, method)) for method in methods},
        against,
        key_reasons,
        first,
        hint,
        given.size_bytes if reads_files else None,
        given.num_rows if reads_files else None,
    )


def _hint_for_rows(low: int, high: int, first_covered: int | None, *, is_too_large: bool) -> str:
    """What lets rows be compared where now the log alone tells; `first_covered`: the first version of the feed."""
    if first_covered is not None and first_covered < high:
        return f"the change feed answers from v{first_covered} on: compare v{first_covered} or later, not v{low}"
    if is_too_large:
        return (
            "compare on the stream host (--on host); or name the method (key_join or multiset) to read them here "
            "anyway; or raise WEIR_LAKE__DIFF_MAX_BYTES"
        )
    return "set delta.enableChangeDataFeed = true on the table: changes from then on stay comparable row by row"


_LADDER = (
    DiffMethod.CHANGE_FEED,
    DiffMethod.ROW_ID,
    DiffMethod.KEY_JOIN,
    DiffMethod.MULTISET,
    DiffMethod.LOG_ONLY,
)  # best first
METHOD_NAMES = {
    DiffMethod.CHANGE_FEED: "the change feed",
    DiffMethod.ROW_ID: "row ids",
    DiffMethod.KEY_JOIN: "a join by key",
    DiffMethod.MULTISET: "a comparison of whole rows",
    DiffMethod.LOG_ONLY: "the log alone",
}
BY_FILES = (DiffMethod.ROW_ID, DiffMethod.KEY_JOIN, DiffMethod.MULTISET)  # they read the files apart


def _no_row_id(question: Question, given: DiffInput, key: KeyChoice | None) -> str | None:
    if key is not None and key.source is KeySource.GIVEN and question.method is None:
        return "a key was given"
    if (reason := why_no_row_ids(given)) is not None or question.on_host:
        return reason
    not_here = why_not_by_duckdb(given, given.columns)
    return f"{not_here}: only the stream host reads such rows with their ids" if not_here else None


def _why(question: Question, given: DiffInput, method: DiffMethod) -> list[str]:
    reasons = []
    if method is DiffMethod.CHANGE_FEED:
        reasons.append(f"the change feed was recorded for every commit from v{given.low + 1} to v{given.high}")
    elif method in BY_FILES:
        files = sum(side.num_rows for _, side in given.states())
        which = "that only one of the two states has" if given.is_one_table else "of both tables"
        reasons.append(f"the rows of the {files:,} data files {which} are compared; no other file is read")
    if question.across_replace and question.against is None and not given.is_one_table:
        reasons.append(f"compared as two tables: {_replaced(given)}")
    if given.is_reverse:
        reasons.append(f"from is the newer version: this is what going back to v{question.to_version} would change")
    return reasons


def _replaced(given: DiffInput) -> str:
    return (
        f"the table was replaced by another one in between: its id is {given.first.metadata.id} at the first version "
        f"and {given.second.metadata.id} at the second"
    )


# what the log tells --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreparedDiff:
    """Everything that the log tells, and how rows would be compared; `limits` are of memory, not of the answer."""

    lake: Lake
    question: Question
    plan: DiffPlan
    input: DiffInput
    columns: tuple[str, ...]
    log: LogChanges
    commits: tuple[CommitChanges, ...]
    limits: Limits = Limits()
    look_in: Snapshot | None = None
    joins: tuple[str, ...] = ()  # columns of changed rows that may name rows of the table to look in

    def premises(self) -> Premises:
        """What the question and the only commit that changed rows say of them."""
        filtered, chosen, predicate = self._named(self.question.where or ""), frozenset[str](), ""
        moved = [each.commit for each in self.commits if each.commit.may_change_rows]
        operation = (moved[0].operation or "").upper() if len(moved) == 1 else ""
        if operation in ("DELETE", "UPDATE"):
            predicate = _predicate_sql(moved[0])
            chosen = self._named(predicate)
        if self.input.is_reverse:  # its rows come back
            return Premises(filtered | chosen, joins=self.joins)
        return Premises(filtered, chosen, operation, "" if self.question.where else predicate, self.joins)

    def _named(self, condition: str) -> frozenset[str]:
        """The columns of a condition; of one in other words than DuckDB's, those whose names stand in it."""
        try:
            return frozenset(read_expression(condition, self.columns).columns)
        except QueryError:
            words = _WORD.findall(condition.lower())
            return frozenset(n for n in self.columns if (own := set(_WORD.findall(n.lower()))) and own <= {*words})


def prepare(lake: Lake, question: Question, *, limits: Limits = Limits()) -> PreparedDiff:
    """What the log tells of the difference; no row is read. Raises as `diff` does."""
    if not question.on_host:
        open_ahead()
    first = lake.snapshot(question.ref, question.from_version)
    second = lake.snapshot(question.against or question.ref, question.to_version)
    if first.ref != second.ref or (question.across_replace and first.metadata.id != second.metadata.id):
        given = two_tables(first, second)
    else:
        given = two_versions(first, second, lake.file_difference(first.ref, first.version, second.version))
    plan = _plan(lake, given, question)
    names = _compared(question.columns, given, plan)
    if question.where is not None:
        check_row_condition(question.where, names)
    commits = list[Commit]()
    if given.first.ref == given.second.ref and given.low < given.high:
        commits = lake.history(given.first.ref, starting_version=given.low + 1, ending_version=given.high)
    reported = tuple(CommitChanges.reported(commit) for commit in commits)
    look_in, joins = lake.snapshot(question.look_in) if question.look_in else None, tuple[str, ...]()
    if look_in is not None:
        other, own = (column_types(each.metadata.schema_json) for each in (look_in, given.newer))
        joins = join_columns({name: own[name] for name in names}, other, look_in.metadata.configuration)
        if not joins or look_in.ref == question.ref:
            hint = f"look in a table with one of its keys, such as {', '.join(likely_keys(names)[:3]) or PROPERTY}"
            raise DiffError(f"no column of {question.ref.name} names rows of {look_in.ref.name}", hint=hint)
    log = _log_changes(given, plan)
    return PreparedDiff(lake, question, plan, given, names, log, reported, limits, look_in, joins)


_WORD = re.compile(r"\w+")
_PLAIN = r"(?!null\b)[^()#':\"]+?"  # a value as a plan of Spark's shows it; with a time in it, in whatever zone
_COMPARED = re.compile(rf"([<>=]) ({_PLAIN})(?=\)| AND | OR |\"?\]|$)")
_LISTED = re.compile(r"\bIN \(([^()#': \"]+)\)")
_NULL_CALL = re.compile(r"\bis(not)?null\(([^()]*)\)")


def _predicate_sql(commit: Commit) -> str:
    """The condition of a DELETE or UPDATE as DuckDB reads it. Spark writes that of its plan, without quotes around
    values: what is read wrongly here no row satisfies."""
    written = str(commit.parameters.get("predicate") or "")
    if re.search(r"#\d", written):
        written = _COMPARED.sub(r"\1 '\2'", written)
        written = _LISTED.sub(lambda listed: "IN ('{}')".format("', '".join(listed[1].split(","))), written)
        written = _NULL_CALL.sub(lambda call: f"({call[2]} IS {'NOT ' if call[1] else ''}NULL)", written)
        written = written.replace("<=>", "IS NOT DISTINCT FROM")
    return predicate_text(replace(commit, parameters={"predicate": written})).replace("`", '"')


def _key(lake: Lake, snapshot: Snapshot, question: Question) -> tuple[KeyChoice | None, tuple[str, ...]]:
    history = lake.history(snapshot.ref, limit=_KEY_HISTORY, ending_version=snapshot.version)
    key, reasons = choose_key(question.key, snapshot.metadata, history, question.remembered_key)
    if snapshot.hidden and key and not {*key.columns}.isdisjoint(snapshot.hidden.names):
        return None, (refused(snapshot.hidden, key.columns).message,)
    return key, reasons


def _compared(columns: Sequence[str] | None, given: DiffInput, plan: DiffPlan) -> tuple[str, ...]:
    """The columns to compare, in the table's order: those asked for and the key, or all that can be."""
    if not columns:
        return given.columns
    wanted = {name: spelled(name, given.columns) for name in (*columns, *(plan.key.columns if plan.key else ()))}
    if missing := sorted(name for name, own in wanted.items() if own is None):
        hint = f"columns: {', '.join(given.columns[:50])}"
        raise DiffColumnError(f"no column {', '.join(missing)} to compare", hint=hint)
    return tuple(name for name in given.columns if name in wanted.values())


def _log_changes(given: DiffInput, plan: DiffPlan) -> LogChanges:
    first, second = given.first, given.second
    # Data files of one state and not of the other: a new deletion vector makes another file of the same path.
    removed, added = (files for _, files in given.states())
    remarked = pc.sum(pc.is_in(added["path"], value_set=removed["path"].unique())).as_py() or 0
    rows_added, rows_removed = (total(pc.subtract(f["num_records"], f["deleted_rows"])) for f in (added, removed))
    vectors_added, vectors_removed = (len(files) - int(files["dv_id"].null_count) for files in (added, removed))
    return LogChanges(
        diff_schemas(first.metadata, second.metadata) if given.is_reverse else given.schema,
        diff_properties(
            (first.metadata, first.protocol),
            (second.metadata, second.protocol),
            clustered=(declared_clustering(first), declared_clustering(second)),
        ),
        FilesDiff(
            added.num_rows,
            removed.num_rows,
            total(added["size_bytes"]) or 0,
            total(removed["size_bytes"]) or 0,
            int(remarked) if given.is_one_table else 0,
            rows_added,
            rows_removed,
            vectors_added,
            vectors_removed,
        ),
        given.apart.rewritten,
        plan.first_covered_version,
    )
