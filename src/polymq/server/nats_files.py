"""Read the configuration file of a nats-server, as polymq takes it.

The language is `protocols/nats/conf.py`'s, the keys are in `nats_keys.py` and `nats_accounts.py`, what comes of them is
`nats_settings.py`. Everything that is wrong is told at once, each with its file, its line and what to do.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polymq import limits
from polymq.protocols.nats.conf import parse
from polymq.server.nats_assembly import assemble, read_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.server.nats_assembly import Draft
    from polymq.server.nats_settings import NatsServerSettings

__all__ = ["draft_of", "load"]


def load(path: Path | str, *, environment: Mapping[str, str]) -> NatsServerSettings:
    """Read a file with all that it includes. Raises ConfigError with every problem found."""
    return assemble(draft_of(path, environment=environment))


def draft_of(path: Path | str, *, environment: Mapping[str, str]) -> Draft:
    """Read a file without looking yet whether everything fits together: flags may change it."""
    return read_document(parse(str(path), read=_read, environment=environment))


def _read(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(limits.NATS_CONF_SIZE_BYTES_MAX + 1)
