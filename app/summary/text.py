"""A profile in words: where it is from, and what differs from another version's.

Rule: pure, and free of pandas, which the terminal does without. What nobody counted is a dash.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app.columns import Column
from backend.format import bytes_text, count_text, cut, figure_text, percent, things, value_text
from backend.search.carried import Carried, CarriedRows
from backend.sql.numbers import ColumnProfile, Profile

LEAST_SHARE = 0.01  # of the rows: a smaller change of nulls is not told
LEAST_CHANGE = 0.2  # of the distinct values, which are approximate
MOST_CHARS = 40


def source_sentence(profile: Profile) -> str:
    """Where the figures are from, and what that leaves open."""
    many = things(len(profile.columns), "column")
    left = f" Left out, of a type that cannot be read here: {', '.join(profile.left_out)}." if profile.left_out else ""
    if profile.is_read:
        rows = things(profile.rows, "row")
        return f"{many} of v{profile.version}, counted over {rows}. Distinct values are approximate.{left}"
    return (
        f"{many} of v{profile.version}, from the log's statistics alone. Distinct values, the commonest ones and how "
        f"they are spread come from the rows.{left}"
    )


def cost_sentence(size_bytes: int, files: int) -> str:
    """What reading the rows costs, said before; columns whose values repeat are read twice."""
    return f"Reads at most {bytes_text(2 * size_bytes)} in {things(files, 'data file')}."


def nulls_text(column: ColumnProfile) -> str:
    """ "31 %", "≈ 0.2 %" where deleted rows may count, or a dash."""
    share = percent(column.null_share)
    return f"≈ {share}" if column.nulls and not column.is_exact else share


def bound_text(column: ColumnProfile, name: str, text: Callable[[Any], str] = figure_text) -> str:
    """The lowest or highest value; a bound that may not be the true one has a sign."""
    return f"{getattr(column, f'{name}_sign')} {cut(text(getattr(column, name)), MOST_CHARS)}".lstrip()


def top_text(column: ColumnProfile) -> str:
    """ "paid 62 %, new 38 %"."""
    held = (column.rows or 0) - (column.nulls or 0)
    return ", ".join(f"{cut(value_text(top.value), 24)} {percent(top.rows / held)}" for top in column.top if held)


def profile_columns(profile: Profile, against: Mapping[str, str] | None = None) -> list[Column[ColumnProfile]]:
    """What a column holds. `against`: what differs from another version, by column."""
    unread = not profile.is_read

    def differing(column: ColumnProfile) -> str:
        return (against or {}).get(column.column, "")

    def spread(column: ColumnProfile) -> list[float]:
        most = max((bin_.rows for bin_ in column.bins), default=0)
        return [bin_.rows / most for bin_ in column.bins] if most else []

    return [
        Column("Column", lambda column: column.column, key="column"),
        Column("Against", differing, help="What differs from the other version.", width=300, on="page",
               is_optional=True),
        Column("Type", lambda column: column.type, key="type"),
        Column("Null share", lambda column: column.null_share, "percent", "Of the rows that were counted.",
               key="null_share", on="page"),
        Column("Null share", nulls_text, "figure", on="terminal"),
        Column("Distinct", lambda column: column.distinct, "about", "Approximate, nulls left out.",
               key="distinct_approx", is_optional=unread),
        Column("Spread", spread, "bars", "Rows in up to 12 equal steps from the lowest to the highest.",
               is_optional=unread),
        Column("Lowest", lambda column: bound_text(column, "lowest"), help="≥: the true value may lie above."),
        Column("Highest", lambda column: bound_text(column, "highest"), help="≤: the true value may lie below."),
        Column("Commonest", top_text, help="With their share of the values that are there.", is_optional=unread),
    ]  # fmt: skip


def differences(before: Profile, after: Profile) -> dict[str, str]:
    """What differs by column, those with something to tell alone: "null share 0.2 % → 31 %"."""
    older = {column.column: column for column in before.columns}
    newer = {column.column: column for column in after.columns}
    by_column = {name: f"not in v{after.version}" for name in older if name not in newer}
    for name, column in newer.items():
        was = older.get(name)
        words = [f"not in v{before.version}"] if was is None else list(_changes(was, column))
        if words:
            by_column[name] = "; ".join(words)
    return by_column


def differing_sentence(before: Profile, after: Profile) -> str:
    """How many columns stand out against the other version."""
    by_column = differences(before, after)
    gone = [name for name, words in by_column.items() if words == f"not in v{after.version}"]
    text = f"{things(len(by_column), 'column')} {'differs' if len(by_column) == 1 else 'differ'} from v{before.version}"
    if not by_column:
        return f"No column stands out against v{before.version}."
    return f"{text}; no longer there: {', '.join(gone)}." if gone else f"{text}."


def difference_lines(before: Profile, after: Profile) -> list[str]:
    """One line a column: "null share of `email` 0.2 % → 31 %"."""
    return [f"`{name}`: {words}" for name, words in differences(before, after).items()] or [
        f"No column of v{after.version} stands out against v{before.version}."
    ]


def _changes(was: ColumnProfile, column: ColumnProfile) -> Iterator[str]:
    if was.type != column.type:
        yield f"type {was.type} → {column.type}"
    if _nulls_changed(was, column):
        yield f"null share {nulls_text(was)} → {nulls_text(column)}"
    for name in ("lowest", "highest"):
        low, high = getattr(was, name), getattr(column, name)
        # A cut bound says nothing of a true one.
        alike = getattr(was, f"{name}_sign") == getattr(column, f"{name}_sign")
        if low is not None and high is not None and low != high and alike:
            yield f"{name} {bound_text(was, name, value_text)} → {bound_text(column, name, value_text)}"
    if was.distinct and column.distinct and abs(column.distinct - was.distinct) > LEAST_CHANGE * was.distinct:
        yield f"distinct ≈ {count_text(was.distinct)} → {count_text(column.distinct)}"
    if was.top and column.top and was.top[0].value != column.top[0].value:
        yield f"commonest {value_text(was.top[0].value)} → {value_text(column.top[0].value)}"


def _nulls_changed(was: ColumnProfile, column: ColumnProfile) -> bool:
    if was.null_share is None or column.null_share is None:
        return False
    return abs(column.null_share - was.null_share) >= LEAST_SHARE or bool(was.nulls) != bool(column.nulls)


# what a finding left in other tables ---------------------------------------------------------------------------------


def carried_text(rows: CarriedRows) -> str:
    """ "invoices: 1,302 rows of v39–v53 carry it, by eur_rate and currency"."""
    span = "" if rows.first is None else f" of v{rows.first}" + (f"–v{rows.last}" if rows.last != rows.first else "")
    return f"{rows.ref.name}: {things(rows.rows, 'row')}{span} carry it, by {' and '.join(rows.columns)}"


def carried_sentence(result: Carried) -> str:
    """How far the looking went."""
    looked = f"{things(result.num_looked, 'table')} with this column looked at, as far as written since the finding"
    return f"{looked}. {'Left out: ' + '; '.join(result.left_out) + '.' if result.left_out else ''}".rstrip()
