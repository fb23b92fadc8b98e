"""What frames every page: words made safe for Markdown, the state line, keys of links, colours, axes and spinners."""

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import streamlit
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from app import state
from app.cache import StreamsReading
from app.ui import find as view
from app.ui import frame as page_frame
from app.ui import work as waiting
from app.ui.lake import LakeReading
from app.ui.view import figures as axes
from app.ui.view import theme
from app.ui.view import words as frame
from app.ui.view.acts import ACTS
from app.ui.view.words import LinkTarget, linked, markdown_safe
from backend.errors import StorageError
from backend.jobs.model import JobKind
from backend.lake.model import TableRef, UnreadableTable
from backend.stream_model.stream import HostHeartbeat
from tests.worlds.lake.made import NOW, REF


def beat(seconds_ago: float) -> HostHeartbeat:
    return HostHeartbeat("h", "m", 1, NOW - timedelta(hours=3), NOW - timedelta(seconds=seconds_ago))


APART = re.compile(r":color\[\\?(.)\]")


def test_the_state_line_says_how_weir_is_and_is_amber_where_the_lake_cannot_be_read() -> None:
    def state_line(lake: LakeReading | StorageError, *hosts: HostHeartbeat) -> tuple[str, list[str]]:
        return page_frame.state_words(lake, StreamsReading((), hosts, NOW), NOW, stale_after_s=15)

    lake = LakeReading((UnreadableTable(REF, "torn", ""),), NOW - timedelta(seconds=2), (REF.name,))
    assert state_line(lake, beat(1)) == ("host up 3 h · 1 table · lake read 2 s ago", [])
    assert state_line(lake)[1] == [], "a lake that is only browsed"
    assert state_line(StorageError("denied"), beat(1))[1] == ["The lake cannot be read: denied"]


def test_the_place_of_a_table() -> None:
    assert frame.folders_and_name(REF) == (("lake", "silver"), "orders")
    clash = TableRef("/data/lake/silver/t", "/data/lake/silver/t", "/data/lake")  # the root in front tells two apart
    assert frame.folders_and_name(clash) == (("lake", "silver"), "t")


def test_words_of_others_cannot_become_markdown() -> None:
    assert markdown_safe("a_b *c* [d](http://e)\n# f") == r"a_b \*c\* \[d\]\(http:color[\:]//e\) \# f"
    assert markdown_safe("_a_ b__c _d") == r"\_a\_ b\_\_c \_d"
    assert markdown_safe("run `weir up` now") == "run `weir up` now"
    assert "`" not in markdown_safe("one ` alone").replace("\\`", "")


@pytest.mark.parametrize(
    "text",
    [
        "```![x](https://evil.example/p.png)```",
        "`a``[x](https://evil.example)`",
        "x\r===",
        "    indented",
        "&lt;b&gt;",
        "`] [x](https://evil.example)`",  # in a badge the bracket would end it
    ],
)
def test_words_that_break_out_of_code_or_of_their_line_stay_words(text: str) -> None:
    assert shown_as(markdown_safe(text)) == [("text", " ".join(text.split()))]
    safe = APART.sub(r"\1", markdown_safe(text))
    assert f":gray-badge[{safe}]".count("]") == 1 + safe.count("\\]")


@given(text=st.text("ab `\n\r\\[]()!#*_<>&;:=-1."))
def test_whatever_is_written_is_text_or_code(text: str) -> None:
    assert {kind for kind, _ in shown_as(markdown_safe(text))} <= {"text", "code_inline"}


def shown_as(markdown: str) -> list[tuple[str, str]]:
    """What a paragraph holds; fails for anything that is not one paragraph."""
    blocks = MarkdownIt().parse(markdown)
    assert [block.type for block in blocks] in ([], ["paragraph_open", "inline", "paragraph_close"])
    return [(part.type, APART.sub(r"\1", part.content)) for block in blocks for part in block.children or ()]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("https://a.b", r"https:color[\:]//a\.b"),
        ("HTTP://a.b", r"HTTP:color[\:]//a\.b"),
        ("www.a.b", r"www:color[\.]a\.b"),
        ("a@b.c", r"a:color[\@]b\.c"),
        (":smile:", r":color[\:]smile\:"),
        (":100:", r":color[\:]100\:"),
        ("::x:", r"\::color[\:]x\:"),
        (":red[x]", r":color[\:]red\[x\]"),
        ("s3://lake/t at 10:04:31", r"s3\://lake/t at 10\:04\:31"),
    ],
)
def test_what_streamlit_makes_more_of_once_its_backslashes_have_gone_is_in_pieces(text: str, safe: str) -> None:
    assert markdown_safe(text) == safe


