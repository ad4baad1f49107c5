"""`polymq nsqlookupd`: nothing but the lookup role, under nsqlookupd's flags and with its file.

`polymq serve` has the role as well; this is for machines where nsqlookupd runs by itself. It keeps nothing: the data
folder that every polymq has is a temporary one, unless one is given.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from polymq import config
from polymq.cli.nsq_flags import Given, Plan, Program, RawCommand, Request, apply_option, gather, read_arguments, usage, version_text
from polymq.cli.nsqd_options import Kind, Option
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EXAMPLES", "NSQLOOKUPD", "app", "nsqlookupd", "plan"]

# Source: apps/nsqlookupd/main.go and nsqlookupd/options.go, NSQ 1.3.0.
NSQLOOKUPD: Final = Program(
    "nsqlookupd",
    (
        Option("version", Kind.BOOL, "false", here="prints the version", key="-"),
        Option("config", Kind.TEXT, "", here="nsqlookupd's file; names that it would overlook are errors", key="-"),
        Option("log-level", Kind.LEVEL, "info", "server.log_level", "fatal is error here"),
        Option("log-prefix", Kind.TEXT, "[nsqlookupd] ", here="log lines name the part of polymq that writes them"),
        Option("verbose", Kind.BOOL, "false", here="has no effect in nsqlookupd either; -log-level", key="-"),
        Option("tcp-address", Kind.TEXT, "0.0.0.0:4160", "nsq.lookup_tcp"),
        Option("http-address", Kind.TEXT, "0.0.0.0:4161", "nsq.lookup_http"),
        Option("broadcast-address", Kind.TEXT, "", "server.advertise"),
        Option("inactive-producer-timeout", Kind.DURATION, "5m0s", "nsq.lookup_inactive_producer_timeout"),
        Option("tombstone-lifetime", Kind.DURATION, "45s", "nsq.lookup_tombstone_lifetime"),
    ),
    {
        "nsq.tcp": "off",
        "nsq.http": "off",
        "nsq.https": "off",
        "nsq.lookup_tcp": "0.0.0.0:4160",
        "nsq.lookup_http": "0.0.0.0:4161",
        "server.http": "off",
    },
)
EXAMPLES: Final = """Examples

  polymq nsqlookupd
      nsqlookupd's ports on every address

  polymq nsqlookupd -tcp-address=10.0.0.1:4160 --http-address 10.0.0.1:4161 -broadcast-address=lookup1
      other addresses, and what the others are told
"""

app = typer.Typer(add_completion=False)


def plan(given: Given, *, environment: Mapping[str, str]) -> Plan:
    """Decide what to do about everything that was given. Raises ConfigError with all that is wrong."""
    found = gather(given, NSQLOOKUPD)
    request = Request(problems=given.problems)
    for option in NSQLOOKUPD.options:
        if option.flag in found:
            apply_option(option, *found[option.flag], request)
    settings = request.load(given, NSQLOOKUPD, environment)
    if request.problems or settings is None:
        raise ConfigError(request.problems)
    return Plan(settings, request.notes)


@app.command(cls=RawCommand, add_help_option=False, help="Serve as a directory under nsqlookupd's flags, in place of nsqlookupd.")
def nsqlookupd(arguments: Annotated[list[str] | None, typer.Argument(metavar="[-flag=value]...")] = None) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    given = read_arguments(arguments or [], NSQLOOKUPD)
    if "help" in given.values:
        print(usage(NSQLOOKUPD, EXAMPLES))
        return
    if given.values.get("version", ["false"])[-1] == "true":
        print(version_text(NSQLOOKUPD))
        return
    made = plan(given, environment=os.environ)
    for notice in [*made.notes, *config.notices(made.settings)]:
        print(f"polymq: {notice}", file=sys.stderr)
    from polymq.server import serve as server

    if "server.data" in made.settings.origins:
        raise typer.Exit(server.run(made.settings))
    with tempfile.TemporaryDirectory(prefix="polymq-nsqlookupd-") as folder:
        status = server.run(replace(made.settings, server=replace(made.settings.server, data=Path(folder))))
    raise typer.Exit(status)
