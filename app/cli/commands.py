"""`weir` itself: every command with the sentence of its help, the options that many take, and the commands that run a
process.

Rule: the module of a command is imported when that command is asked for, so that `weir` and its help start fast.
"""

import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from app.cli import USAGE

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

Panels = Mapping[str, Mapping[str, str]]  # by heading: a function `module.command` of `app.cli`, and its sentence

pipelines: Panels = {
    "Read": {
        "streams.check": "Everything wrong with declared streams, with file and line. Starts nothing.",
        "streams.graph": "What feeds what: sources, streams and tables, with states and rows per minute.",
        "streams.latency": "How long data takes from landing to each layer, by pipeline.",
    }
}
WEIR: Panels = {
    "Read": {
        "lake.tables": "Every table of the lake: rows, files, size, small files, last commit.",
        "lake.find": "Tables that hold a word: in name, columns, comments, description, owner or properties.",
        "lake.table": "One table: what it is, how big, its schema.",
        "rows.profile": "The columns of one version: nulls, bounds, distinct and commonest values; what differs from "
        "another.",
        "query.query": 'SQL over tables and versions: silver.orders VERSION AS OF 118, "orders$history", weir.streams.',
        "rows.export": "Every row of one version as a file.",
        "history.history": "The commits, newest first (30 on a terminal, all with --json, unless --limit says "
        "otherwise).",
        "health.notices": "Unusual commits: a new highest or lowest value, a far larger step of nulls or rows, copies.",
        "history.timeline": "Commits, batches, starts, stops, acts, failures and notices of a table and what is up- "
        "and downstream of it.",
        "history.properties": "Table properties and features, explained; what differs from another version.",
        "lake.files": "File sizes, small files and partitions of one version.",
        "versions.versions": "Which versions can still be read, restored or followed, until when, and why.",
        "diff.diff": "What changed between two versions: counts, rows, schema, properties, files. Exit 0: nothing, "
        "10: something.",
        "diff.changes": "The rows of the change feed as they are: each with its type, version and time.",
        "bisect.bisect": "The first version that breaks a condition, by binary search; a condition on rows means "
        "every row.",
        "health.health": "What needs attention and what maintenance would help.",
        "health.policies": "What policies did to tables, what they do next, and why they wait.",
        "expectations.expectations": "What pipelines and people expect of tables, and what was found. Ends with 1 if "
        "one is broken.",
        "streams.streams": "Every stream: desired and observed state, rate, error.",
        "streams.stream": "One stream: how it flows, why it does not, who asked for what.",
        "stream_acts.preflight": "Whether a stream can go on: checkpoint, sources, sink, owner and disk, with "
        "evidence. Ends with 1 if not.",
        "access.access": "Who may do what: list; why USER OPERATION RESOURCE; check, which ends with 1 if grants name "
        "what is not there.",
        "store.jobs": "What stream hosts were asked to compute, and what became of it.",
        "commands.pipelines": "Declared pipelines: what is wrong, what feeds what.",
    },
    "Act": {
        "acts.optimize": "Merge small files of a table on the stream host; says first which, into how many, and whom "
        "that touches.",
        "acts.vacuum": "Delete files that no version within the table's retention needs; refused while a stream has "
        "yet to read one.",
        "acts.restore": "Make a former version the latest again; says first what that undoes, and who reads those "
        "rows again.",
        "acts.rewind": "Take a table and the stream that writes it back to a former version; the stream's next start "
        "runs the batches since then again. Says first which, and whether their source can still be read.",
        "acts.repair": "Change, replace or delete the rows that a condition lets through; says first how many, and "
        "shows a few.",
        "acts.alter": "Change properties, comment, columns and constraints of a table; says first whom that shuts out.",
        "acts.clone": "Copy a version of a table to an empty place; says first how much, and who shares its files.",
        "acts.drop": "Move a table aside, where nobody finds it; says first who uses it. `weir undrop` brings it back.",
        "acts.undrop": "Bring a dropped table back to its place, where that is free.",
        "acts.purge": "Delete a dropped table for good.",
        "acts.dropped": "Dropped tables that can be brought back.",
        "acts.apply": "Carry out an act that was written to a file; refused where it would no longer do what was "
        "reviewed.",
        "versions.pin": "Keep a version readable: Weir refuses a VACUUM that would delete its files.",
        "incidents.incident": "Incidents: list, show, open, note or close what went wrong with tables.",
        "health.seen": "Mark the findings of a commit, or one, as seen; Overview no longer shows them to anybody.",
        "versions.unpin": "Let a pinned version go; `weir versions T` lists those that are pinned.",
        "expectations.expect": "Expect a condition of a table from now on; hosts judge it, whatever pipelines declare.",
        "store.cancel": "Ask for a job to end.",
        "stream_acts.start": "Ask streams to run.",
        "stream_acts.stop": "Ask streams to stop after their running micro-batch.",
        "stream_acts.drain": "Ask streams to stop once they have read what is there now.",
        "stream_acts.restart": "Ask streams to stop and start again.",
        "stream_acts.reset": "Reset a stopped stream, or undo the last reset; says what is read again and what that "
        "risks.",
        "stream_acts.requeue": "Requeue repaired rows of a stopped stream's quarantine, each once; says first which "
        "would go.",
    },
    "Run": {
        "commands.up": "UI, stream host and demo generator together.",
        "commands.ui": "The UI alone.",
        "commands.host": "The stream host alone (Spark).",
        "commands.demo": "The demo's generator alone.",
    },
}


class Commands(TyperGroup):
    """Commands under the headings of their panels: typer prints those only with rich, which takes 0.2 s to load."""

    def __init__(self, *, panels: Panels = WEIR, **attrs: Any) -> None:
        super().__init__(**attrs)
        self._panels = panels
        found = [(*path.split("."), sentence) for panel in panels.values() for path, sentence in panel.items()]
        self._found = {name: (module, sentence) for module, name, sentence in found}
        self.commands = dict.fromkeys(self._found)  # type: ignore[assignment]  # names to suggest

    def get_command(self, _ctx: object, name: str) -> Any:
        if name not in self._found:
            return None
        module, sentence = self._found[name]
        function = getattr(import_module(f"app.cli.{module}"), name)
        if isinstance(function, Mapping):
            return Commands(name=name, help=sentence, panels=function, rich_markup_mode=None)
        command = typer.Typer(rich_markup_mode=None, add_completion=False)
        command.command(name, help=sentence)(function)
        return typer.main.get_command(command)

    def format_commands(self, _ctx: object, formatter: Any) -> None:
        for heading, panel in self._panels.items():
            with formatter.section(heading):
                formatter.write_dl([(path.partition(".")[2], sentence) for path, sentence in panel.items()])


app = typer.Typer(
    name="weir",
    cls=Commands,
    rich_markup_mode=None,
    help="See, explain and operate a Delta lakehouse.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def weir(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print Weir's version.", is_eager=True)] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"weir {installed('weir')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(USAGE)


def up() -> int:
    from app.run.up import main

    return main()


def ui() -> int:
    from backend.spared import allow_all

    allow_all()
    from app.server.asgi import main

    return main()


def host() -> None:
    _become("pipelines.host")


def demo() -> None:
    _become("pipelines.demo.generator")


def _become(module: str) -> None:
    """Replace this process by `python -m module`, so that signals reach it directly. Spark's side is another program
    and never imported here; wrong settings are told before it starts."""
    from backend.settings import load_settings

    load_settings()
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module])
