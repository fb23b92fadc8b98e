"""The keys of query parameters stand in one module, each once; and which pages and acts a search finds."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import state
from app.find import view
from app.ui.view.acts import LABELS
from app.ui.view.words import LinkTarget

ROOT = Path(state.__file__).parents[1]
KEYS = [value for name, value in vars(state).items() if name.isupper() and isinstance(value, str)]
TAKES_KEYS = ("text", "texts", "whole", "wholes", "put", "page_link", "table_link", "go")
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


# What of Weir can be found beside tables ----------------------------------------------------------------


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
        'state.text("table")',
        'state.put({"page": None})',
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
    assert view.ACTS.keys() == LABELS.keys(), "every act on a table can be found"
