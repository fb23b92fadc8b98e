"""What the commands of `weir` have in common: their headings, and the options that many of them take.

Rule: no command stands here, and nothing is imported that a command might not need.
"""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

READ, ACT, RUN = "Read", "Act", "Run"
VERSION = "A version, `latest`, -5, a pin's name, or a time (`2 h ago`, yesterday, `Monday 09:00`, 14:30, ISO 8601)"

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it would do, and do nothing.")]
At = Annotated[str | None, typer.Option("--version", help=f"{VERSION}.")]
TableName = Annotated[str, typer.Argument(metavar="T", help="Name of a table, or its URI under a root.")]


class ByPanel(TyperGroup):
    """Lists commands under the heading of their panel: typer does so only with rich, which takes 0.2 s to load."""

    def format_commands(self, _ctx: object, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            panel = str(getattr(command, "rich_help_panel", ""))
            panels.setdefault(panel, []).append((name, command.help or ""))
        for panel, lines in panels.items():
            with formatter.section(panel):
                formatter.write_dl(lines)
