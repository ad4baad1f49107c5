"""Which commands there are: our own by a table, those of optional parts by entry points of the group "polymq.commands".

A command is a module attribute that is a `typer.Typer`. An optional part brings its own so:

    [project.entry-points."polymq.commands"]
    replay = "polymq_replay.cli:app"

Our own come first and by a table, because listing the entry points reads the metadata of every installed package
(45 ms measured with 70 of them), which a broker that is being restarted should not wait for.
"""

from __future__ import annotations

import difflib
import importlib
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperGroup
from typer.main import get_command

from polymq.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "OWN", "CommandGroup", "find"]

GROUP: Final = "polymq.commands"
OWN: Final = {
    "serve": "polymq.cli.serve",
    "publish": "polymq.cli.publish",
    "consume": "polymq.cli.consume",
    "tail": "polymq.cli.tail",
    "bridge": "polymq.cli.bridge",
    "pipeline": "polymq.cli.pipeline",
    "spool": "polymq.cli.spool",
    "stats": "polymq.cli.stats",
    "topic": "polymq.cli.topic",
    "channel": "polymq.cli.channel",
    "inspect": "polymq.cli.inspect",
    "import": "polymq.cli.import_",
    "nsqd": "polymq.cli.nsqd",
    "nsqlookupd": "polymq.cli.nsqlookupd",
    "nats-server": "polymq.cli.nats_server",
    "secret": "polymq.cli.secret",
}


def brought_by_others() -> dict[str, EntryPoint]:
    """Read the entry points of the group; a name of our own cannot be taken."""
    from importlib.metadata import entry_points

    return {each.name: each for each in entry_points(group=GROUP) if each.name not in OWN}


def find(name: str) -> Any:
    """Import the command of this name and return its `typer.Typer`; None if there is none.

    Raises ConfigError if an optional part's command cannot be imported.
    """
    if name in OWN:
        return importlib.import_module(OWN[name]).app
    entry = brought_by_others().get(name)
    if entry is None:
        return None
    try:
        return entry.load()
    except (ImportError, AttributeError) as error:
        raise ConfigError([f"the command {name!r} comes from {entry.value}, which cannot be imported: {error}"]) from error


class CommandGroup(TyperGroup):
    """The group `polymq`, which imports a command only when it is named, and all of them only for --help.

    Contexts and commands are typed Any: their classes move between typer's releases.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """Name our own commands in the order of the table, then the others."""
        del ctx
        return [*OWN, *sorted(brought_by_others())]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Turn the named command into what the parser wants. Raises BadParameter if there is no such command."""
        import typer

        app = find(cmd_name)
        if app is None:
            matches = difflib.get_close_matches(cmd_name, self.list_commands(ctx), n=1)
            hint = f"did you mean {matches[0]!r}?" if matches else "polymq --help lists them."
            raise typer.BadParameter(f"there is no command {cmd_name!r}; {hint}", ctx=ctx)
        if not isinstance(app, typer.Typer):
            raise ConfigError([f"the command {cmd_name!r} must be a typer.Typer, not {type(app).__name__}"])
        command = get_command(app)
        command.name = cmd_name
        return command
