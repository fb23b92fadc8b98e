"""What is expected and what was found, in words, for pages and the terminal.

Rule: pure; the clock is a parameter.
"""

from datetime import datetime

from backend.expectations.model import ExpectationKind, Judgement, State, TableExpectation
from backend.format import ago, count_exact, duration_text, things


def expected_text(expected: TableExpectation) -> str:
    """ "new data every 15 min", "order_id is unique"."""
    columns = ", ".join(expected.columns)
    match expected.kind:
        case ExpectationKind.FRESH:
            return f"new data every {duration_text(expected.within_s)}"
        case ExpectationKind.ROWS_PER_DAY:
            return "as many new rows a day as usual"
        case ExpectationKind.HOLDS:
            return expected.condition
        case ExpectationKind.UNIQUE:
            return f"{columns} is unique" if len(expected.columns) == 1 else f"({columns}) is unique"
    return f"{columns} is in {expected.other}.{expected.other_column}"


def found_text(judgement: Judgement, now: datetime) -> str:
    """ "the last data came 4 min ago", "912 rows on 2026-11-22, usual are 1,100 to 1,400"."""
    finding = judgement.finding
    if finding.state is State.UNKNOWN:
        return f"not judged: {finding.reason}"
    match judgement.expectation.kind:
        case ExpectationKind.FRESH if finding.last_data_at is None:
            return "none of its commits changed rows"
        case ExpectationKind.FRESH:
            return f"the last came {ago(finding.last_data_at, now)}"
        case ExpectationKind.HOLDS:
            return finding.reason
        case ExpectationKind.ROWS_PER_DAY:
            low, high = finding.usual or (0, 0)
            rows = f"{count_exact(finding.rows)} {'row' if finding.rows == 1 else 'rows'}"
            return f"{rows} on {finding.day}, usual are {low:,} to {high:,} (by {finding.days} days before)"
    if not finding.broken_keys:
        return "no key breaks it"
    rows = things(finding.broken_rows, "row")
    wrong = "are repeated" if judgement.expectation.kind is ExpectationKind.UNIQUE else "are not there"
    wrong = wrong.replace("are", "is") if finding.broken_keys == 1 else wrong
    return f"{things(finding.broken_keys, 'key')} {wrong}, in {rows}: {_examples(judgement)}"


def _examples(judgement: Judgement) -> str:
    more = (judgement.finding.broken_keys or 0) - len(judgement.finding.examples)
    return " · ".join(judgement.finding.examples) + (f" and {more:,} more" if more > 0 else "")


def judged_text(judgement: Judgement, now: datetime) -> str:
    """ "judged at v131, 12 s ago"."""
    version = "" if judgement.finding.version is None else f"at v{judgement.finding.version}, "
    return f"judged {version}{ago(judgement.judged_at, now)}"
