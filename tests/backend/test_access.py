"""Who may do what by grants: patterns, groups, the default role, and what a refusal says."""

from dataclasses import replace

import pytest

from backend.access import Access, Actor, Grant, Role, check, permission
from backend.errors import SettingsError, StreamRefusedError
from backend.settings import AuthSettings, load_settings

GRANTS = (
    Grant(role=Role.MAINTAINER, group="data-platform", on=("silver/*", "stream:silver_*")),
    Grant(role=Role.OPERATOR, user="ann@example.com"),
    Grant(role=Role.ADMIN, group="root, wheel"),
)
VISITOR = Actor("bo@example.com", grants=GRANTS, default_role=Role.VIEWER)


def test_a_grant_covers_its_patterns_and_lower_roles_alone() -> None:
    member = replace(VISITOR, groups=frozenset({"data-platform"}))
    assert permission(member, "optimize job", "silver/orders").by == (
        "maintainer of silver/*, stream:silver_*: group data-platform"
    )
    assert permission(member, "start", "silver_orders").allowed
    for operation, resource in (
        ("optimize job", "bronze/orders"),  # another layer
        ("optimize job", "Silver/orders"),  # another case
        ("optimize job", "sіlver/orders"),  # a Cyrillic twin
        ("start", "silver/orders"),  # a stream named like a table of the pattern
        ("optimize job", "stream:silver_orders"),  # a table named like a stream of the pattern
        ("export the audit trail", "silver/orders"),  # no operation of the list: an admin's
    ):
        assert not permission(member, operation, resource).allowed, (operation, resource)


@pytest.mark.parametrize("groups", [{"root"}, {"wheel"}, {"root,wheel"}, {"ROOT, WHEEL"}, set()])
def test_a_group_is_its_whole_name(groups: set[str]) -> None:
    assert not permission(replace(VISITOR, groups=frozenset(groups)), "drop job", "gold/sales").allowed
    assert permission(replace(VISITOR, groups=frozenset({"root, wheel"})), "drop job", "gold/sales").allowed


def test_a_refusal_says_who_may() -> None:
    with pytest.raises(StreamRefusedError, match="maintainers of silver/orders may: group data-platform, group root, "):
        check(Access(VISITOR, "silver/orders", "optimize job", "small files"))
    assert permission(VISITOR, "query", "silver/orders").by == "auth.default_role = viewer"


def test_without_grants_everybody_may_do_everything() -> None:
    assert AuthSettings().actor("bo") == Actor("bo")
    assert permission(Actor("bo"), "drop job", "gold/sales").allowed
    assert not permission(AuthSettings(grants=list(GRANTS)).actor("bo"), "drop job", "gold/sales").allowed


def test_a_terminal_may_do_everything_until_a_role_is_set() -> None:
    assert permission(AuthSettings(grants=list(GRANTS)).actor("bo", of_terminal=True), "drop job", "t").allowed
    limited = AuthSettings(grants=list(GRANTS), terminal_role=Role.VIEWER).actor("bo", of_terminal=True)
    assert not permission(limited, "drop job", "t").allowed


@pytest.mark.parametrize(
    ("grant", "words"),
    [
        ({"role": "owner", "user": "a"}, "role"),
        ({"role": "admin"}, "either a user or a group"),
        ({"role": "admin", "user": "a", "group": "b"}, "either a user or a group"),
        ({"role": "viewer", "user": "a", "on": ["../silver"]}, "is no pattern"),
        ({"role": "viewer", "user": "a", "on": ["stream:"]}, "is no pattern"),
    ],
)
def test_a_wrong_grant_is_said_at_the_start(grant: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        load_settings(auth={"grants": [grant]})