@pytest.mark.parametrize(
    ("value", "target"),
    [
        ("orders@example.com", "mailto:orders@example.com"),
        ("data.team+oncall@mail.example.org", "mailto:data.team+oncall@mail.example.org"),
        ("https://example.com/wiki/orders?q=1#top", "https://example.com/wiki/orders?q=1#top"),
        ("http://localhost:8080", "http://localhost:8080"),
        ("slack://channel?team=T1&id=C2", "slack://channel?team=T1&id=C2"),
        ("https://example.com/a_(b)_$x$[1]*", "https://example.com/a_%28b%29_%24x%24%5B1%5D%2A"),
    ],
)
def test_an_address_is_a_link_that_shows_itself(value: str, target: str) -> None:
    label, _, rest = linked(value).removeprefix("[").rpartition("](")
    assert label == markdown_safe(value) and rest == f"{target})"


@pytest.mark.parametrize(
    "value",
    [
        "#orders",
        "javascript:alert(1)",
        "ftp://example.com",
        "slack://evil.example/?x",
        "https://bank.example:443@evil.example",
        "JavaScript:alert(1)//@example.com",
        "data:text/html,<script>alert(1)</script>",
        "file:///etc/passwd",
        "//example.com",
        "https://bank.example@evil.example/",  # leads elsewhere than it seems to
        "https://example.com)[x](javascript:alert(1",
        "https://exa mple.com",
        "https://example.com/\njavascript:alert(1)",
        "https://",
        "a@example.com?cc=everyone@example.com",
        "a@example.com\nbcc: b@example.com",
        "orders@example.com, sales@example.com",
        "orders@localhost",
        "https://example.com/\u202egnp.exe",
        "![x](https://example.com/x.png)",
    ],
)
def test_what_is_no_plain_address_stays_text(value: str) -> None:
    assert linked(value) == markdown_safe(value)


# keys of query parameters, and what a search finds beside tables ------------------------------------------------------

ROOT = Path(state.__file__).parents[1]
KEYS = [value for name, value in vars(state).items() if name.isupper() and isinstance(value, str)]
TAKES_KEYS = ("get_str", "get_strs", "get_int", "get_ints", "set_params", "page_link", "table_link", "go")
SCREENS = sorted(
    path
    for folder in ("app", "pages")
    for path in (ROOT / folder).rglob("*.py")
    if path != Path(state.__file__) and not path.is_relative_to(ROOT / "app" / "cli")
)


def keys_of(call: ast.Call) -> Iterator[ast.expr]:
    """What a call names as keys of query parameters."""
    for keyword in call.keywords:
        if keyword.arg == "key" and any(each.arg == "bind" for each in call.keywords):
            yield keyword.value
    if isinstance(call.func, ast.Attribute) and call.func.attr in TAKES_KEYS:
        if isinstance(call.func.value, ast.Name) and call.func.value.id == "state":
            yield from call.args[:1]
        for value in (*call.args, *(keyword.value for keyword in call.keywords)):
            yield from (key for key in getattr(value, "keys", ()) if key is not None)


def literals(text: str) -> list[str]:
    """Keys written as text in a module, and query parameters read or written beside `state`."""
    tree = ast.parse(text)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [str(key.value) for call in calls for key in keys_of(call) if isinstance(key, ast.Constant)]
    attributes = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return named + [name for name in attributes if name == "query_params"]


def test_each_key_stands_once_in_the_module_of_keys_and_in_no_other() -> None:
    assert len(KEYS) > 50 and len(set(KEYS)) == len(KEYS) and len(SCREENS) > 50
    found = {str(path.relative_to(ROOT)): literals(path.read_text()) for path in SCREENS}
    assert {path: keys for path, keys in found.items() if keys} == {}


