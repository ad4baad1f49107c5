"""The file in which a bridge keeps how far it has come, so that another run goes on there, after a SIGKILL too.

It is written to a file beside it, which then takes its name: whoever looks finds the old one or the new one, never half of one. A
lock on a third file (`.lock`) keeps a second bridge away for as long as the first one runs, and is the system's: nobody has to clean up.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import TracebackType

__all__ = ["Cursor", "Position"]

_FORMAT: Final = 1
# Thousands of partitions fit into far less.
_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Position:
    """How far a partition has come: everything below `offset` is done with. `number` and `epoch` say of which log that is true."""

    number: int
    epoch: int
    offset: int


class Cursor:
    """A cursor file, locked from when it is made until it is closed: `positions` and `moved` are what it said at first.

    `source` and `target` are the addresses, without secrets, that it must belong to.

    Raises:  ConfigError when another bridge has it, when it belongs to other ends, when it is damaged, or cannot be written.
    """

    def __init__(self, path: Path, source: str, target: str) -> None:
        self.path = path
        self.positions: dict[int, Position] = {}
        self.moved = 0
        self.is_new = True
        self._ends = {"source": source, "target": target}
        self._lock = self._locked()
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Be closed at the end."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close."""
        self.close()

    def write(self, positions: Mapping[int, Position], moved: int) -> None:
        """Have the file say this, also when the machine loses its power now; raises ConfigError."""
        said = {
            "format": _FORMAT,
            **self._ends,
            "moved": moved,
            "partitions": {
                str(partition): {"number": each.number, "epoch": each.epoch, "offset": each.offset}
                for partition, each in sorted(positions.items())
            },
        }
        new = self.path.with_name(self.path.name + ".new")
        try:
            with new.open("w", encoding="utf-8") as file:
                json.dump({**said, "check": _check(said)}, file, indent=1)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise ConfigError([f"the cursor {self.path} cannot be written: {error.strerror or error}"]) from error

    def close(self) -> None:
        """Let others have it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _locked(self) -> int | None:
        lock_path = self.path.with_name(self.path.name + ".lock")
        try:
            lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError([f"the cursor {self.path} cannot be locked: {error.strerror or error}"]) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise ConfigError([f"another bridge uses the cursor {self.path}: stop it, or give this one a cursor of its own"]) from error
        return lock

    def _read(self) -> None:
        try:
            if self.path.stat().st_size > _SIZE_BYTES_MAX:
                raise ValueError("too large")
            said: Any = json.loads(self.path.read_text(encoding="utf-8"))
            check = said.pop("check")
            if said["format"] != _FORMAT or check != _check(said):
                raise ValueError("it does not add up")
            positions = {
                int(partition): Position(int(each["number"]), int(each["epoch"]), int(each["offset"]))
                for partition, each in said["partitions"].items()
            }
            moved = int(said["moved"])
        except FileNotFoundError:
            return
        except OSError as error:
            raise ConfigError([f"the cursor {self.path} cannot be read: {error.strerror or error}"]) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            advice = "with it out of the way the bridge begins again (--from says where), and what was moved before comes twice"
            raise ConfigError([f"{self.path} is no cursor, or is damaged: {advice}"]) from error
        for what, expected in self._ends.items():
            if said.get(what) != expected:
                raise ConfigError([f"the cursor {self.path} is that of another bridge: its {what} is {said.get(what)}, not {expected}"])
        self.positions, self.moved, self.is_new = positions, moved, False


def _check(said: Mapping[str, Any]) -> int:
    """Sum up what a cursor says."""
    with contextlib.suppress(ValueError):
        return zlib.crc32(json.dumps(said, sort_keys=True).encode())
    return -1
