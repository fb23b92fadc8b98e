"""The arguments and options that many commands of `weir` take.

Rule: nothing is imported that a command might not need.
"""

from typing import Annotated, Literal

import typer

VERSION = "A version, `latest`, -5, a pin's name, or a time (`2 h ago`, yesterday, `Monday 09:00`, 14:30, ISO 8601)"
TIME = "a time (`2 h ago`, yesterday, `Monday 09:00`, 14:30), or a date or time in UTC"

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what it would do, and do nothing.")]
At = Annotated[str | None, typer.Option("--version", help=f"{VERSION}.")]
TableName = Annotated[str, typer.Argument(metavar="T", help="Name of a table, or its URI under a root.")]
OneOrAll = Annotated[str | None, typer.Argument(metavar="[T]", help="Name or URI of one table; none: all.")]
StreamName = Annotated[str, typer.Argument(metavar="NAME", help="Name of a stream.")]
OnHost = Annotated[
    Literal["here", "host"], typer.Option("--on", help="host: a job of the stream host, any amount of data.")
]
