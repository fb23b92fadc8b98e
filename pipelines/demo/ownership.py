"""Who owns the demo's tables, as properties that pages show."""


def _owned(team: str, classification: str) -> dict[str, str]:
    return {
        "catalog.team_name": team,
        "catalog.engineering.comms.slack": f"#{team}",
        "catalog.engineering.comms.email": f"{team}@example.com",
        "catalog.table.classification": classification,
    }


INGESTION = _owned("data-ingestion", "internal")
PLATFORM = _owned("data-platform", "internal")
PLATFORM_CONFIDENTIAL = _owned("data-platform", "confidential")
ANALYTICS = _owned("analytics", "internal")
