from __future__ import annotations

import subprocess
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

import crc32c as package
from hypothesis import given
from hypothesis import strategies as st

from polymq.wire import crc
from polymq.wire.crc import crc32c

if TYPE_CHECKING:
    import pytest


def by_bits(data: bytes) -> int:
    """CRC-32C by its definition (Castagnoli polynomial, reflected), as an independent answer."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_the_check_value_of_the_standard() -> None:
    """RFC 3720, appendix B.4, and the check value "123456789" of the catalogues."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"") == 0


@given(st.binary(max_size=200), st.integers(0, 200))
def test_a_checksum_is_continued_from_any_cut(data: bytes, cut: int) -> None:
    expected = by_bits(data)
    assert crc32c(data) == expected
    assert crc32c(memoryview(data)[cut:], crc32c(bytearray(data[:cut]))) == expected


def test_only_what_is_compiled_of_the_package_is_loaded() -> None:
    program = "import sys\nfrom polymq.wire.crc import crc32c\nassert crc32c(b'123456789') == 0xE3069283\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert not {"crc32c", "importlib.metadata", "argparse"} & set(done.stdout.split())


def test_a_package_of_another_shape_is_imported_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PathFinder, "find_spec", lambda *_: None)
    assert crc._load() is package.crc32c
