"""Batches for the tests of the record format, and strategies that draw them."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from polymq.wire import inline, records
from polymq.wire.crc import crc32c
from polymq.wire.records import BatchHeader, Message

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

BASE_TIME_NS = 1_700_000_000_123_456_789

_bytes = st.binary(max_size=20)
messages = st.builds(
    Message,
    body=st.binary(max_size=60),
    key=st.none() | _bytes,
    headers=st.lists(st.tuples(_bytes, _bytes), max_size=3).map(tuple),
    extras=st.lists(st.tuples(st.integers(0, 255), _bytes), max_size=3).map(tuple),
    time_ns=st.just(0) | st.integers(1, 2**63 - 1),
    expiry_ns=st.none() | st.integers(-(2**63), 2**63 - 1),
)
runs = st.lists(st.lists(messages, min_size=1, max_size=5), max_size=4)


def interpreted(name: str = "records") -> ModuleType:
    """Load a module of the package as ordinary Python under another name, whatever is compiled."""
    path = Path(inline.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"{name}_interpreted", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def batch(batch_messages: Sequence[Message], *, base_offset: int = 0, attributes: int = 0, base_time_ns: int = BASE_TIME_NS) -> bytes:
    """Encode one sealed batch."""
    encoded = b"".join(records.encode_message(message, base_time_ns) for message in batch_messages)
    target = bytearray(records.HEADER_SIZE_BYTES) + encoded
    header = BatchHeader(
        segment_id=7,
        epoch=3,
        count=len(batch_messages),
        base_offset=base_offset,
        base_time_ns=base_time_ns,
        attributes=attributes,
        origin=1,
    )
    records.seal(target, 0, len(target), header)
    return bytes(target)


def run(groups: Sequence[Sequence[Message]], *, base_offset: int = 0) -> bytes:
    """Encode batches back to back with continuing offsets."""
    parts = []
    for group in groups:
        parts.append(batch(group, base_offset=base_offset))
        base_offset += len(group)
    return b"".join(parts)


def reseal(data: bytearray) -> bytes:
    """Give a damaged single batch a checksum that holds, so that the walk behind the checksum is reached."""
    struct.pack_into("<I", data, 0, crc32c(memoryview(data)[4:]))
    return bytes(data)


def stamped(message: Message, base_time_ns: int = BASE_TIME_NS) -> Message:
    """What a message becomes by being stored: it has a time."""
    time_ns = message.time_ns or base_time_ns
    return Message(message.body, message.key, message.headers, message.extras, time_ns, message.expiry_ns)
