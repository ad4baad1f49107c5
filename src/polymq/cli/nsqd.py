"""`polymq nsqd`: the broker under nsqd's own flags and with nsqd's own file, in place of nsqd.

How flags and files are read is in `nsq_flags.py`, what each option is here in `nsqd_options.py`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from polymq import config
from polymq.cli.nsq_flags import Given, Plan, Program, RawCommand, Request, apply_option, gather, read_arguments, usage, version_text
from polymq.cli.nsqd_options import OPTIONS
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.config_sections import Settings

__all__ = ["EXAMPLES", "NSQD", "app", "nsqd", "plan"]

# nsqd opens no ports but these.
NSQD: Final = Program(
    "nsqd",
    OPTIONS,
    {"nsq.tcp": "0.0.0.0:4150", "nsq.http": "0.0.0.0:4151", "nsq.lookup_tcp": "off", "nsq.lookup_http": "off", "server.http": "off"},
)
HTTPS_DEFAULT: Final = "0.0.0.0:4152"
METADATA_NAME: Final = "nsqd.dat"
EXAMPLES: Final = """Examples

  polymq nsqd -data-path=/var/lib/polymq
      nsqd's ports on every address, as nsqd has them

  polymq nsqd -config=/etc/nsqd.cfg -data-path=/var/lib/polymq --http-address=127.0.0.1:4151
      nsqd's file, two of its settings changed

  polymq nsqd -data-path=/var/lib/polymq --polymq-set server.http=127.0.0.1:4171
      and polymq's own door, for Spark, polymq tail and metrics

  polymq import nsqd /var/lib/nsqd --data /var/lib/polymq
      first of all: take over the messages that nsqd has left
"""

app = typer.Typer(add_completion=False)


def plan(given: Given, *, environment: Mapping[str, str], program: Program = NSQD) -> Plan:
    """Decide what to do about everything that was given. Raises ConfigError with all that is wrong."""
    found = gather(given, program)
    request = Request(problems=given.problems)
    known, by_flag = config.all_settings(), program.by_flag()
    for port, address in (("broadcast-tcp-port", "tcp-address"), ("broadcast-http-port", "http-address")):
        listening = found.get(address, (by_flag[address].default, ""))[0]
        if by_flag[port].setting not in known and port in found and found[port][0] == str(listening).rpartition(":")[2]:
            del found[port]
    for option in program.options:
        if option.flag in found:
            apply_option(option, *found[option.flag], request)
    if request.settings.get("nsq.tls_cert"):
        request.settings.setdefault("nsq.https", HTTPS_DEFAULT)
    elif request.settings.pop("nsq.https", "off") != "off":
        request.notes.append("-https-address: nothing listens there without -tls-cert and -tls-key, as with nsqd")
    settings = request.load(given, program, environment)
    request.problems.extend(_left_by_nsqd(settings))
    if request.problems or settings is None:
        raise ConfigError(request.problems)
    if "server.data" not in settings.origins:
        request.notes.append(f"no -data-path is given: the data is in {settings.server.data}")
    if settings.server.http is None:
        request.notes.append("polymq's own door (Spark, polymq tail, metrics) is closed; --polymq-set server.http=127.0.0.1:4171 opens it")
    return Plan(settings, request.notes)


def _left_by_nsqd(settings: Settings | None) -> list[str]:
    """Refuse a folder with nsqd's own files: its messages would not be served, and nobody would say so.

    Without -data-path nsqd's folder is the working folder.
    """
    if settings is None:
        return []
    folders = [settings.server.data] if "server.data" in settings.origins else [settings.server.data, Path()]
    return [
        f"{folder} has the data of an nsqd. Take it over first: polymq import nsqd {folder} --data NEW, then -data-path=NEW"
        for folder in folders
        if not (folder / "FORMAT").exists() and ((folder / METADATA_NAME).exists() or any(folder.glob("*.diskqueue.*.dat")))
    ]


@app.command(cls=RawCommand, add_help_option=False, help="Serve under nsqd's flags and with nsqd's file, in place of nsqd.")
def nsqd(arguments: Annotated[list[str] | None, typer.Argument(metavar="[-flag=value]...")] = None) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    given = read_arguments(arguments or [], NSQD)
    if "help" in given.values:
        print(usage(NSQD, EXAMPLES))
        return
    if given.values.get("version", ["false"])[-1] == "true":
        print(version_text(NSQD))
        return
    made = plan(given, environment=os.environ)
    for notice in [*made.notes, *config.notices(made.settings)]:
        print(f"polymq: {notice}", file=sys.stderr)
    from polymq.server import serve as server

    raise typer.Exit(server.run(made.settings))
