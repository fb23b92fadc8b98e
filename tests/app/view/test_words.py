"""Words that every page uses: the state line, the place of a table, text made safe for Markdown."""

import re
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from app.ui.view import words as frame
from app.ui.view.words import linked, markdown_safe
from backend.lake.model import TableRef
from backend.stream_model.stream import HostHeartbeat
from tests.worlds.lake.made import NOW, REF


def beat(seconds_ago: float) -> HostHeartbeat:
    return HostHeartbeat("h", "m", 1, NOW - timedelta(hours=3), NOW - timedelta(seconds=seconds_ago))


APART = re.compile(r":color\[\\?(.)\]")


def test_the_state_line_says_how_weir_is_and_that_so_many_watch() -> None:
    lake, host = frame.LakeFreshness(7, NOW - timedelta(seconds=2)), frame.HostFreshness([beat(1)], 6, 15)
    line = frame.state_line(lake, host, NOW)
    assert line.text == "host up 3 h · 6 streams · 7 tables · lake read 2 s ago" and not line.is_amber
    line = frame.state_line(lake, host, NOW, viewers=60, live_pause_s=6.0)
    assert line.text.endswith(" · 60 viewers: live pages every 6 s") and not line.is_amber
    browsed = frame.state_line(lake, frame.HostFreshness([], 0, 15), NOW)
    assert not browsed.is_amber, "a lake that is only browsed"


def test_the_state_line_is_amber_where_the_lake_cannot_be_read() -> None:
    denied = frame.LakeFreshness(0, None, "denied")
    line = frame.state_line(denied, frame.HostFreshness([beat(1)], 6, 15), NOW)
    assert line.is_amber and "lake cannot be read: denied" in " ".join(line.reasons)


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
