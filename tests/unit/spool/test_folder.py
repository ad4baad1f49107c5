"""The small files of a spool."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.errors import StoreFailed
from polymq.spool import folder
from polymq.spool.folder import Identity, Position

if TYPE_CHECKING:
    from pathlib import Path


def test_an_identity_is_read_back_and_nonsense_is_refused(tmp_path: Path) -> None:
    assert folder.identity(tmp_path) is None
    folder.write_file(tmp_path / folder.IDENTITY, folder.make_identity(Identity(7, "nsq")), durable=True)
    assert folder.identity(tmp_path) == Identity(7, "nsq")
    for text in (
        "",
        "[]",
        '{"format": 1}',
        '{"format": 2, "spool": "7", "protocol": "nsq"}',
        '{"format": 1, "spool": "x", "protocol": "nsq"}',
    ):
        (tmp_path / folder.IDENTITY).write_text(text, encoding="utf-8")
        with pytest.raises(StoreFailed, match=r"spool\.json"):
            folder.identity(tmp_path)


def test_a_position_is_read_back_and_one_with_a_wrong_bit_is_none(tmp_path: Path) -> None:
    assert folder.position(tmp_path) is None
    found = Position(1 << 63, 5, 3, 700)
    data = folder.pack_position(found)
    (tmp_path / folder.POSITION).write_bytes(data)
    assert folder.position(tmp_path) == found
    for at in range(len(data)):
        wrong = bytearray(data)
        wrong[at] ^= 1
        assert folder.parse_position(bytes(wrong)) is None
    for size in range(len(data)):
        assert folder.parse_position(data[:size]) is None
    (tmp_path / folder.POSITION).write_bytes(bytes(len(data)))
    assert folder.position(tmp_path) is None


def test_what_was_committed_is_0_if_nothing_sensible_says_so(tmp_path: Path) -> None:
    assert folder.committed(tmp_path) == 0
    folder.write_committed(tmp_path, 12)
    assert folder.committed(tmp_path) == 12
    for text in ("x", "[]", '{"offset": "x"}', '{"offset": -3}'):
        (tmp_path / folder.COMMITTED).write_text(text, encoding="utf-8")
        assert folder.committed(tmp_path) == 0


def test_segments_are_listed_by_their_first_offsets(tmp_path: Path) -> None:
    for name in (folder.segment_name(20), folder.segment_name(3), "next.seg", "POSITION", "5.txt"):
        (tmp_path / name).touch()
    assert folder.segments(tmp_path) == [3, 20]
    with pytest.raises(StoreFailed, match="cannot be read"):
        folder.segments(tmp_path / "nothing")


def test_a_status_may_be_missing(tmp_path: Path) -> None:
    assert folder.status(tmp_path) is None
    folder.write_file(tmp_path / folder.STATUS, '{"state": "receiving"}')
    assert folder.status(tmp_path) == {"state": "receiving"}
