"""What the viewer chose, kept in the URL: the key of every query parameter, and the table, version and stream.

Rule: no other module names a key by its text. A URL that names a table is the whole truth about it; the session only
remembers the table for a click on the navigation, which carries no parameters. `table` and `version` are never bound
to widgets, so that links can set them.
"""

from collections.abc import Callable, Container, Mapping, Sequence

import streamlit as st

# Every key of a query parameter. Where two pages use one, it means the same on both.
TABLE = "table"
VERSION = "version"
STREAM = "stream"
VIEW = "view"
SHOW = "show"
SEARCH = "q"
FIND = "find"
SORT = "sort"
PAGE = "page"
COLUMN = "column"
# a range of versions, and how it is compared
FROM = "from"
TO = "to"
AGAINST = "against"
METHOD = "method"
ON = "on"
KEY = "key"
WITHOUT = "without"
TOLERANCE = "tolerance"
ACROSS_REPLACE = "across_replace"
ROWS_WHERE = "rows_where"
ROWS_PAGE = "rows_page"
KIND = "kind"
KEY_OF = "key_of"
LIFE = "life"
LOOK_IN = "look_in"
# the search for the first bad version
GOOD = "good"
BAD = "bad"
CONDITION = "condition"
CHECK = "check"
# who may do what
ROLE_ON = "role_on"
# the list of tables
LAYER = "layer"
OWNER = "owner"
# rows, schema and properties of a table
WHERE = "where"
COLUMNS = "columns"
ORDER = "order"
SEARCH_FILES = "search"
STATISTICS = "statistics"
SCHEMA_PAGE = "schema_page"
COMPARE = "compare"
# its history
COMMIT = "commit"
FIGURE = "figure"
DIM = "dim"
FILTER = "filter"
LOOK = "look"
SINCE = "since"
UNTIL = "until"
OPERATION = "operation"
USER = "user"
ENGINE = "engine"
WRITTEN_BY = "written_by"
# its files
FILE = "file"
FILES_PAGE = "files_page"
PARTITION = "partition"
BUCKET = "bucket"
OVERLAP_COLUMN = "overlap_column"
# its versions, and numbers over them
AT = "at"
NUMBER = "number"
OVER = "over"
MEASURE = "measure"
SQL = "sql"
FIRST = "first"
LAST = "last"
POINTS = "points"
# a query, the versions that it read, and how its rows are drawn
QUERY = "query"
VERSIONS = "versions"
CHART = "chart"
CHART_X = "x"
CHART_Y = "y"
CHART_COLOUR = "colour"
CHART_TITLE = "title"
# a dashboard, or tiles of any
DASHBOARD = "dashboard"
TILE = "tile"
# acts on tables and streams
ACT = "act"
ACTS_OF = "of"
INCIDENT = "incident"
# streams
PIPELINE = "pipeline"
WINDOW = "window"
BATCH = "batch"

# What means something for one table alone: parameters, and widgets bound to such, with what they hold when empty.
_OF_ONE_TABLE = (
    FROM, TO, AGAINST, METHOD, ON, KEY_OF, LIFE, LOOK_IN, GOOD, BAD, SEARCH_FILES, COMMIT, LOOK, FILE, PARTITION,
    BUCKET, FILES_PAGE, AT,
)  # fmt: skip
_EMPTY: dict[str, Callable[[], object]] = {
    **dict.fromkeys((KEY, WITHOUT, COLUMN, COLUMNS), list),
    **dict.fromkeys((ROWS_WHERE, CONDITION, WHERE, COMPARE, SQL), str),
    **dict.fromkeys((PAGE, SCHEMA_PAGE, ROWS_PAGE), lambda: 1),
    ACROSS_REPLACE: bool,
    ORDER: lambda: None,
}
_ODD_VERSION = "_odd_version"
_REMEMBERED = {TABLE: "_table", VERSION: "_version", STREAM: "_stream"}

Value = str | int | None


def get_str(key: str) -> str | None:
    """A query parameter; None when absent or empty."""
    return st.query_params.get(key) or None