@pytest.mark.parametrize(
    "line",
    [
        'st.text_input("Search", key="q", bind="query-params")',
        'state.get_str("table")',
        'state.set_params({"page": None})',
        'navigation.go("stream", {"stream": name})',
        'st.query_params["page"] = "2"',
    ],
)
def test_a_key_as_text_is_found(line: str) -> None:
    assert literals(line)


PLACES = [LinkTarget("health", "Health"), *(LinkTarget("stream", f"Stream orders_{number}") for number in range(9))]


def test_each_word_must_be_in_the_label_and_only_a_few_are_shown() -> None:
    def labels(words: str) -> list[str]:
        return [place.label for place in view.matching(PLACES, words)]

    assert labels("HEAL") == ["Health"] and labels("orders_3 stream") == ["Stream orders_3"]
    assert labels("orders health") == [] and labels(" ") == []
    assert labels("stream") == [f"Stream orders_{number}" for number in range(view.MOST_PLACES)]
    assert ACTS.keys() == {kind for kind in JobKind if kind.is_table_act}, "every act on a table can be found"


# contrast and axes ----------------------------------------------------------------------------------------------------


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_words_and_marks_can_be_seen(mode: theme.Mode) -> None:
    surface = theme.SURFACES[mode]
    assert _contrast(surface.text, surface.background) >= 4.5
    assert _contrast(surface.muted, surface.background) >= 4.5
    for colour in theme.LAYER_TEXT[mode].values():
        assert _contrast(colour, surface.background) >= 4.5 and _contrast(colour, surface.panel) >= 4.5
    for name in ("RUNNING", "IDLE", "BACKOFF", "FAILED", "STOPPED"):
        assert _contrast(theme.state_style(name, mode).colour, surface.background) >= 3
    for operation in ("WRITE", "MERGE", "UPDATE", "DELETE", "OPTIMIZE", "VACUUM END", "RESTORE", "SET X", None):
        assert _contrast(theme.operation_style(operation, mode).colour, surface.background) >= 3


NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(("values", "ends"), [([], 1.08), ([None, 0], 1.08), ([1, 0], 1.08), ([5, None], 5.4)])
def test_a_few_things_are_counted_one_by_one(values: list[int | None], ends: float) -> None:
    found = axes.count_axis(values)
    assert found["dtick"] == 1 and found["range"] == [0, pytest.approx(ends)]


def test_axes_begin_at_zero_versions_are_whole_and_small_values_have_no_milli() -> None:
    assert axes.count_axis([6, 2_000]) == {"tickformat": "~s", "exponentformat": "SI", "rangemode": "tozero"}
    assert axes.value_axis([0.003, None]) == {"exponentformat": "none"}
    assert axes.value_axis([0.5, -1_000])["tickformat"] == "~s"
    assert axes.version_axis(0, 0)["dtick"] == 1 and axes.version_axis(0, 0)["range"] == [-0.5, 0.5]
    assert "dtick" not in axes.version_axis(3, 300)
    assert axes.time_range([NOON]) == [NOON - timedelta(seconds=30), NOON + timedelta(seconds=30)]
    assert axes.time_range([NOON, NOON + timedelta(seconds=2)]) is None and axes.time_range([]) is None


# spinners -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of every spinner that was asked of Streamlit."""
    said: list[str] = []

    @contextmanager
    def spinner(words: str, *, show_time: bool) -> Iterator[None]:
        assert show_time
        said.append(words)
        yield

    monkeypatch.setattr(streamlit, "spinner", spinner)
    return said


def wait(of: str, seconds: float) -> None:
    clock = iter([0.0, seconds])
    with waiting.spinner(f"Reading {of} …", of=of, clock=lambda: next(clock)):
        pass


def test_what_was_quick_gets_none_until_it_takes_long_again(drawn: list[str]) -> None:
    wait("orders", 2.0)  # nobody knows yet
    wait("orders", 0.01)  # it took long
    assert len(drawn) == 2
    wait("orders", 2.0)
    assert len(drawn) == 2, "the last time was quick"
    wait("orders", 0.01)
    assert drawn == ["Reading orders …"] * 3
