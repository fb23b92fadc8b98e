"""The keys of query parameters stand in one module, and each stands there once."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import state

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


def literals(tree: ast.AST) -> list[str]:
    """Keys written as text, and query parameters read or written beside `state`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [key.value for call in calls for key in keys_of(call) if isinstance(key, ast.Constant)]
    reached = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "query_params"]
    return [str(each) for each in named] + reached


def test_each_key_stands_there_once() -> None:
    assert len(KEYS) > 50 and len(set(KEYS)) == len(KEYS)


def test_no_other_module_names_a_key() -> None:
    assert len(SCREENS) > 50
    found = {str(path.relative_to(ROOT)): literals(ast.parse(path.read_text())) for path in SCREENS}
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
    assert literals(ast.parse(line))
