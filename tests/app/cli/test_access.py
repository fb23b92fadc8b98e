"""`weir access`: who may do what, why, and what is wrong with grants; and what the role of a terminal refuses."""

import json
from pathlib import Path

import pytest

from backend.store.store import ControlStore
from tests.worlds.terminal import Weir


@pytest.fixture
def grants(monkeypatch: pytest.MonkeyPatch, lake: Path, store: ControlStore) -> None:
    given = (
        {"role": "maintainer", "group": "data", "on": ["silver/*", "stream:flows"]},
        {"role": "operator", "user": "ann"},
    )
    monkeypatch.setenv("WEIR_AUTH__GRANTS", json.dumps(given))


@pytest.mark.usefixtures("grants")
def test_why_names_the_grant_that_allows_or_who_else_may(weir: Weir) -> None:
    answer = weir("access", "why", "ann", "start", "flows")
    assert (answer.code, answer.out) == (0, "Yes, ann may start flows: operator of everything: user ann\n")
    denied = weir("access", "why", "ann", "optimize", "silver/orders")
    assert (denied.code, denied.out) == (
        4,
        "No, ann may not optimize job silver/orders: maintainers of silver/orders may: group data\n",
    )
    document = weir(
        "access", "why", "bo", "pin", "silver/orders", "--group", "data", "--group", "b, c", "--json"
    ).document
    assert document == {
        "user": "bo", "groups": ["data", "b, c"], "operation": "pin", "resource": "silver/orders", "allowed": True,
        "by": "maintainer of silver/*, stream:flows: group data",
    }  # fmt: skip
    assert weir("access", "why", "bo", "start", "stream:flows", "--group", "data").code == 0
    assert weir("access", "why", "bo", "start", "flows", "--group", "data,x").code == 4
    assert "there are " in weir("access", "why", "bo", "optimise", "silver/orders").err


@pytest.mark.usefixtures("grants")
def test_list_is_narrowed_by_name_and_by_what_it_is_for(weir: Weir) -> None:
    def who(*options: str) -> list[str]:
        return [row["who"] for row in weir("access", *options, "--json").document]

    assert (
        who()
        == who("list")
        == ["group data", "user ann", "everybody else who is logged in", "whoever has a terminal here"]
    )
    assert who("--who", "ANN") == ["user ann"]
    assert (
        who("--on", "gold/x")
        == who("--on", "waits")
        == ["user ann", "everybody else who is logged in", "whoever has a terminal here"]
    )
    assert who("--on", "flows")[0] == who("--on", "silver/orders")[0] == "group data"
    assert who("--on", "stream:silver/orders")[0] == "user ann"
    assert "maintainer  silver/*, stream:flows" in weir("access").out


@pytest.mark.usefixtures("grants")
def test_check_names_what_is_not_there(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (weir("access", "check").code, weir("access", "check", "--json").document) == (0, [])
    wrong = [
        "gold/*",
        "Silver/orders",
        "silver/orderz",
        "s\u0456lver/*",
        "stream:flow",
        "stream:silver/orders",
        "flows",
    ]
    monkeypatch.setenv("WEIR_AUTH__GRANTS", json.dumps([{"role": "viewer", "user": "bo", "on": ["*", *wrong]}]))
    answer = weir("access", "check")
    assert answer.code == 1 and len(answer.out.splitlines()) == len(weir("access", "check", "--json").document) == 7
    assert "no table is named 's\\u0456lver/*'" in answer.out and "no stream is named 'flow'" in answer.out
    for grant in (
        {"role": "owner", "user": "bo"},
        {"role": "viewer", "user": "bo", "on": ["../x"]},
        {"role": "viewer"},
    ):
        monkeypatch.setenv("WEIR_AUTH__GRANTS", json.dumps([grant]))
        assert weir("access", "check").code == 2 and "auth.grants" in weir("access", "check").err


@pytest.mark.usefixtures("grants")
def test_a_terminal_of_a_lesser_role_is_refused(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    assert weir("stop", "flows", "--reason", "x").code == 0, "without a role a terminal may do everything"
    monkeypatch.setenv("WEIR_AUTH__TERMINAL_ROLE", "operator")
    assert weir("start", "flows", "--reason", "x").code == 0
    refused = weir("pin", "silver/orders", "1", "--reason", "x")
    assert refused.code == 4 and "maintainers of silver/orders may: group data" in refused.err
