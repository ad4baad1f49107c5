"""The kinds of value that a setting can have: how each is read from text, and how it is written back.

A kind turns what a file, the environment or a flag says into the value that the program uses, and explains in one
sentence what it expected when it cannot. Units are spelt out in text (`"60s"`, `"1 MiB"`) and are nanoseconds and
bytes from here on. `config_sections.py` says which setting is of which kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

__all__ = [
    "Address",
    "AddressKind",
    "ChoiceKind",
    "CountKind",
    "DiskShare",
    "DiskShareKind",
    "DurationKind",
    "Kind",
    "PathKind",
    "SharesKind",
    "SizeKind",
    "SwitchKind",
    "TargetKind",
    "TcpAddress",
    "TextKind",
    "TextsKind",
    "UnixAddress",
    "format_address",
    "format_duration",
    "format_size",
    "parse_address",
    "parse_duration",
    "parse_go_duration",
    "parse_size",
]

# sockaddr_un.sun_path is 108 bytes on Linux and 104 on macOS, with the terminating zero.
UNIX_PATH_SIZE_BYTES_MAX: Final = 103
PORT_MAX: Final = 65535
NANOSECONDS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9, "d": 86400 * 10**9}
SIZE_BYTES: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|m|h|d)\s*")
# As Go's time.ParseDuration has it: signs, fractions without a digit on one side, µ; but no days and no blanks.
GO_DURATION: Final = re.compile(r"[+-]?(?:0|(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)
GO_DURATION_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
GO_DURATION_SIZE_MAX: Final = 100  # more digits are no time, and would take time
SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b)?", re.IGNORECASE)
DURATION_EXPECTED: Final = 'a time with its unit, such as "250ms", "60s", "1h30m" or "7d"'
GO_DURATION_EXPECTED: Final = 'a time with its unit, such as "250ms" or "1h30m"'
SIZE_EXPECTED: Final = 'a size in bytes or with its unit, such as 1048576, "64KiB" or "2GiB"'
TARGET_EXPECTED: Final = "HOST:PORT, [IPV6]:PORT or off"
SHARES_EXPECTED: Final = "shares above 0, at most 1, such as 1.0,0.99,0.5"
ADDRESS_EXPECTED: Final = "HOST:PORT, [IPV6]:PORT, unix:PATH or off"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host name or IP address (IPv6 without its brackets) and a port; port 0 lets the system choose."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The path of a Unix domain socket."""

    path: str


Address = TcpAddress | UnixAddress
"""Where a listener listens. A listener that is switched off has None."""


@dataclass(frozen=True, slots=True)
class DiskShare:
    """A part of a disk: so many bytes, or so many percent of its size."""

    size_bytes: int = 0
    percent: float = 0.0

    def of(self, total_bytes: int) -> int:
        """Return the number of bytes that this is on a disk of `total_bytes`."""
        return self.size_bytes + int(total_bytes * self.percent / 100)


def parse_address(text: str) -> Address | None:
    """Read `HOST:PORT`, `[v6]:PORT` or `unix:PATH`; `off` is None. Raises ValueError with what is wrong."""
    if text == "off":
        return None
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path:
            raise ValueError(f"the path after unix: is missing; expected {ADDRESS_EXPECTED}")
        if len(path.encode()) > UNIX_PATH_SIZE_BYTES_MAX:
            raise ValueError(f"the path of a Unix socket may have {UNIX_PATH_SIZE_BYTES_MAX} bytes, this one has {len(path.encode())}")
        return UnixAddress(path)
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"expected {ADDRESS_EXPECTED}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"an IPv6 address goes in brackets: [{host}]:{port}")
    if not host or any(character.isspace() for character in host):
        raise ValueError(f"expected {ADDRESS_EXPECTED}")
    if not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX:
        raise ValueError(f"the port must be a number from 0 to {PORT_MAX}, not {port!r}")
    return TcpAddress(host, int(port))


def format_address(address: Address | None) -> str:
    """Write an address the way `parse_address` reads it."""
    if address is None:
        return "off"
    if isinstance(address, UnixAddress):
        return f"unix:{address.path}"
    return f"[{address.host}]:{address.port}" if ":" in address.host else f"{address.host}:{address.port}"


def parse_duration(text: str) -> int:
    """Read a time with units, as Go and nsqd write it ("1h30m", "250ms"); returns nanoseconds."""
    position = 0
    total_ns = 0.0
    while position < len(text):
        match = DURATION_PART.match(text, position)
        if match is None:
            break
        total_ns += float(match[1]) * NANOSECONDS[match[2]]
        position = match.end()
    if position < len(text) or not text:
        raise ValueError(f"expected {DURATION_EXPECTED}")
    return round(total_ns)


