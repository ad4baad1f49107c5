from __future__ import annotations

import pytest

from polymq.protocols.nsq.names import is_ephemeral, is_valid_name


@pytest.mark.parametrize(
    "name", [b"t", b"test", b"test-with_period.", b"test#ephemeral", b"a" * 64, b"a" * 54 + b"#ephemeral", b".", b"0-Z_."]
)
def test_valid_names(name: bytes) -> None:
    assert is_valid_name(name)


@pytest.mark.parametrize(
    "name",
    [
        b"",
        b"test:ephemeral",
        b"#ephemeral",
        b"a#ephemeralx",
        b"a#ephemeral#ephemeral",
        b"a" * 65,
        b"a" * 55 + b"#ephemeral",
        b"a\n",
        b"a b",
        "é".encode(),
        b"a\xff",
    ],
)
def test_invalid_names(name: bytes) -> None:
    assert not is_valid_name(name)


def test_ephemeral_names() -> None:
    assert is_ephemeral(b"t#ephemeral")
    assert not is_ephemeral(b"t")
