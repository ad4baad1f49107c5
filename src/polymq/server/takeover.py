"""Taking over what a stopped nsqd has left: every message once, for exactly the channels that have it to finish.

nsqd keeps a queue of each channel; here a topic has one log, and a group knows what of it is not for it. So the queues
of a topic are read first, which shows what is the same message in several of them, and put into one order that keeps
each queue's own. Then that is appended, once, and each group is told what it leaves out and how often it was given the
rest. What lies in the topic's own queue comes behind: for all groups, or, if the topic is paused or has no channel,
for nobody yet.

The new data folder is made beside its place and moved there when it is complete: an import that is interrupted leaves
nothing, and is begun again. Read next: `nsqd_folder.py`, `protocols/nsq/diskqueue.py`.
"""

from __future__ import annotations

import shutil
import time
from array import array
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.core.access import ANONYMOUS
from polymq.errors import ConfigError, StoreFailed
from polymq.protocols.nsq.diskqueue import MessageIndex, QueueColumns, append_rest, merge, oversized, ranges_of, resume
from polymq.server.node import Node
from polymq.server.nsqd_folder import Maps, Problem
from polymq.store.files import RealFiles
from polymq.wire.batch import HEADER_SIZE_BYTES
from polymq.wire.timed_records import TIMED_RECORD_OVERHEAD_BYTES, encode_timed

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.config_sections import Settings
    from polymq.core.session import Session
    from polymq.protocols.nsq.datafolder import TopicEntry
    from polymq.server.nsqd_folder import NsqdFolder, Part, QueueFiles

__all__ = ["QueueSummary", "TakenTopic", "Target", "read_topic", "take_over"]

# Where the new folder is made, within the folder that it is to be: the same file system, whatever is mounted there.
_BUILDING: Final = "importing"
_OWN_NAMES: Final = frozenset({_BUILDING, "LOCK", "journal", "partitions", "lost+found"})
_ORIGIN_NSQ: Final = 1
# Messages described in one step, and read in one step: between two, progress is told.
_RUN_MESSAGES: Final = 4096
_SCAN_SIZE_BYTES: Final = 16 * 1024 * 1024
# While more is unsynced than may be, wait so long for the disk before looking again.
_WAIT_SECONDS: Final = 0.002

assert _SCAN_SIZE_BYTES > limits.MESSAGE_SIZE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """What was found in one queue; no channel: in the topic's own."""

    topic: str
    channel: str
    paused: bool
    messages: int
    tried: int
    repeated: int


@dataclass(slots=True)
class Stretch:
    """Messages that will lie one behind the other in a topic's log."""

    index: MessageIndex
    parts: list[Part]
    order: array[int]


@dataclass(slots=True)
class TakenTopic:
    """One topic, read. `shared` is what its channels have, `held` what no channel was given.

    `ranges` says per channel what of `shared` it leaves out, or was out before. `contradictions` counts how often two
    queues wanted their messages in different orders.
    """

    entry: TopicEntry
    shared: Stretch
    held: Stretch
    ranges: list[array[int]] = field(default_factory=list)
    queues: list[QueueSummary] = field(default_factory=list)
    contradictions: int = 0

    @property
    def messages(self) -> int:
        """How many records the log will have."""
        return len(self.shared.order) + len(self.held.order)


def nothing_to_tell(_size_bytes: int) -> None:
    """Tell nobody about progress."""


