from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polymq.wire.batch import ATTRIBUTE_PREPARED, ATTRIBUTE_RENEWED, HEADER_SIZE_BYTES, BatchHeader, Message, encode_message, seal
from polymq.wire.live_records import skip_origin

PASSED = 3


def stored(*batches: tuple[int, list[Message]], attributes: int = 0) -> bytes:
    """Batches of an origin each, one behind the other."""
    data = bytearray()
    for origin, messages in batches:
        at = len(data)
        data += bytes(HEADER_SIZE_BYTES) + b"".join(encode_message(message, 1000) for message in messages)
        seal(data, at, len(data), BatchHeader(origin=origin, attributes=attributes, count=len(messages), base_time_ns=1000))
    return bytes(data)


@given(st.lists(st.tuples(st.sampled_from([1, PASSED]), st.integers(1, 4)), max_size=8), st.integers(0, 40))
def test_whole_batches_of_an_origin_are_skipped(batches: list[tuple[int, int]], count_max: int) -> None:
    view = stored(*((origin, [Message(b"x" * count)] * count) for origin, count in batches))
    count, position = skip_origin(view, 0, len(view), PASSED, count_max)
    wanted = 0
    for origin, size in batches:
        if origin != PASSED or wanted + size > count_max:
            break
        wanted += size
    assert count == wanted
    # What is behind it is the next batch.
    ends = [
        len(stored(*((origin, [Message(b"x" * size)] * size) for origin, size in batches[:number]))) for number in range(len(batches) + 1)
    ]
    passed = [sum(size for _, size in batches[:number]) for number in range(len(batches) + 1)]
    assert position == ends[passed.index(count)]


def test_what_is_not_sound_is_not_skipped() -> None:
    view = stored((PASSED, [Message(b"a")]), (PASSED, [Message(b"b")]))
    half = len(view) // 2
    assert skip_origin(view, 0, len(view), PASSED, 9) == (2, len(view))
    assert skip_origin(view, 0, len(view) - 1, PASSED, 9) == (1, half)
    for at, value in ((4, 0), (8, 255), (8, 80), (28, 0), (28, 2)):
        damaged = bytearray(view)
        damaged[half + at] = value
        assert skip_origin(bytes(damaged), 0, len(view), PASSED, 9) == (1, half)
    for attributes in (ATTRIBUTE_PREPARED, ATTRIBUTE_RENEWED):
        assert skip_origin(stored((1, [Message(b"a")]), attributes=attributes), 0, half, PASSED, 9) == (1, half)


def test_no_more_than_ten_thousand_batches_are_skipped_at_once() -> None:
    view = stored((PASSED, [Message(b"")])) * 10_001
    count, position = skip_origin(view, 0, len(view), PASSED, len(view))
    assert count == 10_000
    assert skip_origin(view, position, len(view), PASSED, len(view)) == (1, len(view))