def get_strs(key: str) -> list[str]:
    """A query parameter that may be there several times."""
    return st.query_params.get_all(key)


def get_int(key: str) -> int | None:
    """A query parameter as a whole number ≥ 0; None when absent or not one."""
    return _number(get_str(key) or "")


def get_ints(key: str) -> list[int]:
    """A query parameter that may be there several times, as whole numbers ≥ 0; what is none is left out."""
    return [number for text in get_strs(key) if (number := _number(text)) is not None]


def _number(value: str) -> int | None:
    return int(value) if value.isascii() and value.isdigit() and len(value) < 19 else None


def set_params(values: Mapping[str, Value | Sequence[Value]]) -> None:
    """Sets query parameters, several times for a sequence; removes those that are None or empty."""
    for key, value in values.items():
        wanted = [str(each) for each in (value if isinstance(value, list | tuple) else [value]) if each is not None]
        if not wanted:
            st.query_params.pop(key, None)
        elif st.query_params.get_all(key) != wanted:
            st.query_params[key] = wanted if len(wanted) > 1 else wanted[0]


def first_page(key: str = PAGE) -> None:
    """For callbacks: the list that `key` is the page of begins at its first page."""
    if key in st.session_state:  # bound to the choice of the page: Streamlit refuses to delete it
        st.session_state[key] = 1
    else:
        set_params({key: None})


def table() -> str | None:
    """The chosen table, from the URL, else as last looked at in this session."""
    return get_str(TABLE) or st.session_state.get(_REMEMBERED[TABLE])


def version() -> int | None:
    """The pinned version, None for the latest. A URL that names a table but no version means the latest."""
    if get_str(TABLE):
        return get_int(VERSION)
    return st.session_state.get(_REMEMBERED[VERSION])


def stream() -> str | None:
    """The chosen stream, from the URL, else as last looked at in this session."""
    return get_str(STREAM) or st.session_state.get(_REMEMBERED[STREAM])


def choose_table(name: str | None, version: int | None = None) -> None:
    """Makes a table and a version the chosen ones; what was asked of another table is forgotten."""
    if name != table():
        first_page()
        first_page(ROWS_PAGE)
        set_params(dict.fromkeys(_OF_ONE_TABLE))
        _empty_widgets()
    st.session_state[_REMEMBERED[TABLE]] = name
    st.session_state[_REMEMBERED[VERSION]] = version
    set_params({TABLE: name, VERSION: version})


def _empty_widgets(*, but: Container[str] = ()) -> None:
    """Those of one table: a bound widget writes its parameter by itself, and comes back as it was on a later page."""
    for widget in _EMPTY.keys() & set(st.session_state):
        if widget not in but:
            st.session_state[widget] = _EMPTY[widget]()


def choose_stream(name: str | None) -> None:
    """Makes a stream the chosen one; what was asked of another is forgotten."""
    if name != stream():
        set_params({BATCH: None})
    st.session_state[_REMEMBERED[STREAM]] = name
    set_params({STREAM: name})


def keep_only(*keys: str) -> None:
    """On a page of no one table: drops the parameters of other pages from the URL, which named table and version stay
    chosen for."""
    name, pinned = table(), version()
    st.session_state[_REMEMBERED[TABLE]], st.session_state[_REMEMBERED[VERSION]] = name, pinned
    set_params(dict.fromkeys(set(st.query_params) - set(keys)))


def settle_table() -> tuple[str | None, int | None]:
    """The chosen table and version, written back to URL and session so that both agree."""
    name, pinned, said = table(), version(), get_str(VERSION)
    if name != st.session_state.get(_REMEMBERED[TABLE]):  # a link led to another table
        _empty_widgets(but=st.query_params)
    if get_str(TABLE) and said and said != "latest" and pinned is None:
        st.session_state[_ODD_VERSION] = name, said
    choose_table(name, pinned)
    return name, pinned


def odd_version() -> str | None:
    """What a link named as the version of the chosen table though it is none; None once a version or another table is
    chosen."""
    name, said = st.session_state.get(_ODD_VERSION, (None, None))
    return said if name == table() and version() is None else None