def read_topic(folder: NsqdFolder, entry: TopicEntry, progress: Callable[[int], None] = nothing_to_tell) -> TakenTopic:
    """Read every queue of a topic; what cannot be read becomes one of the folder's problems.

    `progress` is told how many bytes were read. Memory: 52 bytes per message and 6 per channel that has it.
    """
    index = MessageIndex()
    parts: list[Part] = []
    channels = [
        read_queue(folder, folder.queue(entry.name, channel.name), number, index, parts, progress)
        for number, channel in enumerate(entry.channels)
    ]
    for_all = bool(channels) and not entry.paused
    own_index, own_parts = (index, parts) if for_all else (MessageIndex(), [])
    own = read_queue(folder, folder.queue(entry.name), len(channels), own_index, own_parts, progress)
    order, contradictions = merge(channels, index.times())
    placed = len(order)
    if for_all:
        order = append_rest(order, own, len(index))
    taken = TakenTopic(
        entry,
        Stretch(index, parts, order),
        Stretch(own_index, own_parts, array("i") if for_all else append_rest(array("i"), own, len(own_index))),
        contradictions=contradictions,
    )
    for channel, queue in zip(entry.channels, channels, strict=True):
        everything = [queue, own] if for_all else [queue]
        taken.ranges.append(ranges_of(everything, order, len(order), len(index)))
        taken.queues.append(QueueSummary(entry.name, channel.name, channel.paused, len(queue), queue.tried(), queue.repeated))
    unplaced = len(order) - placed if for_all else len(own)
    taken.queues.insert(0, QueueSummary(entry.name, "", entry.paused, unplaced, own.tried(), own.repeated))
    return taken


def read_queue(
    folder: NsqdFolder, files: QueueFiles, number: int, index: MessageIndex, parts: list[Part], progress: Callable[[int], None]
) -> QueueColumns:
    """Read one queue into the index; its files are added to `parts`."""
    queue = QueueColumns(number)
    for part in files.parts:
        file = len(parts)
        parts.append(part)
        with Maps([part]) as maps:
            view = maps.view(0)
            at = part.start
            while at < part.end:
                end = min(part.end, at + _SCAN_SIZE_BYTES)
                stop = index.scan(view, at, end, file, queue)
                if stop == at:
                    # Not even one record in so many bytes: the next is damaged, or larger than any may be.
                    stop = pass_by(folder, part, at, view)
                progress(stop - at)
                at = stop
    return queue


def pass_by(folder: NsqdFolder, part: Part, at: int, view: memoryview) -> int:
    """Report what cannot be read at `at`; gives where to go on."""
    following = oversized(view, at, part.end)
    if following:
        text = f"a message of {following - at} bytes is larger than the {limits.MESSAGE_SIZE_BYTES_MAX} that one may have; left out"
    else:
        following = resume(view, at, part.end)
        until = "the end of the file" if following == part.end else f"byte {following}, where there is one,"
        text = f"no sound record begins here; the {following - at} bytes up to {until} are left out"
    folder.problems.append(Problem(part.path, at, text))
    return following


class Target:
    """The data folder to be: fresh, and this process's until `close`. Raises ConfigError if it cannot be had."""

    def __init__(self, settings: Settings) -> None:
        self.path = settings.server.data
        self.building = self.path / _BUILDING
        self._settings = replace(settings, server=replace(settings.server, data=self.building))
        try:
            self._files = RealFiles(self.path)
            self._files.lock()
        except BlockingIOError as error:
            raise ConfigError([f"{self.path} is in use by another process: stop that one, or import into another folder"]) from error
        except OSError as error:
            raise ConfigError([f"{self.path} cannot be used: {error.strerror or error}"]) from error
        try:
            self._clear()
        except BaseException:
            self._files.close()
            raise

    def _clear(self) -> None:
        """Make sure that nothing is there but what an interrupted import has left, and remove that."""
        names = {entry.name for entry in self.path.iterdir()}
        if names - _OWN_NAMES or (names & {"journal", "partitions"} and _BUILDING not in names):
            what = "is the data folder of a polymq already" if "FORMAT" in names else "is not empty"
            raise ConfigError([f"{self.path} {what}: import into a folder of its own, which may not exist yet"])
        for name in (_BUILDING, "journal", "partitions"):
            shutil.rmtree(self.path / name, ignore_errors=True)

    def open(self) -> Node:
        """Start a broker in the folder that is being made."""
        return Node(self._settings)

    def finish(self) -> None:
        """Move the complete folder to its place; FORMAT, without which nobody takes it for one, comes last."""
        for name in ("journal", "partitions", "FORMAT"):
            (self.building / name).replace(self.path / name)
            if name == "partitions":
                self._files.sync_folder("")
        self._files.sync_folder("")
        shutil.rmtree(self.building)

    def abandon(self) -> None:
        """Leave no trace of what was made."""
        shutil.rmtree(self.building, ignore_errors=True)

    def close(self) -> None:
        """Let others have the folder."""
        self._files.close()


