"""`polymq nats-server`: the broker under nats-server's own flags and with nats-server's own file, in place of nats-server.

How the flags are read is in `nats_flags.py`, the file in `server/nats_files.py`.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from polymq import config
from polymq.cli import nats_flags, nats_signal
from polymq.cli.nats_flags import NATS_SERVER, NatsPlan
from polymq.cli.nsq_flags import Given, RawCommand, Request, read_arguments
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.config_sections import Settings
    from polymq.server.nats_settings import NatsServerSettings

__all__ = ["EXAMPLES", "NatsServerPlan", "app", "nats_server", "plan"]

EXAMPLES: Final = """Examples

  polymq nats-server
      clients on port 4222 of every address

  polymq nats-server -c /etc/nats-server.conf -m 8222 --polymq-set server.data=/var/lib/polymq
      nats-server's file, and the monitoring pages; what is captured is kept in a folder of your choice

  polymq nats-server -t -c /etc/nats-server.conf
      look at the file, and say what is wrong with it

  polymq nats-server --polymq-set nsq.tcp=127.0.0.1:4150
      and NSQ's clients beside
"""

app = typer.Typer(add_completion=False)


@dataclass(slots=True)
class NatsServerPlan:
    """What polymq will do about what was asked: as a process, and as a nats-server."""

    settings: Settings
    nats: NatsPlan
    notes: list[str]


def plan(given: Given, *, environment: Mapping[str, str]) -> NatsServerPlan:
    """Decide what to do about everything that was given. Raises ConfigError with all that is wrong."""
    request = Request()
    try:
        nats = nats_flags.plan(given, environment=environment)
    except ConfigError as error:
        request.problems += error.problems
    else:
        request.notes += nats.settings.notes
        if nats.settings.debug:
            request.settings["server.log_level"] = "debug"
    settings = request.load(given, NATS_SERVER, environment)
    if request.problems or settings is None:
        raise ConfigError(request.problems)
    if "server.data" not in settings.origins:
        request.notes.append(
            f"the data is in {settings.server.data}; --polymq-set server.data=DIR says otherwise, and each server needs a folder of its own"
        )
    return NatsServerPlan(settings, nats, request.notes)


def version_text() -> str:
    """Say what runs, and as what."""
    from polymq import __version__, _build
    from polymq.server.nats_mount import nats_settings
    from polymq.server.nats_settings import NatsServerSettings

    return f"polymq v{__version__} in place of nats-server v{nats_settings(NatsServerSettings()).version}, {_build.report()}"


@app.command(cls=RawCommand, add_help_option=False, help="Serve under nats-server's flags and with its file, in place of nats-server.")
def nats_server(arguments: Annotated[list[str] | None, typer.Argument(metavar="[-flag value]...")] = None) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    given = read_arguments(arguments or [], NATS_SERVER)
    if "help" in given.values or "help_tls" in given.values:
        print(nats_flags.usage(EXAMPLES))
        return
    if "true" in (*given.values.get("version", ()), *given.values.get("v", ())):
        print(version_text())
        return
    if asked := [*given.values.get("sl", ()), *given.values.get("signal", ())]:
        nats_signal.send(asked[-1])
        return
    made = plan(given, environment=os.environ)
    for notice in [*made.notes, *config.notices(made.settings)]:
        print(f"polymq: {notice}", file=sys.stderr)
    if made.nats.check_only:
        from polymq.server.nats_tls import check_files

        check_files(made.nats.settings)
        file = [*given.values.get("c", ()), *given.values.get("config", ())][-1]
        print(f"polymq: configuration file {file} is valid", file=sys.stderr)
        return
    from polymq.server import serve as server

    def reread() -> NatsServerSettings:
        return nats_flags.plan(read_arguments(arguments or [], NATS_SERVER), environment=os.environ).settings

    raise typer.Exit(server.run(made.settings, nats=made.nats.settings, reread=reread))
