"""The small files of a spool: who it is, how far it is durable, what the reader has committed, how the spooler is.

    spool.json   which spool this is: a random id, the protocol. Written once
    POSITION     how far the spool is durable; 44 bytes with a checksum, written after each sync and never before it.
                 Not synced itself: after a power loss it may be missing, or say less, until a writer has looked
    committed    JSON: what the reader has committed. Written by the reader, by renaming
    status.json  for people and tools, once a second, by renaming
    LOCK         flock of the one process that writes
    *.seg        the records: `segments.py`

Readers know nothing but what these files say, and never write but `committed`. Read next: `reading.py`.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from polymq.errors import StoreFailed
from polymq.wire.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "COMMITTED",
    "IDENTITY",
    "POSITION",
    "POSITION_SIZE_BYTES",
    "STATUS",
    "Identity",
    "Position",
    "bases",
    "committed",
    "identity",
    "make_identity",
    "pack_position",
    "parse_identity",
    "parse_position",
    "position",
    "segment_name",
    "segments",
    "status",
    "write_committed",
    "write_file",
]

IDENTITY: Final = "spool.json"
POSITION: Final = "POSITION"
COMMITTED: Final = "committed"
STATUS: Final = "status.json"
SUFFIX: Final = ".seg"
_FORMAT: Final = 1
_POSITION: Final = struct.Struct("<IIQqqq4x")
POSITION_SIZE_BYTES: Final = _POSITION.size
_MAGIC: Final = 0x50504D53  # "SMPP"
# A writer and a reader may meet in the middle of the 44 bytes.
_ATTEMPTS_MAX: Final = 100
_SMALL_SIZE_BYTES_MAX: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Identity:
    """Which spool it is. `number` is in every offset of a checkpoint: a spool that was lost and begun anew has another."""

    number: int
    protocol: str


@dataclass(frozen=True, slots=True)
class Position:
    """Records before `end` are durable; in the segment of `base` they end at byte `used`."""

    number: int
    end: int
    base: int
    used: int


def write_file(path: Path, text: str, *, durable: bool = False) -> None:
    """Put a small file in place of the one there was: readers see the one or the other. Raises OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        if durable:
            os.fsync(file.fileno())
    beside.replace(path)


def _load(path: Path) -> dict[str, Any] | None:
    """Read a small file of JSON; None if there is none, or nothing that makes sense."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_SMALL_SIZE_BYTES_MAX))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreFailed(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no JSON'}") from error
    if not isinstance(found, dict):
        raise StoreFailed(f"{path} cannot be read: it is no JSON object")
    return found


def make_identity(found: Identity) -> str:
    """Write an identity as it stands in its file."""
    return json.dumps({"format": _FORMAT, "spool": f"{found.number:016x}", "protocol": found.protocol}) + "\n"


def identity(folder: Path) -> Identity | None:
    """Say which spool is in a folder; None if there is none. Raises StoreFailed."""
    try:
        data = (folder / IDENTITY).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreFailed(f"{folder / IDENTITY} cannot be read: {error.strerror or error}") from error
    return parse_identity(data, str(folder / IDENTITY))


def parse_identity(data: bytes, path: str) -> Identity:
    """Read what `make_identity` has written. Raises StoreFailed."""
    try:
        found = json.loads(data)
        if found["format"] != _FORMAT:
            raise StoreFailed(f"{path}: a spool of format {found['format']}; this program reads {_FORMAT}")
        return Identity(int(found["spool"], 16), str(found["protocol"]))
    except (KeyError, TypeError, ValueError) as error:
        raise StoreFailed(f"{path} does not say which spool this is") from error


def pack_position(found: Position) -> bytes:
    """Write a position as it stands in its file."""
    data = _POSITION.pack(0, _MAGIC, found.number, found.end, found.base, found.used)
    return struct.pack("<I", crc32c(data[4:])) + data[4:]


def parse_position(data: bytes) -> Position | None:
    """Read what `pack_position` has written; None for anything else."""
    if len(data) != POSITION_SIZE_BYTES:
        return None
    crc, magic, number, end, base, used = _POSITION.unpack(data)
    if magic != _MAGIC or crc != crc32c(data[4:]) or min(end, base, used) < 0:
        return None
    return Position(number, end, base, used)


def position(folder: Path) -> Position | None:
    """Say how far the spool in a folder is durable; None if nothing says so (yet, or after a power loss)."""
    for _ in range(_ATTEMPTS_MAX):
        try:
            data = (folder / POSITION).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreFailed(f"{folder / POSITION} cannot be read: {error.strerror or error}") from error
        found = parse_position(data)
        if found is not None:
            return found
    return None


def committed(folder: Path) -> int:
    """Say what the reader has committed: records before this. 0 if it has not, or if what it wrote makes no sense."""
    try:
        found = _load(folder / COMMITTED) or {}
        return max(0, int(found.get("offset", 0)))
    except (StoreFailed, TypeError, ValueError):
        return 0


def write_committed(folder: Path, offset: int) -> None:
    """Say that records before `offset` have been read for good. Raises OSError."""
    write_file(folder / COMMITTED, json.dumps({"offset": offset}) + "\n")


def status(folder: Path) -> Mapping[str, Any] | None:
    """Read what the spooler last said about itself; None if it never has. Raises StoreFailed."""
    return _load(folder / STATUS)


def segment_name(base_offset: int) -> str:
    """Name a segment."""
    return f"{base_offset:020d}{SUFFIX}"


def segments(folder: Path) -> list[int]:
    """List the segments by their first offsets, oldest first. Raises StoreFailed."""
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except OSError as error:
        raise StoreFailed(f"{folder} cannot be read: {error.strerror or error}") from error
    return bases(names)


def bases(names: list[str]) -> list[int]:
    """Pick the segments out of the names of a folder's files."""
    stems = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit())
