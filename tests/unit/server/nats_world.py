"""Configuration files of nats-server as texts, and what polymq makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.errors import ConfigError
from polymq.server.nats_assembly import assemble, read_document
from tests.unit.protocols.nats.conf_writer import read

if TYPE_CHECKING:
    from polymq.server.nats_settings import NatsServerSettings

# The public key of a user.
NKEY = "UCNGL4W5QX66CFX6A6DCBVDH5VOHMI7B2UZZU7TXAUQQSI2JPHULCKBR"


def settings_of(text: str, environment: dict[str, str] | None = None) -> NatsServerSettings:
    """Read a file that must be right."""
    return assemble(read_document(read(text, environment=environment)))


def problems_of(text: str, environment: dict[str, str] | None = None) -> list[str]:
    """Read a file that must be wrong; the file's name is cut off."""
    with pytest.raises(ConfigError) as caught:
        settings_of(text, environment)
    return [problem.removeprefix("test.conf:") for problem in caught.value.problems]


def notes_of(text: str) -> list[str]:
    """Read a file that must be right, and give what is to be told."""
    return [note.removeprefix("test.conf:") for note in settings_of(text).notes]
