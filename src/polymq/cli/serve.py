"""`polymq serve` as a command with help: what its flags are called and what they mean.

The flags are derived from `config_sections.py`: a setting that has a flag there has it here. Read next: `serving.py`.
"""

from __future__ import annotations

from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from polymq import config
from polymq.cli.serving import run_broker
from polymq.config_sections import SECTIONS
from polymq.config_values import AddressKind, ChoiceKind, PathKind

if TYPE_CHECKING:
    from polymq.config_sections import Setting

__all__ = ["app", "serve"]

PANELS: Final = {"server": "The process", "nsq": "NSQ", "nats": "NATS", "rocketmq": "RocketMQ", "phpmq": "PHPMQ"}
EXAMPLES: Final = """[bold]Examples[/bold]

[cyan]polymq serve[/cyan]
everything at its default: data in ./polymq-data, NSQ on 127.0.0.1:4150 and :4151

[cyan]polymq serve --data /var/lib/polymq --nsq 0.0.0.0:4150 --nsq-http 0.0.0.0:4151 --advertise broker1[/cyan]
for other machines as well

[cyan]polymq serve --nsq unix:/run/polymq.sock --nsq-http off --http off[/cyan]
one Unix socket and nothing else

[cyan]polymq serve --config polymq.toml --set store.durability=fsync[/cyan]
settings from a file, one of them changed; polymq.example.toml lists all

[cyan]POLYMQ_NSQ_MSG_TIMEOUT=30s polymq serve[/cyan]
the same for any setting, from the environment
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


def serve(**arguments: Any) -> None:
    """Run the broker until SIGTERM or Ctrl-C. It is ready once it says which addresses it listens on.

    ADDRESS is HOST:PORT, [[IPV6]]:PORT, unix:PATH or off. By default everything listens on this machine only.
    """
    path: Path | None = arguments.pop("config")
    pairs: list[str] = arguments.pop("set") or []
    raise typer.Exit(run_broker(path, pairs, {name.replace("__", "."): value for name, value in arguments.items()}))


def _parameter(setting: Setting) -> Parameter:
    """Describe the flag of one setting to typer."""
    kinds: tuple[tuple[type, str], ...] = ((AddressKind, "ADDRESS"), (PathKind, "DIR"), (ChoiceKind, "WORD"))
    metavar = next((name for kind, name in kinds if isinstance(setting.kind, kind)), "NAME")
    default = setting.kind.write(setting.default)
    text = setting.explanation
    if setting.planned:
        text += " [dim](not served yet)[/dim]"
    elif default:
        text += f" [dim](default {default})[/dim]"
    option = typer.Option(setting.flag, metavar=metavar, help=text, rich_help_panel=PANELS[setting.section], show_default=False)
    return Parameter(setting.name.replace(".", "__"), Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, option])


def _signature() -> Signature:
    flags = [_parameter(each) for each in config.all_settings().values() if each.flag]
    flags.sort(key=lambda parameter: list(SECTIONS).index(parameter.name.partition("__")[0]))
    file = typer.Option(
        "--config",
        metavar="FILE",
        help="read settings from this file [dim](default polymq.toml, if there is one)[/dim]",
        show_default=False,
    )
    pair = typer.Option("--set", metavar="SECTION.KEY=VALUE", help="give any setting; can be repeated", show_default=False)
    return Signature(
        [
            Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, file]),
            Parameter("set", Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[list[str] | None, pair]),
            *flags,
        ]
    )


# typer reads the signature and, separately, the annotations.
serve.__signature__ = _signature()  # type: ignore[attr-defined]  # functions may carry one; mypy's type of functions does not know it
serve.__annotations__ = {name: each.annotation for name, each in _signature().parameters.items()} | {"return": None}
app.command(epilog=EXAMPLES)(serve)
