"""Places hold what answers begin with; whole answers are in test_encode."""

from __future__ import annotations

import pytest

from polymq.protocols.rocketmq.places import REGION_SIZE_BYTES_MAX, Place


def test_heads_end_with_the_address() -> None:
    place = Place(b"T", 5, 1, b"\x0a\0\0\1", 10911)
    assert place.json_head.endswith(b'"msgId":"0A00000100002A9F')
    assert place.binary_head.endswith(b"\0\0\0\x200A00000100002A9F")
    assert place == Place(b"T", 5, 1, b"\x0a\0\0\1", 10911)


@pytest.mark.parametrize(
    "changed",
    [
        {"topic": b""},
        {"topic": b"x" * 128},
        {"host": bytes(16)},
        {"queue_id": -1},
        {"partition_number": 1 << 22},
        {"port": 1 << 16},
        {"region": b"x" * (REGION_SIZE_BYTES_MAX + 1)},
        {"region": b'"'},
    ],
)
def test_what_cannot_be_answered_is_our_own_mistake(changed: dict[str, object]) -> None:
    known: dict[str, object] = {"topic": b"T", "queue_id": 0, "partition_number": 0}
    with pytest.raises(AssertionError):
        Place(**(known | changed))  # type: ignore[arg-type]
