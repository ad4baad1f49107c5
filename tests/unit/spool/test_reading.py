"""The reader's side: pieces of any range, read back whole, beside a writer and over damage."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from polymq.errors import CorruptRecord, PolyMQError, StoreFailed
from polymq.spool import folder, reading
from polymq.spool.reading import Catalogue, read_piece
from polymq.store.files import RealFiles
from polymq.wire.records import columns
from tests.unit.spool.spools import filled, portion, writer

if TYPE_CHECKING:
    from pathlib import Path


def offsets_of(path: Path, first: int, end: int) -> list[int]:
    found: list[int] = []
    for piece in Catalogue(path, "nsq").pieces(first, end):
        for stretch in read_piece(path, piece):
            found += columns(stretch.data, 0, stretch.size, stretch.first, stretch.end).offsets
    return found


def test_every_range_is_read_as_it_is(tmp_path: Path) -> None:
    filled(tmp_path, [[b"%d" % m for m in range(n % 7 + 1)] for n in range(150)])
    catalogue = Catalogue(tmp_path, "nsq")
    end = catalogue.end()
    assert len(folder.segments(tmp_path)) > 2
    draw = random.Random(4)
    for _ in range(200):
        first, stop = sorted(draw.randrange(end + 1) for _ in range(2))
        # The same catalogue remembers where it was, and may be asked for anything.
        pieces = catalogue.pieces(first, stop)
        assert pieces == Catalogue(tmp_path, "nsq").pieces(first, stop)
        assert offsets_of(tmp_path, first, stop) == list(range(first, stop))


def test_chunks_are_cut_between_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, [[b"%d" % n * (n % 60)] for n in range(100)] + [[b"x" * 5000]])
    for size in (100, 333, 4096):
        monkeypatch.setattr(reading, "_CHUNK_SIZE_BYTES", size)
        assert offsets_of(tmp_path, 0, 101) == list(range(101))


def test_what_is_not_durable_is_not_planned(tmp_path: Path) -> None:
    opened = writer(RealFiles(tmp_path))
    opened.open()
    opened.append([portion([b"a", b"b"])])
    catalogue = Catalogue(tmp_path, "nsq")
    assert (catalogue.start(), catalogue.end()) == (0, 2)
    opened.append([portion([b"c"])])
    assert catalogue.end() == 3
    assert offsets_of(tmp_path, 2, 3) == [2]
    opened.close()


def test_there_may_be_no_spool_or_another_one(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="no spool in"):
        Catalogue(tmp_path, "nsq").end()
    filled(tmp_path, [[b"a"]])
    with pytest.raises(StoreFailed, match="for nsq, not for nats"):
        Catalogue(tmp_path, "nats").end()
    data = folder.pack_position(folder.Position(99, 1, 0, 100))
    (tmp_path / folder.POSITION).write_bytes(data)
    with pytest.raises(StoreFailed, match="start its spooler"):
        Catalogue(tmp_path, "nsq").end()


def test_a_dropped_segment_is_left_out_and_one_that_goes_meanwhile_is_noticed(tmp_path: Path) -> None:
    filled(tmp_path, [[b"%d" % n * 20] for n in range(100)])
    bases = folder.segments(tmp_path)
    pieces = Catalogue(tmp_path, "nsq").pieces(0, 100)
    (tmp_path / folder.segment_name(bases[0])).unlink()
    with pytest.raises(FileNotFoundError):
        list(read_piece(tmp_path, pieces[0]))
    assert offsets_of(tmp_path, 0, 100) == list(range(bases[1], 100))


def test_damaged_files_give_our_errors_and_nothing_wrong(tmp_path: Path) -> None:
    filled(tmp_path, [[b"%d" % n] for n in range(20)])
    path = tmp_path / folder.segment_name(0)
    good = path.read_bytes()
    position = folder.position(tmp_path)
    assert position is not None
    draw = random.Random(8)
    found_wrong = 0
    for _ in range(400):
        wrong = bytearray(good)
        for _ in range(draw.randrange(1, 4)):
            wrong[draw.randrange(position.used)] ^= 1 << draw.randrange(8)
        path.write_bytes(wrong if draw.random() < 0.8 else wrong[: draw.randrange(position.used)])
        try:
            assert offsets_of(tmp_path, 0, 20) == list(range(20))
        except PolyMQError as error:
            assert isinstance(error, CorruptRecord | StoreFailed)
            found_wrong += 1
    assert found_wrong > 300
