"""Messages that are stored again on purpose: given back to a group's retry topic, given up, or put at the end of their queue.

In such topics one message may lie several times: at least as often as that was confirmed, at most as often as it was
asked for, and never before the time that it was asked for. All other topics are `log_book.py`'s, where twice is a fault.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from polymq.limits import OFFSET_BITS
from polymq.testing.promises import PromiseBrokenError, Publication

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.testing.durability import Loss
    from polymq.testing.ledger import Ledger

__all__ = ["Copies"]


class Copies:
    """What was asked to be stored again, by (topic, serial), and where it was seen. `topics`: those that are judged here."""

    def __init__(self, ledger: Ledger) -> None:
        self.topics: set[str] = set()
        self._ledger = ledger
        self._asked: dict[tuple[str, int], list[Publication]] = {}
        self._places: dict[tuple[str, int], dict[int, int]] = {}
        self._shown_before: dict[tuple[str, int], set[int]] = {}  # places before the last loss of power
        self._serials: dict[int, int] = {}  # by place

    def add_topic(self, topic: str) -> None:
        """Judge a topic here from now on, and nowhere else."""
        self.topics.add(topic)
        self._ledger.log_book.elsewhere.add(topic)

    def asks(self, serial: int, topic: str, *, delay_ns: int = 0) -> Publication:
        """A client asks for a message to be stored in a topic once more, `delay_ns` later."""
        now_ns, wall_ns = self._ledger.clock.monotonic_ns(), self._ledger.clock.wall_ns()
        original = self._ledger.publications[serial]
        copy = Publication(
            serial=serial,
            topic=topic,
            body=original.body,
            connection="",
            order=0,
            first=serial,
            count=1,
            sync=False,
            sent_ns=now_ns,
            sent_wall_ns=wall_ns,
            due_wall_ns=wall_ns + delay_ns if delay_ns else 0,
            life=self._ledger.life,
        )
        self._asked.setdefault((topic, serial), []).append(copy)
        return copy

    def confirmed(self, copy: Publication) -> None:
        """The broker says that it has done so."""
        copy.acknowledged_ns = copy.promised_ns = self._ledger.clock.monotonic_ns()

    def saw(self, topic: str, number: int, offset: int, body: bytes) -> Publication:
        """A reader got a message of such a topic; gives the message that it is, or is a copy of. Raises PromiseBrokenError."""
        serial = self._identify(topic, number, offset, body)
        message_id = number << OFFSET_BITS | offset
        known = self._serials.setdefault(message_id, serial)
        if known != serial:
            raise PromiseBrokenError(f"{topic}, partition {number}, offset {offset} was message {known}, and is {serial}")
        places = self._places.setdefault((topic, serial), {})
        if message_id not in places:
            places[message_id] = self._ledger.clock.monotonic_ns()
            self._check_count(topic, serial, len(places))
        return self._ledger.publications[serial]

    def _identify(self, topic: str, number: int, offset: int, body: bytes) -> int:
        publication = self._ledger.publications.get(int(body[:8])) if body[:8].isdigit() else None
        if publication is None or publication.body != body:
            raise PromiseBrokenError(f"{topic}, partition {number}, offset {offset}: bytes that nobody published: {body[:40]!r}")
        if publication.topic != topic and (topic, publication.serial) not in self._asked:
            raise PromiseBrokenError(f"{topic}: message {publication.serial} belongs to topic {publication.topic}")
        return publication.serial

    def _all_of(self, topic: str, serial: int) -> list[Publication]:
        """List what may lie in a topic: the message itself, if it was published there, and its copies."""
        original = self._ledger.publications[serial]
        return [*([original] if original.topic == topic else []), *self._asked.get((topic, serial), ())]

    def _check_count(self, topic: str, serial: int, count: int) -> None:
        """No more of a message are there than may be there by now."""
        until_ns = self._ledger.clock.wall_ns() + self._ledger.book.wall_slack_ns
        due = sum(each.due_wall_ns <= until_ns for each in self._all_of(topic, serial))
        if count > due:
            raise PromiseBrokenError(f"message {serial} is in {topic} {count} times, where {due} can be by now")

    def power_lost(self, loss: Loss) -> None:
        """Copies that were not synced, or places where they lay, may be gone."""
        for (topic, _), copies in self._asked.items():
            for copy in copies:
                at_ns = copy.promised_ns
                # That there is such a topic is in the journal.
                kept = at_ns is not None and loss.log_keeps(topic, None, at_ns) and loss.journal_keeps(at_ns)
                if at_ns is not None and copy.due_wall_ns:
                    kept = kept and loss.log_keeps(topic, None, at_ns, schedule=True)
                copy.promised_ns = at_ns if kept else None
        # Where it was seen is not followed over a loss of power: a place may be given to another message. That it was seen counts.
        for key, places in self._places.items():
            self._shown_before.setdefault(key, set()).update(places)
        self._places.clear()
        self._serials.clear()

    def owed(self) -> list[Publication]:
        """List the copies that were confirmed, and of which not so many have been seen."""
        return [copies[0] for (topic, serial), copies in self._asked.items() if self._shown(topic, serial) < self._least(topic, serial)]

    def _shown(self, topic: str, serial: int) -> int:
        return len(self._shown_before.get((topic, serial), set()) | set(self._places.get((topic, serial), ())))

    def _least(self, topic: str, serial: int) -> int:
        return sum(each.promised_ns is not None for each in self._all_of(topic, serial))

    def check_log(self, topic: str, number: int, records: Sequence[tuple[int, bytes]]) -> None:
        """Read a whole partition of such a topic."""
        for index, (offset, body) in enumerate(records):
            if offset != records[0][0] + index:
                raise PromiseBrokenError(f"partition {number}: offset {offset} is where {records[0][0] + index} should be")
            self.saw(topic, number, offset, body)

    def check_shown(
        self,
        topic: str,
        number: int,
        records: Sequence[tuple[int, bytes]],
        shown: Sequence[tuple[int, bytes]],
        most: Callable[[int], int],
    ) -> None:
        """Compare what readers of a queue's log are shown with all that is there: each message, and as often as `most` says of a serial."""
        counts = Counter(self._identify(topic, number, offset, body) for offset, body in shown)
        for serial, count in sorted(counts.items()):
            if count > most(serial):
                raise PromiseBrokenError(f"readers of {topic} are shown message {serial} {count} times, {most(serial)} at most")
        hidden = {self._identify(topic, number, offset, body) for offset, body in records} - set(counts)
        if hidden:
            raise PromiseBrokenError(f"message {min(hidden)} is in {topic}, and its readers are not shown it")

    def check_all(self, partitions: Sequence[tuple[str, int, Sequence[tuple[int, bytes]]]]) -> None:
        """Compare the whole of all such topics, as (topic, partition number, (offset, body) pairs), with what was promised."""
        before = self._places
        self._places = {}
        for topic, number, records in partitions:
            self.check_log(topic, number, records)
        for key, places in before.items():
            gone = set(places) - set(self._places.get(key, ()))
            if gone:
                raise PromiseBrokenError(f"message {key[1]} was shown at {min(gone):016x} of {key[0]}, and is not there")
        here = {(each.topic, each.serial) for each in self._ledger.publications.values() if each.topic in self.topics}
        for topic, serial in sorted(here | set(self._asked)):
            least, found = self._least(topic, serial), len(self._places.get((topic, serial), ()))
            if found < least:
                raise PromiseBrokenError(f"message {serial} should be in {topic} {least} times, and is {found} times")