def parse_go_duration(text: str) -> int:
    """Read a time as Go's time.ParseDuration does ("1m30s", "1.5h", "-2s"); returns nanoseconds."""
    if len(text) > GO_DURATION_SIZE_MAX or not GO_DURATION.fullmatch(text):
        raise ValueError(f"expected {GO_DURATION_EXPECTED}")
    total_ns: float = 0
    for number, unit in GO_DURATION_PART.findall(text):
        unit_ns = NANOSECONDS["us" if unit in ("µs", "μs") else unit]
        total_ns += float(number) * unit_ns if "." in number else int(number) * unit_ns
    return -round(total_ns) if text.startswith("-") else round(total_ns)


def format_duration(duration_ns: int) -> str:
    """Write nanoseconds with the largest unit that divides them."""
    for unit in ("d", "h", "m", "s", "ms", "us"):
        if duration_ns and duration_ns % NANOSECONDS[unit] == 0:
            return f"{duration_ns // NANOSECONDS[unit]}{unit}"
    return f"{duration_ns}ns" if duration_ns else "0s"


def parse_size(text: str) -> int:
    """Read a number of bytes, or a size with a unit ("64KiB", "1.5 GB")."""
    match = SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected {SIZE_EXPECTED}")
    return round(float(match[1]) * SIZE_BYTES[(match[2] or "").lower()])


def format_size(size_bytes: int) -> str:
    """Write bytes with the largest binary unit that divides them."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % SIZE_BYTES[unit.lower()] == 0:
            return f"{size_bytes // SIZE_BYTES[unit.lower()]}{unit}"
    return str(size_bytes)


class Kind(Protocol):
    """How one setting is read and written. `read` raises ValueError with what it expected."""

    def read(self, raw: object) -> object:
        """Turn what TOML, the environment or a flag says into the program's value."""

    def write(self, value: object) -> str:
        """Turn the program's value into text that `read` understands."""


@dataclass(frozen=True, slots=True)
class TextKind:
    """Any text."""

    def read(self, raw: object) -> str:
        """Take text as it is."""
        if not isinstance(raw, str):
            raise ValueError("expected text in quotes")
        return raw

    def write(self, value: object) -> str:
        """Give the text back."""
        return str(value)


@dataclass(frozen=True, slots=True)
class TextsKind:
    """Any number of texts: a list in the file, with commas between them elsewhere."""

    def read(self, raw: object) -> tuple[str, ...]:
        """Take what is between the commas; nothing is no text at all."""
        if isinstance(raw, str):
            raw = [text for part in raw.split(",") if (text := part.strip())]
        if not isinstance(raw, list) or not all(isinstance(text, str) for text in raw):
            raise ValueError("expected a list of texts, or one text with commas in it")
        return tuple(raw)

    def write(self, value: object) -> str:
        """Put commas between them."""
        assert isinstance(value, tuple)
        return ", ".join(value)


@dataclass(frozen=True, slots=True)
class PathKind:
    """A path of the file system; `~` is the home folder."""

    def read(self, raw: object) -> Path:
        """Expand `~`; an empty path is a mistake rather than the working folder."""
        if not isinstance(raw, str) or not raw:
            raise ValueError("expected a path")
        return Path(raw).expanduser()

    def write(self, value: object) -> str:
        """Give the path as text."""
        return str(value)


@dataclass(frozen=True, slots=True)
class AddressKind:
    """Where to listen, or `off`."""

    def read(self, raw: object) -> Address | None:
        """See `parse_address`."""
        if not isinstance(raw, str):
            raise ValueError(f"expected {ADDRESS_EXPECTED}")
        return parse_address(raw)

    def write(self, value: object) -> str:
        """See `format_address`."""
        assert value is None or isinstance(value, TcpAddress | UnixAddress)
        return format_address(value)


@dataclass(frozen=True, slots=True)
class TargetKind:
    """Where to send something, or `off` (nothing is the same). Unlike a listener's, such an address may be anybody's."""

    def read(self, raw: object) -> TcpAddress | None:
        """See `parse_address`; the port may not be 0."""
        if not isinstance(raw, str):
            raise ValueError(f"expected {TARGET_EXPECTED}")
        address = parse_address(raw or "off")
        if address is not None and (not isinstance(address, TcpAddress) or not address.port):
            raise ValueError(f"expected {TARGET_EXPECTED}")
        return address

    def write(self, value: object) -> str:
        """See `format_address`."""
        assert value is None or isinstance(value, TcpAddress)
        return format_address(value)


@dataclass(frozen=True, slots=True)
class SwitchKind:
    """Yes or no."""

    def read(self, raw: object) -> bool:
        """Take true or false, or their text when it comes from the environment or a flag."""
        if isinstance(raw, str) and raw in ("true", "false"):
            return raw == "true"
        if not isinstance(raw, bool):
            raise ValueError("expected true or false")
        return raw

    def write(self, value: object) -> str:
        """Give TOML's word."""
        return "true" if value else "false"


