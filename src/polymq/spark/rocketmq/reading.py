"""What an executor does: pull a range of one queue, and hand it on as Arrow in large pieces.

Runs in Spark's Python workers. A pull brings 32 messages at most, so several are on their way together: where the next one
begins is known as long as no offset is missing. Answers are gathered, and read together (`_flush`). That nothing was lost is
looked at here as well as where the query was planned.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from polymq.clients.rocketmq_queues import columns_of, plain_run
from polymq.errors import PolyMQError, Refusal, RefusalCode, RemoteProtocolError, TransportError
from polymq.spark.rocketmq import offsets
from polymq.spark.rocketmq.offsets import name_of
from polymq.spark.rocketmq.patience import Patience, is_for_good, report_loss
from polymq.spark.rocketmq.rows import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from polymq.clients.rocketmq_queues import Extent, Pulled, QueueClient
    from polymq.spark.rocketmq.offsets import Range
    from polymq.spark.rocketmq.options import Options

__all__ = ["RangeReader"]

# A batch is handed on when it has so many offsets, or bytes.
_BATCH_OFFSETS: Final = 8192
_BATCH_SIZE_BYTES: Final = 4 * 1024 * 1024
# Pulls on their way together: a broker answers one in 0.1 ms if what is asked for is in memory.
_TOGETHER: Final = 8
_WELL_BEFORE_MORE: Final = 16
# As in `planning`.
_SHORT_SECONDS: Final = 2.0


class RangeReader:
    """Reads one range of one queue, in order.

    Raises: DataLoss if messages of the range are gone, unless `fail_on_data_loss` is off; DeadlineExceeded if the queue
            cannot be reached, or does not show what it has, in time; Refusal when the broker does not allow it.
    """

    def __init__(
        self,
        client: QueueClient,
        wanted: Range,
        options: Options,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._options = options
        self._monotonic = monotonic
        self._patience = Patience(options.retry_seconds, sleep, monotonic)
        self._at = self._piece_start = wanted.start
        self._piece = bytearray()
        self._step = options.pull_count
        self._well = 0  # times that all answers were as large as expected
        self._extent: Extent | None = None
        self._damaged = -1  # the offset of a message that was damaged the last time it came
        self._short_since: float | None = None
        self._gap = -1
        self._is_careful = False  # something made no sense: answers are looked at one by one

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Give the messages."""
        while self._at < self._wanted.end or self._piece:
            is_large = self._is_careful or self._at - self._piece_start >= _BATCH_OFFSETS or len(self._piece) >= _BATCH_SIZE_BYTES
            if self._piece and (is_large or self._at >= self._wanted.end):
                yield from self._flush()
                continue
            pulled = self._pull()
            if isinstance(pulled, list) and self._take(pulled):
                continue
            before = self._at
            yield from self._flush()
            if isinstance(pulled, str):
                if self._at < self._wanted.end:
                    self._patience.pause(pulled)
            elif self._at == before and self._at < self._wanted.end:
                # Elsewhere: what was gathered made no sense, and is pulled again.
                self._nothing(pulled[0])
        if self._gap >= 0 and self._options.tags:
            self._look_behind()

    def _pull(self) -> list[Pulled] | str:
        """Pull from here on; words if that failed, and may work later."""
        options, left = self._options, self._wanted.end - self._at
        together = 1 if options.tags or self._at == self._damaged else min(_TOGETHER, -(-left // self._step))
        wanted = [self._at + index * self._step for index in range(together)]
        try:
            return self._client.pull(self._wanted.queue, wanted, self._step, options.expression)
        except (TransportError, RemoteProtocolError, Refusal) as error:
            if isinstance(error, Refusal) and error.code is not RefusalCode.TOPIC_NOT_FOUND and is_for_good(error):
                raise
            if self._is_gone():
                report_loss(f"{name_of(self._wanted.queue)} is no longer there", options)
                self._end()
            return str(error)

    def _take(self, pulled: list[Pulled]) -> bool:
        """Gather the answers that follow one another; False if not even the first one has messages, or goes on."""
        begun = self._at
        for index, each in enumerate(pulled, 1):
            before = self._at
            if not each.run or each.next_offset <= before:
                break
            try:
                run = plain_run(each.run)
            except RemoteProtocolError as error:
                self._again(str(error))
                return True
            self._extent = each.extent
            self._piece += run
            self._at = each.next_offset
            if len(self._piece) >= _BATCH_SIZE_BYTES:
                break
            if self._at != before + self._step:
                self._step = min(self._step, self._at - before)
                break
            if index == _TOGETHER:
                self._ask_for_more()
        return self._at > begun

    def _ask_for_more(self) -> None:
        """Try now and then whether an answer has room for more messages: if not, where the next one begins was guessed wrongly once."""
        self._well += 1
        if self._well % _WELL_BEFORE_MORE == 0:
            self._step = min(self._options.pull_count, self._step + self._step // 2 + 1)

    def _flush(self) -> Iterator[pa.RecordBatch]:
        """Hand on what was gathered."""
        if not self._piece:
            return
        start, end, wanted = self._piece_start, min(self._at, self._wanted.end), self._wanted
        try:
            found = columns_of(self._piece, start, end)
        except RemoteProtocolError as error:
            self._again(str(error))
            return
        self._piece = bytearray()
        self._patience.renew()
        self._short_since = None
        last = found.offsets[-1] + 1 if found.count else start
        if found.damaged >= 0:
            end = self._at = found.damaged
            self._client.close()
        gap = found.gap if found.gap >= 0 else last if last < end else -1
        if gap >= 0:
            self._explain(gap)
        self._piece_start = self._at
        if found.damaged >= 0:
            self._pass_damage(found.damaged)
        if found.count:
            yield rows(self._options.columns, wanted.queue.topic, wanted.partition, found, self._options.tags)

    def _pass_damage(self, offset: int) -> None:
        """Have a damaged message come a second time, and go on behind it when it is damaged again."""
        if self._damaged != offset:
            self._damaged = offset
            return
        report_loss(f"{name_of(self._wanted.queue)} has a damaged message at offset {offset}", self._options)
        self._at = self._piece_start = offset + 1

    def _explain(self, gap: int) -> None:
        """Report offsets that did not come as lost, if they were there: brokers also leave out what is over, or not wanted."""
        if self._options.tags:
            self._gap = gap if self._gap < 0 else self._gap
            return
        queue = self._wanted.queue
        is_lost = self._extent is not None and self._extent.first > gap
        # What is behind a gap is asked of the broker until it says: a range that is not complete must not seem to be.
        is_lost = is_lost or self._patience.until_done(lambda: self._client.is_beginning_removed(queue))
        if is_lost:
            report_loss(f"{name_of(queue)} has nothing left at offset {gap}: it has been removed", self._options)

    def _look_behind(self) -> None:
        """Report what was removed while it was read, of a range from which only some messages were wanted."""
        if self._extent is not None and self._extent.first > self._gap:
            text = (
                f"{name_of(self._wanted.queue)} starts at offset {self._extent.first}: what was there from {self._gap} on has been removed"
            )
            report_loss(text, self._options)

    def _nothing(self, pulled: Pulled) -> None:
        """Go on where a broker says, or find out why there is nothing here."""
        queue, at = self._wanted.queue, self._at
        self._extent = pulled.extent
        if pulled.next_offset > at and not pulled.is_moved:
            if pulled.is_removing:
                report_loss(f"{name_of(queue)} has nothing left at offset {at}: it has been removed", self._options)
            else:
                self._explain(at)
            self._go_on(pulled.next_offset)
            return
        try:
            extent = self._client.extents([queue])[queue]
        except (TransportError, RemoteProtocolError, Refusal) as error:
            self._patience.pause(str(error))
            return
        begin, loss = offsets.resume(queue, at, extent)
        if begin > at and loss is not None:
            report_loss(loss, self._options)
            self._go_on(begin)
        elif extent.end < self._wanted.end and extent.end <= at and self._is_short():
            report_loss(loss or f"{name_of(queue)} ends at offset {at}, before {self._wanted.end}", self._options)
            self._end()
        else:
            self._patience.pause(f"{name_of(queue)} does not give what it has at offset {at}")

    def _is_short(self) -> bool:
        """Say whether the queue has been too short for long enough: a broker that has just started may not show all that it has."""
        now = self._monotonic()
        if self._short_since is None:
            self._short_since = now
        return now - self._short_since >= min(_SHORT_SECONDS, self._options.retry_seconds)

    def _go_on(self, offset: int) -> None:
        self._at = self._piece_start = offset
        self._patience.renew()

    def _again(self, text: str) -> None:
        """Drop what was gathered, which makes no sense, and begin anew with it."""
        self._piece = bytearray()
        self._at = self._piece_start
        self._is_careful = True
        self._client.close()
        self._patience.pause(text)

    def _end(self) -> None:
        """Read nothing more, but hand on what has come."""
        self._wanted = replace(self._wanted, end=self._at)

    def _is_gone(self) -> bool:
        try:
            return self._client.is_gone(self._wanted.queue)
        except PolyMQError:
            return False
