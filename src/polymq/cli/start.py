"""The entry of `polymq`: begins what is asked for, and turns what went wrong into words that say what to do.

Exit status: 0 done, 1 an error that polymq explains, 2 the command line is wrong, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from polymq.errors import ConfigError, ConnectFailed, DeadlineExceeded, PolyMQError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["explain", "explained", "start"]


def start() -> None:
    """Run the command line: a plain `polymq serve` at once, and all else by what knows all commands."""
    name, *arguments = sys.argv[1:] or [""]
    if name == "serve":
        explained(lambda: _serve(arguments))
    else:
        _run_any()


def _serve(arguments: list[str]) -> None:
    from polymq.cli.serving import read_line, run_broker

    line = read_line(arguments)
    if line is None:
        _run_any()
    else:
        sys.exit(run_broker(*line))


def _run_any() -> None:
    from polymq.cli.main import main

    main()


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


def explained(run: Callable[[], object]) -> None:
    """Run something; leave with words about what went wrong, if polymq knows any."""
    try:
        run()
    except PolyMQError as error:
        print(f"polymq: {explain(error)}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone (`polymq tail … | head`). Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