@dataclass(frozen=True, slots=True)
class SharesKind:
    """Shares of a whole, the largest first; none is allowed."""

    count_max: int

    def read(self, raw: object) -> tuple[float, ...]:
        """Take a list of numbers, or text in which they are separated by commas."""
        parts = raw.split(",") if isinstance(raw, str) else raw
        if not isinstance(parts, list) or any(isinstance(part, bool) or not isinstance(part, int | float | str) for part in parts):
            raise ValueError(f"expected {SHARES_EXPECTED}")
        try:
            shares = sorted({float(part) for part in parts if part != ""}, reverse=True)
        except ValueError as error:
            raise ValueError(f"expected {SHARES_EXPECTED}") from error
        if len(shares) > self.count_max or not all(0 < share <= 1 for share in shares):
            raise ValueError(f"expected {SHARES_EXPECTED}; {self.count_max} of them at most")
        return tuple(shares)

    def write(self, value: object) -> str:
        """Separate them by commas."""
        assert isinstance(value, tuple)
        return ",".join(f"{share:g}" for share in value)


@dataclass(frozen=True, slots=True)
class ChoiceKind:
    """One of a few words."""

    choices: tuple[str, ...]

    def read(self, raw: object) -> str:
        """Take a word that is one of the choices; TOML's true and false are words as well."""
        if isinstance(raw, bool):
            raw = str(raw).lower()
        if not isinstance(raw, str) or raw not in self.choices:
            raise ValueError(f"expected one of {', '.join(self.choices)}")
        return raw

    def write(self, value: object) -> str:
        """Give the word back."""
        return str(value)


@dataclass(frozen=True, slots=True)
class CountKind:
    """A whole number within bounds."""

    low: int
    high: int

    @property
    def bounds(self) -> str:
        """What may be chosen from, for people."""
        return f"{self.low} to {self.high}"

    def read(self, raw: object) -> int:
        """Take a number, or its digits when it comes from the environment or a flag."""
        if isinstance(raw, str) and raw.isascii() and raw.isdigit():
            raw = int(raw)
        if not isinstance(raw, int) or isinstance(raw, bool) or not self.low <= raw <= self.high:
            raise ValueError(f"expected a whole number from {self.bounds}")
        return raw

    def write(self, value: object) -> str:
        """Give the digits."""
        return str(value)


@dataclass(frozen=True, slots=True)
class DurationKind:
    """A time within bounds, in nanoseconds inside the program."""

    low_ns: int
    high_ns: int

    @property
    def bounds(self) -> str:
        """What may be chosen from, for people."""
        return f"{format_duration(self.low_ns)} to {format_duration(self.high_ns)}"

    def read(self, raw: object) -> int:
        """See `parse_duration`; a bare number is refused, because its unit would be a guess."""
        if not isinstance(raw, str):
            raise ValueError(f"expected {DURATION_EXPECTED}")
        value_ns = parse_duration(raw.strip())
        if not self.low_ns <= value_ns <= self.high_ns:
            raise ValueError(f"expected a time from {self.bounds}")
        return value_ns

    def write(self, value: object) -> str:
        """See `format_duration`."""
        assert isinstance(value, int)
        return format_duration(value)


@dataclass(frozen=True, slots=True)
class SizeKind:
    """A size within bounds, in bytes inside the program."""

    low_bytes: int
    high_bytes: int

    @property
    def bounds(self) -> str:
        """What may be chosen from, for people."""
        return f"{format_size(self.low_bytes)} to {format_size(self.high_bytes)}"

    def read(self, raw: object) -> int:
        """See `parse_size`; a bare number is bytes."""
        if isinstance(raw, bool) or not isinstance(raw, str | int):
            raise ValueError(f"expected {SIZE_EXPECTED}")
        value_bytes = parse_size(str(raw))
        if not self.low_bytes <= value_bytes <= self.high_bytes:
            raise ValueError(f"expected a size from {self.bounds}")
        return value_bytes

    def write(self, value: object) -> str:
        """See `format_size`."""
        assert isinstance(value, int)
        return format_size(value)


@dataclass(frozen=True, slots=True)
class DiskShareKind:
    """A size, or a percentage of the disk."""

    def read(self, raw: object) -> DiskShare:
        """Take `"10%"` or anything that `parse_size` takes."""
        if isinstance(raw, bool) or not isinstance(raw, str | int):
            raise ValueError(f'expected a percentage of the disk, such as "10%", or {SIZE_EXPECTED}')
        text = str(raw).strip()
        if not text.endswith("%"):
            return DiskShare(size_bytes=parse_size(text))
        try:
            percent = float(text[:-1])
        except ValueError as error:
            raise ValueError(f"{text!r} is not a percentage") from error
        if not 0 <= percent <= 100:
            raise ValueError("expected a percentage from 0% to 100%")
        return DiskShare(percent=percent)

    def write(self, value: object) -> str:
        """Write a percentage if it is one, else the size."""
        assert isinstance(value, DiskShare)
        return f"{value.percent:g}%" if value.percent else format_size(value.size_bytes)
