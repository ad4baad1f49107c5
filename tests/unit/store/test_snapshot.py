"""Snapshots in pieces: whatever is journaled between them, and wherever it ends, the state that is found is the one there was."""

from __future__ import annotations

import struct
from random import Random
from typing import TYPE_CHECKING

import pytest

from polymq.store.entries import CORE_KIND_MIN, PIECE, PIECE_GOES_ON, SNAPSHOT_BEGIN, Start, encode_start
from polymq.store.frames import scan_segment
from polymq.store.journal_recovery import JOURNAL_FOLDER, journal_path, journal_segments, recover_journal
from polymq.store.snapshot import in_order
from polymq.testing.disk import FakeFiles
from tests.unit.store.harness import Harness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MADE, GONE, ADDED = 0x40, 0x41, 0x42
_FORM = struct.Struct("<BII")
KEYS = 6


class Sums:
    """The smallest core that can go wrong: things that are made, grow by what is journaled, and go. Growing twice shows."""

    def __init__(self) -> None:
        self.things: dict[int, list[int]] = {}

    def apply(self, entry: bytes) -> None:
        kind, key, value = _FORM.unpack(entry)
        if kind == MADE:
            self.things[key] = []
        elif kind == GONE:
            self.things.pop(key, None)
        elif key in self.things:
            self.things[key].append(value)

    def units(self) -> Iterator[Iterator[bytes]]:
        for key, thing in list(self.things.items()):
            if self.things.get(key) is thing:
                yield self.unit(key)

    def unit(self, key: int) -> Iterator[bytes]:
        yield _FORM.pack(MADE, key, 0)
        yield from (_FORM.pack(ADDED, key, value) for value in self.things[key])


def replayed(entries: Iterable[bytes]) -> dict[int, list[int]]:
    core = Sums()
    for entry in entries:
        core.apply(entry)
    return core.things


def draw(chance: Random, core: Sums) -> bytes:
    key = chance.randrange(KEYS)
    if key not in core.things:
        return _FORM.pack(MADE, key, 0)
    return _FORM.pack(GONE if chance.random() < 0.05 else ADDED, key, chance.getrandbits(30))


def frames(files: FakeFiles) -> list[tuple[str, int, int]]:
    """Where each frame of the journal lies: (file, begin, end)."""
    found = []
    for base in journal_segments(files):
        path = journal_path(base)
        file = files.open(path)
        found += [(path, at, at + frame.size) for at, frame in scan_segment(file.pread(file.size(), 0), base).frames]
    return found


def live(harness: Harness, chance: Random, core: Sums, states: dict[int, dict[int, list[int]]]) -> None:
    """One life: random entries, snapshots that begin, go on or not, and syncs that end; `states` by the next sequence."""
    store = harness.store
    journal = store.journal
    for _turn in range(chance.randrange(5, 120)):
        for _ in range(chance.randrange(4)):
            entry = draw(chance, core)
            core.apply(entry)
            journal.append(entry)
        if chance.random() < 0.1:
            journal.begin_snapshot(core.units())
        if journal.snapshotting and chance.random() < 0.8:
            journal.continue_snapshot()
            states[journal.sequence] = {key: list(thing) for key, thing in core.things.items()}
        store.commit()
        states[journal.sequence] = {key: list(thing) for key, thing in core.things.items()}
        if chance.random() < 0.2:
            harness.turn()


@pytest.mark.parametrize("seed", range(30))
def test_random_pieces_and_a_crash_at_every_frame_find_the_state_there_was(seed: int) -> None:
    chance = Random(seed)
    harness = Harness(seed, snapshot_piece_entries=chance.choice((1, 4, 20)), snapshot_piece_size_bytes=chance.choice((30, 100, 1000)))
    core = Sums()
    for _life in range(4):
        harness.open()
        assert replayed(harness.replayed) == core.things
        states: dict[int, dict[int, list[int]]] = {}
        live(harness, chance, core, states)
        if chance.random() < 0.2:
            harness.store.close(clean=True)
            harness.crash()
        else:
            synced = harness.store.journal.synced_sequence
            harness.crash()
            places = frames(harness.files)
            sequence = harness.store.journal.sequence
            for count in range(len(places), 0, -1):
                if sequence in states:
                    assert replayed(core_entries(cut(harness.files, places[:count]))) == states[sequence]
                sequence -= 1
                if sequence <= synced:
                    break


def cut(files: FakeFiles, places: list[tuple[str, int, int]]) -> FakeFiles:
    """Copy the journal up to and with the last of these frames: what a process leaves that is killed behind it."""
    copy = FakeFiles()
    copy.make_folder(JOURNAL_FOLDER)
    ends = {path: end for path, _begin, end in places}
    for path, end in ends.items():
        source, target = files.open(path), copy.open(path, create=True)
        target.pwrite(source.pread(end, 0), 0)
        target.truncate(source.size())
    return copy


def core_entries(files: FakeFiles) -> list[bytes]:
    return [bytes(entry) for entry in recover_journal(files).entries() if entry[0] >= CORE_KIND_MIN]


def test_pieces_are_found_complete_or_left_out_whatever_is_between_them() -> None:
    def frame(*entries: bytes) -> Iterator[memoryview]:
        return iter([memoryview(entry) for entry in entries])

    def order(*given: Iterator[memoryview]) -> list[bytes]:
        return [bytes(entry) for entry in in_order(given)]

    start = encode_start(Start("boot", 1))
    assert order(frame(PIECE, b"1", b"2"), frame(b"a")) == [b"1", b"2", b"a"]
    assert order(frame(PIECE_GOES_ON, b"1"), frame(b"a"), frame(PIECE_GOES_ON, b"2"), frame(b"b"), frame(PIECE, b"3")) == [
        b"1",
        b"2",
        b"3",
        b"a",
        b"b",
    ]
    assert order(frame(PIECE_GOES_ON, b"1"), frame(b"a")) == [b"a"]
    assert order(frame(PIECE_GOES_ON, b"1"), frame(b"a"), frame(start, b"b"), frame(b"c")) == [b"a", start, b"b", b"c"]
    again = frame(SNAPSHOT_BEGIN)
    assert order(frame(PIECE_GOES_ON, b"1"), frame(b"a"), again, frame(PIECE, b"2")) == [b"a", SNAPSHOT_BEGIN, b"2"]
    assert order(frame()) == []
