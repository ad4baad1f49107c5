"""Who may import whom: the table of docs/ARCHITECTURE.md as a test, and a proof that the test bites."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from tests.project.layout import SOURCE, Module, modules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Everybody may use these.
COMMON = ("polymq.errors", "polymq.limits", "polymq.phpmq_limits", "polymq.rocketmq_limits")
CONFIG = ("polymq.config", "polymq.config_sections", "polymq.config_values")
# HTTP is a transport that several protocols and the product's own door share, so it is not "another protocol".
HTTP = "polymq.protocols.http"
WIRE_PROTOCOLS = ("nsq", "nats", "rocketmq", "phpmq")

# Package → what of ours it may import besides itself and COMMON. The longest matching prefix decides.
MAY_IMPORT: dict[str, tuple[str, ...]] = (
    {
        "polymq": ("polymq._build", "polymq.clients.broker"),
        "polymq._build": (),
        "polymq.errors": (),
        "polymq.limits": (),
        "polymq.phpmq_limits": (),
        "polymq.rocketmq_limits": ("polymq.limits",),
        "polymq.config": CONFIG,
        "polymq.config_sections": CONFIG,
        "polymq.config_values": CONFIG,
        "polymq.wire": (),
        "polymq.protocols": ("polymq.wire",),
        HTTP: ("polymq.wire",),
        "polymq.store": ("polymq.wire",),
        "polymq.core": ("polymq.wire",),
        "polymq.gateways": ("polymq.core", "polymq.wire", HTTP),
        "polymq.admin": ("polymq.core", "polymq.wire", HTTP),
        "polymq.server": (
            "polymq.admin",
            "polymq.gateways",
            "polymq.core",
            "polymq.store",
            "polymq.protocols",
            "polymq.wire",
            "polymq._build",
            "polymq.__version__",
            *CONFIG,
        ),
        "polymq.clients": ("polymq.protocols", "polymq.wire"),
        "polymq.spool": ("polymq.store", "polymq.clients", "polymq.wire"),
        "polymq.spark": ("polymq.clients", "polymq.spool", "polymq.wire", "polymq.config_values"),
        "polymq.cli": (
            "polymq.server",
            "polymq.clients",
            "polymq.admin",
            "polymq.store",
            "polymq.spool",
            "polymq.spark",
            "polymq.wire",
            "polymq._build",
            "polymq.__version__",
            *CONFIG,
        ),
        "polymq.testing": (
            "polymq.wire",
            "polymq.protocols",
            "polymq.store",
            "polymq.core",
            "polymq.gateways",
            "polymq.admin",
            "polymq.server",
            "polymq.clients",
            "polymq.spool",
            *CONFIG,
        ),
    }
    | {f"polymq.protocols.{name}": ("polymq.wire",) for name in WIRE_PROTOCOLS}
    # nsqlookupd's protocol is the other half of NSQ's: the same names, and a gateway of NSQ's that speaks to directories.
    | {"polymq.protocols.nsqlookup": ("polymq.wire", "polymq.protocols.nsq.names")}
    | {
        f"polymq.gateways.{name}": (
            f"polymq.protocols.{name}",
            HTTP,
            "polymq.core",
            "polymq.wire",
            "polymq.gateways.contract",
            "polymq.gateways.effects",
            "polymq.gateways.lifecycle",
            "polymq.gateways.login",
            "polymq.gateways.live_sheet",
            "polymq.gateways.outbox",
        )
        for name in WIRE_PROTOCOLS
    }
)
MAY_IMPORT["polymq.gateways.nsq"] += ("polymq.protocols.nsqlookup",)
MAY_IMPORT["polymq.gateways.nsqlookup"] = (
    *MAY_IMPORT["polymq.gateways.nsq"],
    "polymq.gateways.nsq.http_answers",
    "polymq.gateways.nsq.http_format",
)

# What the package itself does: find the sources, and, when it is called, connect.
ROOT_IMPORTS = ("polymq._build.install_pure_finder", "polymq.clients.broker.Broker")

# What of others' is reserved: module → the packages that may import it.
RESERVED = {
    "asyncio": ("polymq.server", "polymq.clients", "polymq.cli", "polymq.spool"),
    "uvloop": ("polymq.server", "polymq.clients", "polymq.cli"),
    "socket": ("polymq.server", "polymq.clients", "polymq.cli"),
    "select": ("polymq.server",),
    "pyspark": ("polymq.spark",),
    "pyarrow": ("polymq.spark", "polymq.wire"),
    "typer": ("polymq.cli",),
    "rich": ("polymq.cli",),
    "pytest": ("polymq.testing.pytest_plugin",),
    "threading": ("polymq.server", "polymq.clients", "polymq.spark", "polymq.store", "polymq.testing"),
}
# Clock and randomness are ports: these packages are handed the time.
CLOCKLESS = ("polymq.wire", "polymq.protocols", "polymq.core", "polymq.gateways", "polymq.admin", "polymq.store")
CLOCKS = ("time", "random", "secrets")
# datetime may format a time that it was handed.
CLOCK_METHODS = ("now", "utcnow", "today")
# What the protocols share may not know any of them.
SHARED = ("polymq.protocols", "polymq.gateways")


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement's target, as a dotted name."""

    module: Module
    target: str
    line: int

    def __str__(self) -> str:
        return f"{self.module.path.name}:{self.line} ({self.module.name}) imports {self.target}"


