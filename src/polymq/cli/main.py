"""All commands of `polymq`, with their help: picks the one that is named. Read next: `commands.py`."""

from __future__ import annotations

from typing import Annotated

import typer

from polymq.cli.commands import CommandGroup
from polymq.cli.start import explained

__all__ = ["app", "main"]

app = typer.Typer(
    name="polymq",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def show_version(wanted: bool) -> None:
    """Print the version and which build of the hot modules runs, then leave."""
    if not wanted:
        return
    import platform

    from polymq import __version__, _build

    print(f"polymq {__version__} (Python {platform.python_version()}), {_build.report()}")
    raise typer.Exit


@app.callback(
    epilog="[bold]First steps[/bold]: polymq serve · polymq publish greetings hello · polymq consume greetings me · polymq tail greetings"
)
def polymq(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and which build is running.")
    ] = False,
) -> None:
    """One message broker with one durable log. Clients of NSQ connect unmodified; Spark reads the same log.

    [bold]polymq serve[/bold] starts the broker; the other commands talk to it, or look into its data folder.
    Each has its own --help with examples.
    """


def main() -> None:
    """Run the command line."""
    explained(lambda: app(prog_name="polymq"))


if __name__ == "__main__":
    main()
