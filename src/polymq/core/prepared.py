"""Prepared batches: what a query's tasks have written and nobody sees until the query commits it.

Tasks stage frames in a log that no topic has, synced before they are answered. A commit names one part for each
task; it is journaled, synced, carried out piece by piece (`prepared_commit.py`: readers see it come, each record
once), and remembered by its number, so that it can be repeated. What is not committed goes when it is aborted, when
another commit of its query is complete, or when it is too old. See docs/adr/0025. Read next: `prepared_state.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.core import journal_entries
from polymq.core.bounds import admit
from polymq.core.policies import NO_TOPIC_POLICY
from polymq.core.ports import TicketState
from polymq.core.prepared_commit import Commit, redated
from polymq.core.prepared_state import NO_LOG, NOTHING_COMMITTED, Frame, Intent, Part, Sink, commit_entry, staged_entry
from polymq.errors import Refusal, RefusalCode, StoreFailed, StoreFull
from polymq.wire.batch import HEADER_SIZE_BYTES, ORIGIN_NONE, parse_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from polymq.core.catalogue import Catalogue
    from polymq.core.kernel import Kernel
    from polymq.core.ports import Log, Ticket
    from polymq.core.prepared_state import SinkReplay

__all__ = ["Named", "Prepared", "Staged"]

# (topic, partition or -1, later, expires, the batch)
Staged = tuple[str, int, bool, bool, memoryview]
# (part, how many requests it was written in, how many records it has)
Named = tuple[str, int, int]

_DONE: Final = TicketState.DONE


class Both:
    """A ticket for what waits for several: done when all are, failed when one is."""

    __slots__ = ("_tickets",)

    def __init__(self, *tickets: Ticket) -> None:
        self._tickets = tickets

    @property
    def state(self) -> TicketState:
        """The worst of their states."""
        states = {ticket.state for ticket in self._tickets}
        return TicketState.FAILED if TicketState.FAILED in states else _DONE if states == {_DONE} else TicketState.PENDING

    @property
    def failure(self) -> str:
        """Why one of them failed."""
        return next((ticket.failure for ticket in self._tickets if ticket.state is TicketState.FAILED), "")


class Prepared:
    """One per broker."""

    def __init__(self, kernel: Kernel, catalogue: Catalogue, *, expiry_ns: int) -> None:
        self.sinks: dict[tuple[str, str], Sink] = {}
        self.committed = 0
        self.expired = 0
        self._kernel = kernel
        self._catalogue = catalogue
        self._expiry_ns = expiry_ns
        # How many bytes and frames are prepared in all.
        self.size_bytes = 0
        self.frame_count = 0
        self._logs: dict[int, Log] = {}
        self._commits: dict[tuple[str, str], Commit] = {}
        # The tickets of each part's last request, for who repeats it.
        self._tickets: dict[tuple[str, str, str], Ticket] = {}

    def holds(self, number: int) -> bool:
        """Whether a log has to stay as it is, for it may have to be looked through after a restart."""
        return any(commit.sink.intent is not None and number in commit.sink.intent.bases for commit in self._commits.values())

    # -- after a restart -------------------------------------------------------------------------------------------

    def restore(self, replay: SinkReplay) -> bool:
        """Take over what the journal says; True if offsets of a staging log are free again about which something was noted."""
        cut = False
        for number in replay.logs:
            self._logs[number] = self._kernel.store.open_log(number, sync=True)
        for sink in replay.sinks.values():
            self.sinks[sink.key] = sink
            log = self._logs.get(sink.log)
            if log is None or log.failed:
                continue
            whole = {name: part.up_to(log.end) for name, part in sink.parts.items()}
            if all(part.requests == whole[name].requests for name, part in sink.parts.items()):
                continue
            # What is not there was never answered: who wrote it will write it once more, or another attempt.
            sink.parts = whole
            cut = True
            for entry in sink.entries():
                self._kernel.journal(entry)
        for sink in self.sinks.values():
            if sink.parts:
                sink.used_ns = self._kernel.wall_ns()
            self._count(sink.parts.values(), 1)
            if sink.intent is not None:
                self._resume(sink, sink.intent)
        return cut

    def _count(self, parts: Iterable[Part], sign: int) -> None:
        """Take parts into what is prepared in all, or out of it."""
        for part in parts:
            self.size_bytes += sign * part.size_bytes
            self.frame_count += sign * len(part.frames)

    def _resume(self, sink: Sink, intent: Intent) -> None:
        """Go on with a commit; what it may append from here on lies behind where the logs end now."""
        for number in intent.bases:
            log = self._catalogue.log(number)
            if log is not None and not log.failed:
                intent.bases[number] = min(intent.bases[number], log.end)
        self._begin(sink, resumed=True)

    def units(self) -> Iterator[Iterator[bytes]]:
        """Give the journal entries that rebuild everything: a unit for each sink."""
        yield iter([journal_entries.catalogue("staging_log", number=number) for number in self._logs])
        for key, sink in list(self.sinks.items()):
            if self.sinks.get(key) is sink:
                yield sink.entries()

    # -- preparing -------------------------------------------------------------------------------------------------

    def stage(self, key: tuple[str, str], name: str, request: int, staged: Sequence[Staged]) -> Ticket:
        """Store frames of a part, invisible. Requests of a part are numbered from 0; one that is repeated changes nothing.

        The batches were checked: their time is 0, and their records have no extras. Raises Refusal.
        """
        sink = self.sinks.get(key) or Sink(*key)
        part = sink.parts.get(name) or Part(name, self._kernel.wall_ns())
        if request < part.requests:
            return self._tickets.get((*key, name)) or self._kernel.store.journal.ticket(sync=True)
        if request > part.requests:
            raise Refusal(
                RefusalCode.MESSAGE_NOT_FOUND, f"part {name} of {key[1]} has had {part.requests} requests, and not the one before {request}"
            )
        if sink.intent is not None and name in sink.intent.parts:
            raise Refusal(RefusalCode.LIMIT_REACHED, f"part {name} of {key[1]} is being committed")
        self._admit(sink, part, staged)
        log = self._log_for(sink)
        frames: list[Frame] = []
        ticket: Ticket = self._kernel.store.journal.ticket(sync=True)
        for topic, partition, later, expires, view in staged:
            frame = Frame(log.end, parse_header(view, 0).count, len(view), topic, partition, later, expires)
            ticket = self._append(log, view, frame)
            frames.append(frame)
        if key not in self.sinks:
            self.sinks[key] = sink
            self._kernel.journal(sink.head())
        sink.parts[name] = part
        sink.used_ns = self._kernel.wall_ns()
        part.add(frames)
        self.size_bytes += sum(frame.size_bytes for frame in frames)
        self.frame_count += len(frames)
        self._kernel.journal(staged_entry(sink, part, frames))
        both = self._tickets[*key, name] = Both(ticket, self._kernel.store.journal.ticket(sync=True))
        return both

    def _append(self, log: Log, view: memoryview, frame: Frame) -> Ticket:
        time_ns = max(self._kernel.wall_ns(), log.last_time_ns)
        try:
            with memoryview(redated(view, parse_header(view, 0).base_offset, frame.count, time_ns)) as batch:
                return log.append_records(batch[HEADER_SIZE_BYTES:], frame.count, now_ns=time_ns, origin=ORIGIN_NONE)
        except StoreFull as error:
            raise Refusal(RefusalCode.STORE_FULL, str(error)) from error
        except StoreFailed as error:
            raise Refusal(RefusalCode.STORE_FAILED, str(error)) from error

    def _admit(self, sink: Sink, part: Part, staged: Sequence[Staged]) -> None:
        """Refuse what would be too much."""
        size_bytes = sum(len(view) for *_where, view in staged)
        parts = sink.parts.values()
        if sink.key not in self.sinks and len(self.sinks) >= limits.PREPARED_SINKS_MAX and not self._forget_oldest():
            raise Refusal(RefusalCode.LIMIT_REACHED, f"{limits.PREPARED_SINKS_MAX} sinks are being written to")
        if part.name not in sink.parts and len(parts) >= limits.PREPARED_PARTS_PER_SINK_MAX:
            raise Refusal(RefusalCode.LIMIT_REACHED, f"{sink.name} has {limits.PREPARED_PARTS_PER_SINK_MAX} prepared parts")
        if sum(len(each.frames) for each in parts) + len(staged) > limits.PREPARED_FRAMES_PER_SINK_MAX:
            raise Refusal(RefusalCode.LIMIT_REACHED, f"{sink.name} has {limits.PREPARED_FRAMES_PER_SINK_MAX} prepared batches")
        if sum(each.size_bytes for each in parts) + size_bytes > limits.PREPARED_SIZE_BYTES_PER_SINK_MAX:
            raise Refusal(RefusalCode.LIMIT_REACHED, f"{sink.name} has prepared {limits.PREPARED_SIZE_BYTES_PER_SINK_MAX} bytes")
        if self.frame_count + len(staged) > limits.PREPARED_FRAMES_MAX:
            raise Refusal(RefusalCode.LIMIT_REACHED, f"{limits.PREPARED_FRAMES_MAX} batches are prepared in all")
        later = sum(frame.count for each in parts for frame in each.frames if frame.later) if any(row[2] for row in staged) else 0
        later += sum(parse_header(view, 0).count for _topic, _partition, is_later, _expires, view in staged if is_later)
        if later > limits.PREPARED_LATER_RECORDS_MAX:
            raise Refusal(
                RefusalCode.LIMIT_REACHED, f"{sink.name} has prepared {limits.PREPARED_LATER_RECORDS_MAX} records that are for later"
            )
        if self.size_bytes + size_bytes > limits.PREPARED_SIZE_BYTES_MAX:
            raise Refusal(RefusalCode.LIMIT_REACHED, f"{limits.PREPARED_SIZE_BYTES_MAX} bytes are prepared in all")

    def _log_for(self, sink: Sink) -> Log:
        """Give the log that a sink stages in: one that no other sink is using, made if there is none."""
        log = self._logs.get(sink.log)
        if log is not None:
            return log
        used = {each.log for each in self.sinks.values()}
        number = next((number for number, log in self._logs.items() if number not in used and not log.failed), None)
        if number is None:
            number = self._catalogue.take_number()
            self._kernel.journal(journal_entries.catalogue("staging_log", number=number))
            self._logs[number] = self._kernel.store.create_log(number, sync=True)
        sink.log = number
        if sink.key in self.sinks:
            for entry in sink.entries():
                self._kernel.journal(entry)
        return self._logs[number]

    # -- committing ------------------------------------------------------------------------------------------------

    def commit(self, key: tuple[str, str], batch: int, named: Sequence[Named], *, once: bool, authorize: Callable[[str], object]) -> bool:
        """Begin to make parts visible, or look how far that is: True once it is done. Raises Refusal.

        A batch that was committed, or one before, is done, whatever the parts are. `authorize` raises where a topic
        may not be published to.
        """
        sink = self.sinks.get(key)
        commit = self._commits.get(key)
        if sink is not None and batch <= sink.last:
            return True
        if commit is not None:
            assert sink is not None
            assert sink.intent is not None
            if sink.intent.batch != batch:
                raise Refusal(RefusalCode.LIMIT_REACHED, f"batch {sink.intent.batch} of {key[1]} is being committed")
            if commit.problem:
                raise Refusal(RefusalCode.STORE_FAILED, f"batch {batch} of {key[1]} is committed in part: {commit.problem}")
            return False
        if sink is None:
            if named:
                raise Refusal(RefusalCode.MESSAGE_NOT_FOUND, f"nothing is prepared for {key[1]}")
            sink = self.sinks[key] = Sink(*key)
            self._kernel.journal(sink.head())
        _check_named(sink, named)
        names = [name for name, *_count in named]
        frames = sink.frames(names)
        for topic in {frame.topic: None for frame in frames}:
            authorize(topic)
        bases = self._bases(sink, frames)
        sink.once = once
        sink.intent = Intent(batch, names, bases)
        self._begin(sink, resumed=False)
        return False

    def _bases(self, sink: Sink, frames: Sequence[Frame]) -> dict[int, int]:
        """Tell where each log ends that may get something. Raises Refusal if a topic is full, or has nothing that takes it."""
        bases: dict[int, int] = {}
        sums: dict[str, list[int]] = {}
        for frame in frames:
            of_topic = sums.setdefault(frame.topic, [0, 0])
            of_topic[0] += frame.count
            of_topic[1] += frame.size_bytes
        for name, (messages, size_bytes) in sums.items():
            topic = self._catalogue.topics[sink.namespace, name]
            if topic.policy is not NO_TOPIC_POLICY:
                admit(topic, messages=messages, size_bytes=size_bytes)
        for name, index, later in dict.fromkeys((frame.topic, frame.partition, frame.later) for frame in frames):
            topic = self._catalogue.topics[sink.namespace, name]
            partitions = topic.partitions if index < 0 else [topic.partition(index)]
            logs = [self._catalogue.schedule(topic, each).log if later else each.log for each in partitions]
            if all(log.failed for log in logs):
                raise Refusal(RefusalCode.STORE_FAILED, logs[0].failed)
            bases |= {log.number: log.end for log in logs if not log.failed}
        return bases

    def _begin(self, sink: Sink, *, resumed: bool) -> None:
        assert sink.intent is not None
        self._kernel.journal(commit_entry(sink, sink.intent))
        self._commits[sink.key] = Commit(self._kernel, self._catalogue, sink, self._logs.get(sink.log), resumed=resumed)
        self._kernel.moves(self)

    def settle(self) -> bool:
        """Go on with the commits; True once there is none."""
        room = limits.PREPARED_MOVED_SIZE_BYTES_PER_TURN
        for key, commit in list(self._commits.items()):
            commit.room = room
            done = commit.step()
            room = commit.room
            if done:
                sink = commit.sink
                assert sink.intent is not None
                self._count(sink.parts.values(), -1)
                del self._commits[key]
                self._forget_tickets(sink, list(sink.parts))
                sink.done(self._kernel.wall_ns())
                self.committed += 1
                self._kernel.journal(sink.entry("sink_done", batch=sink.last, used_ns=sink.used_ns))
        return not self._commits

    # -- what is not committed -------------------------------------------------------------------------------------

    def abort(self, key: tuple[str, str], names: Sequence[str]) -> None:
        """Drop parts that are not being committed; those that are not there are dropped already."""
        sink = self.sinks.get(key)
        if sink is not None:
            committing = () if sink.intent is None else sink.intent.parts
            self._drop(sink, [name for name in names if name in sink.parts and name not in committing])

    def _drop(self, sink: Sink, names: list[str]) -> None:
        if not names:
            return
        self._count([sink.parts.pop(name) for name in names], -1)
        self._forget_tickets(sink, names)
        self._kernel.journal(sink.entry("sink_dropped", parts=names))
        if sink.parts or sink.intent is not None:
            return
        if sink.last == NOTHING_COMMITTED:
            self._forget(sink.key)
        else:
            sink.log = NO_LOG
            self._kernel.journal(sink.head())

    def _forget_tickets(self, sink: Sink, names: list[str]) -> None:
        for name in names:
            self._tickets.pop((*sink.key, name), None)

    def look_after(self) -> None:
        """Drop what is too old, and what nobody needs of the staging logs; about once a second."""
        now_ns = self._kernel.wall_ns()
        oldest_ns = now_ns - self._expiry_ns
        for key, sink in list(self.sinks.items()):
            committing = () if sink.intent is None else sink.intent.parts
            # A batch may take longer than that, as long as its tasks write.
            old = [name for name in sink.parts if sink.used_ns < oldest_ns and name not in committing]
            self.expired += len(old)
            self._drop(sink, old)
            if key not in self.sinks:
                continue
            if sink.once and sink.used_ns < oldest_ns and not sink.parts and sink.intent is None:
                self._forget(key)
        needed = {number: log.end for number, log in self._logs.items()}
        for sink in self.sinks.values():
            firsts = [part.frames[0].first for part in sink.parts.values() if part.frames]
            if firsts:
                needed[sink.log] = min(firsts)
        for number, log in self._logs.items():
            if log.end > log.start:
                log.retain(needed[number], now_ns=now_ns, age_ns=0, size_bytes=0)

    def _forget(self, key: tuple[str, str]) -> None:
        sink = self.sinks.pop(key)
        self._kernel.journal(sink.entry("sink_forgotten"))

    def _forget_oldest(self) -> bool:
        """Forget a sink to which nobody comes back, or else the one used the longest ago; False if all are in use, or were within a day."""
        idle = [sink for sink in self.sinks.values() if not sink.parts and sink.intent is None]
        oldest = min(idle, key=lambda sink: (not sink.once, sink.used_ns), default=None)
        if oldest is None or (not oldest.once and oldest.used_ns > self._kernel.wall_ns() - limits.PREPARED_SINK_KEPT_NS_MIN):
            return False
        self._forget(oldest.key)
        return True


def _check_named(sink: Sink, named: Sequence[Named]) -> None:
    """Refuse a commit of parts that are not there as they were written. Raises Refusal."""
    if len({name for name, *_count in named}) != len(named):
        raise Refusal(RefusalCode.MESSAGE_NOT_FOUND, f"a part of {sink.name} is named twice")
    for name, requests, rows in named:
        part = sink.parts.get(name)
        if part is None:
            raise Refusal(RefusalCode.MESSAGE_NOT_FOUND, f"part {name} of {sink.name} is not there: it was aborted, or is too old")
        if (part.requests, part.rows) != (requests, rows):
            text = f"part {name} of {sink.name} has {part.rows} records of {part.requests} requests, not {rows} of {requests}"
            raise Refusal(RefusalCode.MESSAGE_NOT_FOUND, text)
