"""What a table's properties say about it.

Rule: pure; a key nobody knows is shown with the nearest known one, never dropped.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from backend.lake.model import Metadata


@dataclass(frozen=True, slots=True)
class Ownership:
    team: str | None
    slack: str | None
    email: str | None
    classification: str | None
    other: Mapping[str, str]


def ownership(metadata: Metadata) -> Ownership:
    """The `catalog.*` tags of a table."""
    tags = {key: value for key, value in metadata.configuration.items() if key.startswith("catalog.")}
    return Ownership(
        team=tags.pop("catalog.team_name", None),
        slack=tags.pop("catalog.engineering.comms.slack", None),
        email=tags.pop("catalog.engineering.comms.email", None),
        classification=tags.pop("catalog.table.classification", None),
        other=tags,
    )