def take_over(folder: NsqdFolder, target: Target, told: Callable[[TakenTopic], None], progress: Callable[[int], None]) -> None:
    """Bring everything from the folder into the target, or nothing: a failure on this side leaves no trace.

    `told` hears of every topic that is done; `progress` of bytes read and, once more, of bytes written.
    Raises StoreError, Refusal, OSError.
    """
    try:
        node = target.open()
        clean = False
        try:
            for entry in folder.topics:
                taken = read_topic(folder, entry, progress)
                Writer(node, taken, progress).write()
                told(taken)
            clean = True
        finally:
            problems = node.close(clean=clean)
        if problems:
            raise StoreFailed("; ".join(problems))
        target.finish()
    except BaseException:
        target.abandon()
        raise


class Writer:
    """Appends one topic's messages and makes its groups."""

    def __init__(self, node: Node, taken: TakenTopic, progress: Callable[[int], None]) -> None:
        self._node = node
        self._session: Session = node.broker.session(ANONYMOUS)
        self._taken = taken
        self._progress = progress
        self._time_ns = node.clock.wall_ns()
        self._target = bytearray(limits.BATCH_SIZE_BYTES_TARGET)

    def write(self) -> None:
        """Do it all: groups first, so that they begin at the first message."""
        session, entry = self._session, self._taken.entry
        session.create_topic(entry.name, partitions=1)
        for channel in entry.channels:
            session.create_group(entry.name, channel.name)
            if channel.paused:
                session.pause_group(entry.name, channel.name, paused=True)
        for channel, flat in zip(entry.channels, self._taken.ranges, strict=True):
            rows = zip(flat[0::3], flat[1::3], flat[2::3], strict=True)
            session.foresee(entry.name, channel.name, 0, rows)
            self._turn()
        self._write_stretch(self._taken.shared)
        if entry.paused:
            session.pause_topic(entry.name, paused=True)
        self._write_stretch(self._taken.held)
        self._turn()
        session.close()

    def _write_stretch(self, stretch: Stretch) -> None:
        """Append messages in their order, in batches of about the usual size."""
        columns = (array("q", bytes(8 * _RUN_MESSAGES)), array("q", bytes(8 * _RUN_MESSAGES)), array("q", bytes(8 * _RUN_MESSAGES)))
        room = limits.BATCH_SIZE_BYTES_TARGET - HEADER_SIZE_BYTES
        first = at = records = 0
        with Maps(stretch.parts) as maps:
            while first < len(stretch.order):
                count, file, size_bytes = stretch.index.run(stretch.order, first, room // 2, columns)
                need = size_bytes + count * TIMED_RECORD_OVERHEAD_BYTES
                if at and at + need > room:
                    self._append(at, records)
                    at = records = 0
                if need > len(self._target):
                    self._target = bytearray(need)
                at = encode_timed(self._target, at, maps.view(file), columns, count, self._time_ns)
                first += count
                records += count
                self._progress(size_bytes)
        if records:
            self._append(at, records)

    def _append(self, end: int, records: int) -> None:
        with memoryview(self._target)[:end] as view:
            self._session.publish_records(self._taken.entry.name, 0, view, records, time_ns=self._time_ns, origin=_ORIGIN_NSQ)
        self._turn()

    def _turn(self) -> None:
        """Have written what was staged, and wait while too much of it is not on the disk."""
        node = self._node
        node.pump.end_turn()
        while node.store.congested:
            problems = node.store.health()
            if problems:
                raise StoreFailed("; ".join(problems))
            time.sleep(_WAIT_SECONDS)
            node.pump.end_turn()
