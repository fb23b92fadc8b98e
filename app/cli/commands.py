"""`weir` itself: its help, its version, and the commands that run a process.

Rule: a command parses, calls, prints; what is behind it is imported when it runs, so that `weir` starts fast.
"""

import os
import sys
from typing import Annotated

import typer

from app.cli import USAGE
from app.cli.options import RUN, ByPanel
from app.cli.streams.commands import app as streams
from app.cli.tables.act_commands import app as table_acts
from app.cli.tables.commands import app as tables

app = typer.Typer(
    name="weir",
    cls=ByPanel,
    rich_markup_mode=None,
    help="See, explain and operate a Delta lakehouse.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
run = typer.Typer()
for each in (tables, table_acts, streams, run):  # the order of `weir --help`
    app.add_typer(each)


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


@run.command(rich_help_panel=RUN)
def up() -> int:
    """UI, stream host and demo generator together."""
    from app.run.up import main

    return main()


@run.command(rich_help_panel=RUN)
def ui() -> int:
    """The UI alone."""
    from backend.spared import allow_all

    allow_all()
    from app.server.asgi import main

    return main()


@run.command(rich_help_panel=RUN)
def host() -> int:
    """The stream host alone (Spark)."""
    return _become("pipelines.host")


@run.command(rich_help_panel=RUN)
def demo() -> int:
    """The demo's generator alone."""
    return _become("pipelines.demo.generator")


def _become(module: str) -> int:
    """Replace this process by `python -m module`, so that signals reach it directly. Spark's side is another program
    and never imported here; wrong settings are told before it starts."""
    from backend.settings import load_settings

    load_settings()
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module])
