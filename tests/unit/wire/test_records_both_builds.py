"""The compiled and the interpreted file give the same answers for the same bytes.

Where nothing is compiled this compares the file with itself, which costs little; the compiled run is the one that
can fail.
"""

from __future__ import annotations

import struct
from dataclasses import astuple
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.errors import CorruptRecord
from polymq.wire import records
from polymq.wire.slices import MessageBatch
from tests.unit.wire import batches

if TYPE_CHECKING:
    from types import ModuleType

    from polymq.wire.records import Message

plain = batches.interpreted()


def answers(module: ModuleType, data: bytes, end: int, left: int, count_max: int, size_max: int) -> list[object]:
    """Everything that a build says about some bytes."""
    said: list[object] = [module.check(data, 0, end), module.skip(data, 0, 0, 0, count_max, size_max, end)]
    if end >= 80:
        said.append(module.skip(data, 80, left, -5, count_max, size_max, end))
    for last in (2**41, 2):
        try:
            said.append(astuple(module.columns(data, 0, end, 1, last)))
        except CorruptRecord as error:
            said.append(error.position)
    return said


def test_the_two_are_two() -> None:
    assert plain is not records
    assert plain.skip is not records.skip
    assert str(plain.__file__).endswith(".py")


@settings(max_examples=200)
@given(batches.runs, st.data())
def test_sound_and_damaged_runs_give_the_same_answers(groups: list[list[Message]], draw: st.DataObject) -> None:
    data = bytearray(batches.run(groups))
    for _ in range(draw.draw(st.integers(0, 3))):
        if len(data) >= 4:
            at = draw.draw(st.integers(0, len(data) - 4))
            struct.pack_into("<I", data, at, draw.draw(st.integers(0, 300) | st.integers(0, 2**32 - 1)))
    if len(groups) == 1 and draw.draw(st.booleans()):
        batches.reseal(data)
    end = draw.draw(st.just(len(data)) | st.integers(0, len(data)))
    left, count_max, size_max = draw.draw(st.tuples(st.integers(0, 4), st.integers(0, 20), st.integers(0, 500)))
    # Nothing behind `end` exists: in the build with bounds checks, reading there would be an error.
    given_bytes = bytes(data[:end])
    assert answers(records, given_bytes, end, left, count_max, size_max) == answers(plain, given_bytes, end, left, count_max, size_max)


@given(st.lists(st.binary(max_size=50), max_size=8), st.integers(0, 9))
def test_bodies_are_encoded_alike(bodies: list[bytes], at: int) -> None:
    batch = MessageBatch.of(bodies)
    targets = [bytearray(at + 8 * batch.count + batch.size_bytes) for _ in range(2)]
    ends = [module.encode_bodies(target, at, batch) for module, target in zip((records, plain), targets, strict=True)]
    assert ends[0] == ends[1] == len(targets[0])
    assert targets[0] == targets[1]
