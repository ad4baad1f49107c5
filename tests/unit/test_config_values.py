"""Values are read as they are written, and what cannot be read says what was expected."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.config_values import (
    UNIX_PATH_SIZE_BYTES_MAX,
    Address,
    AddressKind,
    ChoiceKind,
    CountKind,
    DiskShare,
    DiskShareKind,
    DurationKind,
    Kind,
    PathKind,
    SharesKind,
    SizeKind,
    SwitchKind,
    TargetKind,
    TcpAddress,
    TextKind,
    TextsKind,
    UnixAddress,
    format_address,
    format_duration,
    format_size,
    parse_address,
    parse_duration,
    parse_go_duration,
    parse_size,
)

HOSTS = st.from_regex(r"[a-z0-9.-]{1,30}", fullmatch=True) | st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str)
ADDRESSES = (
    st.none()
    | st.builds(TcpAddress, HOSTS, st.integers(0, 65535))
    | st.builds(UnixAddress, st.text(st.characters(codec="ascii"), min_size=1, max_size=UNIX_PATH_SIZE_BYTES_MAX))
)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4150", TcpAddress("127.0.0.1", 4150)),
        ("localhost:0", TcpAddress("localhost", 0)),
        ("[::1]:65535", TcpAddress("::1", 65535)),
        ("unix:/run/polymq.sock", UnixAddress("/run/polymq.sock")),
        ("unix:a:1", UnixAddress("a:1")),
        ("off", None),
    ],
)
def test_addresses(text: str, address: Address | None) -> None:
    assert parse_address(text) == address
    assert format_address(address) == text


@given(ADDRESSES)
def test_addresses_round_trip(address: Address | None) -> None:
    assert parse_address(format_address(address)) == address


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "HOST:PORT"),
        ("4150", "HOST:PORT"),
        (":4150", "HOST:PORT"),
        ("[]:4150", "HOST:PORT"),
        ("my host:1", "HOST:PORT"),
        ("OFF", "HOST:PORT"),
        ("::1:4150", r"brackets: \[::1\]:4150"),
        ("host:", "a number from 0 to 65535"),
        ("host:-1", "a number from 0 to 65535"),
        ("host:65536", "a number from 0 to 65535"),
        ("host:٣", "a number from 0 to 65535"),
        ("unix:", "path after unix: is missing"),
        ("unix:" + "x" * (UNIX_PATH_SIZE_BYTES_MAX + 1), "may have 103 bytes"),
    ],
)
def test_addresses_that_are_none(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [("0s", 0), ("250ms", 250 * 10**6), ("1h30m", 5400 * 10**9), ("1.5s", 1_500_000_000), ("1h0m0s", 3600 * 10**9), ("7d", 604800 * 10**9)],
)
def test_durations(text: str, duration_ns: int) -> None:
    assert parse_duration(text) == duration_ns


@given(st.integers(0, 10**15))
def test_durations_round_trip(duration_ns: int) -> None:
    assert parse_duration(format_duration(duration_ns)) == duration_ns


@pytest.mark.parametrize("text", ["", "60", "-1s", "s", "1 hour", "1s x", "1w"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="with its unit"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("0", 0), ("1048576", 1 << 20), ("64KiB", 65536), ("64 kib", 65536), ("1.5GB", 1_500_000_000), ("2TiB", 2 << 40), ("5 B", 5)],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@given(st.integers(0, 1 << 50))
def test_sizes_round_trip(size_bytes: int) -> None:
    assert parse_size(format_size(size_bytes)) == size_bytes


@pytest.mark.parametrize("text", ["", "-1", "1k", "KiB", "1 MiB 2", "ten"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="a size in bytes"):
        parse_size(text)


GOOD: list[tuple[Kind, object, object]] = [
    (TextKind(), "any", "any"),
    (TextsKind(), "a:1, b:2,", ("a:1", "b:2")),
    (TextsKind(), ["a:1", "b:2"], ("a:1", "b:2")),
    (TextsKind(), "", ()),
    (PathKind(), "/var/lib/polymq", Path("/var/lib/polymq")),
    (PathKind(), "~/data", Path.home() / "data"),
    (AddressKind(), "off", None),
    (AddressKind(), "h:1", TcpAddress("h", 1)),
    (ChoiceKind(("a", "b")), "b", "b"),
    (CountKind(1, 5), 5, 5),
    (CountKind(1, 5), "1", 1),
    (DurationKind(0, 10**10), "10s", 10**10),
    (SizeKind(1, 4096), 4096, 4096),
    (SizeKind(1, 4096), "4KiB", 4096),
    (TargetKind(), "h:1", TcpAddress("h", 1)),
    (TargetKind(), "off", None),
    (TargetKind(), "", None),
    (SwitchKind(), True, True),
    (SwitchKind(), "false", False),
    (SharesKind(3), "", ()),
    (SharesKind(3), [], ()),
    (SharesKind(3), "0.5,1,0.99", (1.0, 0.99, 0.5)),
    (SharesKind(3), [0.5, 1, "0.5"], (1.0, 0.5)),
    (DiskShareKind(), "12.5%", DiskShare(percent=12.5)),
    (DiskShareKind(), "20GiB", DiskShare(size_bytes=20 << 30)),
    (DiskShareKind(), 0, DiskShare()),
]
BAD: list[tuple[Kind, object, str]] = [
    (TextKind(), 7, "text in quotes"),
    (TextsKind(), 7, "a list of texts"),
    (TextsKind(), ["a", 7], "a list of texts"),
    (PathKind(), "", "a path"),
    (AddressKind(), 4150, "HOST:PORT"),
    (ChoiceKind(("a", "b")), "c", "one of a, b"),
    (CountKind(1, 5), 6, "from 1 to 5"),
    (CountKind(1, 5), "x", "from 1 to 5"),
    (CountKind(0, 5), True, "from 0 to 5"),
    (DurationKind(10**9, 10**10), 60, "with its unit"),
    (DurationKind(10**9, 10**10), "11s", "from 1s to 10s"),
    (SizeKind(1, 4096), "5KiB", "from 1 to 4KiB"),
    (SizeKind(1, 4096), 1.5, "a size in bytes"),
    (SizeKind(1, 4096), True, "a size in bytes"),
    (TargetKind(), 8125, "HOST:PORT"),
    (TargetKind(), "h:0", "HOST:PORT"),
    (TargetKind(), "unix:/tmp/x", "HOST:PORT"),
    (SwitchKind(), "yes", "true or false"),
    (SwitchKind(), 1, "true or false"),
    (SharesKind(3), "0", "above 0"),
    (SharesKind(3), "1.1", "above 0"),
    (SharesKind(3), "nan", "above 0"),
    (SharesKind(3), "x", "above 0"),
    (SharesKind(3), 0.5, "above 0"),
    (SharesKind(3), [True], "above 0"),
    (SharesKind(3), "0.1,0.2,0.3,0.4", "3 of them at most"),
    (DiskShareKind(), "x%", "not a percentage"),
    (DiskShareKind(), "101%", "from 0% to 100%"),
    (DiskShareKind(), "nan%", "from 0% to 100%"),
    (DiskShareKind(), [], "a percentage of the disk"),
]


@pytest.mark.parametrize(("kind", "raw", "value"), GOOD)
def test_kinds_read_and_write(kind: Kind, raw: object, value: object) -> None:
    assert kind.read(raw) == value
    assert kind.read(kind.write(value)) == value


@pytest.mark.parametrize(("kind", "raw", "says"), BAD)
def test_kinds_refuse(kind: Kind, raw: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        kind.read(raw)


def test_a_share_of_the_disk_in_bytes() -> None:
    assert DiskShare(percent=10).of(1000) == 100
    assert DiskShare(size_bytes=7).of(1000) == 7


@pytest.mark.parametrize(
    ("written", "time_ns"),
    [("0", 0), ("1h2m3s", 3723 * 10**9), ("1.5h", 5400 * 10**9), (".5s", 10**9 // 2), ("5µs", 5000), ("5us", 5000), ("-2m", -120 * 10**9)],
)
def test_times_of_go(written: str, time_ns: int) -> None:
    assert parse_go_duration(written) == time_ns


@given(st.text(max_size=20) | st.text("0123456789.hmsnuµ+-", max_size=200))
def test_times_never_fail_otherwise(written: str) -> None:
    try:
        parse_go_duration(written)
    except ValueError as error:
        assert "expected a time" in str(error)
