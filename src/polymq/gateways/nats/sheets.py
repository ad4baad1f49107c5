"""What goes into an outbox of a batch: encoded, or sent as it was encoded for the connection before (`LiveSheet`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymq.gateways.live_sheet import LIVE_SHEET_SIZE_BYTES_MIN
from polymq.protocols.nats.encode import (
    encode_messages,
    encode_routed,
    messages_size_bytes,
    routed_size_bytes,
    same_messages,
    same_pairs,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polymq.core.interest.targets import Target
    from polymq.gateways.live_sheet import LiveSheet
    from polymq.gateways.outbox import Outbox
    from polymq.protocols.nats.encode import SidTable
    from polymq.wire.live import LiveBatch

__all__ = ["Routed", "write_messages", "write_routed"]


@dataclass(slots=True)
class _ForClients:
    """What the messages for a client depend on, beside the batch."""

    pairs: memoryview
    count: int
    sids: SidTable
    headers: bool
    payload_size_bytes: int


@dataclass(slots=True)
class Routed:
    """What the messages for another server depend on, beside the batch: see `encode_routed`."""

    pairs: memoryview
    count: int
    account: bytes
    queues: Mapping[int, Sequence[bytes]]
    headers: bool

    def is_like(self, other: object) -> bool:
        """Whether two servers are told the same."""
        return (
            isinstance(other, Routed)
            and (self.count, self.account, self.headers) == (other.count, other.account, other.headers)
            and not self.queues
            and same_pairs(self.pairs, other.pairs, self.count)
        )


def write_messages(
    batch: LiveBatch, target: Target, sids: SidTable, outbox: Outbox, sheet: LiveSheet | None, *, headers: bool, waiting_max: int
) -> bool:
    """Write the MSG frames of a client's pairs; False, with nothing written, if more than `waiting_max` bytes would wait then."""
    pairs, count = target.pairs, target.pair_count
    if sheet is not None:
        key, lent = sheet.key, sheet.lent
        if (
            isinstance(key, _ForClients)
            and lent is not None
            and key.count == count
            and key.headers is headers
            and same_messages(pairs, sids, key.pairs, key.sids, count)
        ):
            if outbox.size_bytes + lent.end - lent.at > waiting_max:
                return False
            outbox.borrow(lent)
            sids.note_payload(key.payload_size_bytes)
            return True
    size = messages_size_bytes(batch, pairs, count, sids)
    if outbox.size_bytes + size > waiting_max:
        return False
    before = sids.payload_size_bytes
    at = outbox.reserve(size)
    end = encode_messages(outbox.data, at, batch, pairs, count, sids, headers=headers)
    outbox.advance(end)
    if sheet is not None and end - at >= LIVE_SHEET_SIZE_BYTES_MIN:
        sheet.put(_ForClients(pairs, count, sids, headers, sids.payload_size_bytes - before), outbox.lend(at))
    return True


def write_routed(batch: LiveBatch, routed: Routed, outbox: Outbox, sheet: LiveSheet | None, *, waiting_max: int) -> int:
    """Write the RMSG frames for a server and return their size; -1, with nothing written, if too much would wait then."""
    pairs, count, account, queues = routed.pairs, routed.count, routed.account, routed.queues
    if sheet is not None and (lent := sheet.lent) is not None and routed.is_like(sheet.key):
        if outbox.size_bytes + lent.end - lent.at > waiting_max:
            return -1
        outbox.borrow(lent)
        return lent.end - lent.at
    size = routed_size_bytes(batch, pairs, count, account, queues)
    if outbox.size_bytes + size > waiting_max:
        return -1
    at = outbox.reserve(size)
    end = encode_routed(outbox.data, at, batch, pairs, count, account, queues, headers=routed.headers)
    outbox.advance(end)
    if sheet is not None and not queues and end - at >= LIVE_SHEET_SIZE_BYTES_MIN:
        sheet.put(routed, outbox.lend(at))
    return end - at