def imports_of(module: Module) -> Iterator[Import]:
    """List what a module imports, also lazily and for type checking: a type is a dependency too."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.path}:{node.lineno}: imports are absolute here"
            assert node.module is not None
            for alias in node.names:
                yield Import(module, f"{node.module}.{alias.name}", node.lineno)


def within(name: str, packages: tuple[str, ...]) -> bool:
    """Tell whether a dotted name is one of the packages or lies in one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def package_of(name: str) -> str:
    """Return the row of the table that governs a module: the longest prefix."""
    rows = [row for row in MAY_IMPORT if within(name, (row,)) and (row != "polymq" or name == "polymq")]
    assert rows, f"{name} is in no row of the table: add its package to docs/ARCHITECTURE.md and here"
    return max(rows, key=len)


def violations(source: Path) -> list[str]:
    """Check every import of every module of the package at `source`."""
    found = []
    for module in modules(source):
        row = package_of(module.name)
        allowed = (*COMMON, *MAY_IMPORT[row], row)
        for each in imports_of(module):
            if within(each.target, ("polymq",)):
                # `from polymq.wire import records` names the module, or something that the package exports.
                crosses = row in SHARED and within(each.target, tuple(f"{row}.{name}" for name in WIRE_PROTOCOLS))
                if crosses or not within(each.target, allowed) or (row == "polymq" and each.target not in ROOT_IMPORTS):
                    found.append(f"{each}: {row} may import {', '.join(allowed)}")
                continue
            for reserved, packages in RESERVED.items():
                if within(each.target, (reserved,)) and not within(module.name, packages):
                    found.append(f"{each}: only {', '.join(packages)} may")
            if within(each.target, CLOCKS) and within(module.name, CLOCKLESS):
                found.append(f"{each}: time and randomness come in through ports")
        if within(module.name, CLOCKLESS):
            found.extend(clock_calls(module))
    return found


def clock_calls(module: Module) -> Iterator[str]:
    """Find datetime.now() and its kin."""
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Attribute)
            and node.attr in CLOCK_METHODS
            and isinstance(node.value, ast.Name)
            and node.value.id in ("datetime", "date")
        ):
            yield f"{module.path.name}:{node.lineno} ({module.name}) reads a clock: time comes in through a port"


def test_the_packages_import_only_what_the_table_allows() -> None:
    assert violations(SOURCE) == []


@pytest.mark.parametrize(
    ("file", "statement"),
    [
        ("core/planted.py", "import polymq.store.log"),
        ("core/planted.py", "from polymq.protocols.nsq import decode"),
        ("core/planted.py", "def late() -> None:\n    from polymq.gateways import contract"),
        ("wire/planted.py", "import asyncio"),
        ("wire/planted.py", "import time"),
        ("core/planted.py", "from datetime import datetime\nnow = datetime.now()"),
        ("gateways/effects.py", "from polymq.gateways.nsq import tcp"),
        ("protocols/nsq/planted.py", "from polymq.protocols.nats import parse"),
        ("protocols/nsq/planted.py", "from polymq.protocols.http import request"),
        ("gateways/nsq/planted.py", "from polymq.gateways.nats import gateway"),
        ("gateways/nsq/planted.py", "import socket"),
        ("clients/planted.py", "from polymq import core"),
        ("server/planted.py", "from polymq.clients import nsq"),
        ("store/planted.py", "import asyncio.events"),
        ("errors.py", "from polymq import wire"),
        ("spark/planted.py", "import polymq.server"),
        ("core/planted.py", "import polymq.testing"),
        ("server/planted.py", "import pyspark.sql"),
        ("testing/planted.py", "import pytest"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, statement: str) -> None:
    planted = tmp_path / "polymq" / file
    planted.parent.mkdir(parents=True)
    original = SOURCE / file
    planted.write_text(original.read_text(encoding="utf-8") if original.exists() else "", encoding="utf-8")
    assert violations(tmp_path / "polymq") == []
    with planted.open("a", encoding="utf-8") as target:
        target.write(f"\n{statement}\n")
    assert len(violations(tmp_path / "polymq")) == 1
