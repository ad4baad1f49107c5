"""The entry of `polymq`: picks the command, and turns what went wrong into words that say what to do.

Exit status: 0 done, 1 an error that polymq explains, 2 the command line is wrong, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from polymq.cli.commands import CommandGroup
from polymq.errors import ConfigError, ConnectFailed, DeadlineExceeded, PolyMQError, StoreError

__all__ = ["app", "explain", "main"]

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


def explain(error: PolyMQError) -> str:
    """Say what went wrong and what to do about it."""
    if isinstance(error, ConfigError):
        if len(error.problems) == 1:
            return error.problems[0]
        return f"{len(error.problems)} problems:\n" + "\n".join(f"  - {problem}" for problem in error.problems)
    if isinstance(error, ConnectFailed | DeadlineExceeded):
        return f"{error}\nIs the broker running there? `polymq serve` starts one; --help shows how to name another address."
    if isinstance(error, StoreError):
        return f"{error}\n`polymq inspect DATA` shows the data folder without changing it."
    return str(error) or type(error).__name__


def main() -> None:
    """Run the command line."""
    try:
        app(prog_name="polymq")
    except PolyMQError as error:
        print(f"polymq: {explain(error)}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone (`polymq tail … | head`). Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


if __name__ == "__main__":
    main()
