from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polymq.limits import OFFSET_BITS, OFFSET_MAX, PARTITION_NUMBER_MAX
from polymq.protocols.phpmq import ids
from polymq.protocols.phpmq.ids import ID_SIZE_BYTES, id_text, read_id
from tests.unit.protocols.phpmq import streams

plain = streams.interpreted("polymq.protocols.phpmq.ids")
message_ids = st.integers(0, PARTITION_NUMBER_MAX << OFFSET_BITS | OFFSET_MAX)
salts = st.integers(0, (1 << 64) - 1)


@given(message_ids, salts)
def test_an_id_is_read_back(message_id: int, salt: int) -> None:
    text = id_text(message_id, salt)
    assert len(text) == ID_SIZE_BYTES
    assert text[:16] == b"%016x" % message_id
    assert read_id(b"?" + text, 1, salt) == message_id
    assert plain.id_text(message_id, salt) == text
    assert plain.read_id(text, 0, salt) == message_id


@given(message_ids, salts, st.integers(0, 31), st.sampled_from(b"0123456789abcdefABCDEFg/:`\xff"))
def test_an_id_that_was_changed_is_not_ours(message_id: int, salt: int, at: int, byte: int) -> None:
    text = bytearray(id_text(message_id, salt))
    if text[at] == byte:
        return
    text[at] = byte
    assert read_id(bytes(text), 0, salt) == plain.read_id(bytes(text), 0, salt) == -1


@given(message_ids, salts, salts)
def test_an_id_of_another_folder_is_not_ours(message_id: int, salt: int, other: int) -> None:
    assert (read_id(id_text(message_id, salt), 0, other) == message_id) is (salt == other)


def test_ids_of_the_reference_server_are_not_ours() -> None:
    assert read_id(b"d7e7f68761d34838494b233148b5486c", 0, 0) == -1
    assert read_id(b"0" * 32, 0, 1) == -1
    assert ids.__all__ == sorted(ids.__all__)
