"""Mistakes in what RocketMQ and PHPMQ are promised, as in `planted.py`: found by seeds that have their clients."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from polymq.core import renewing
from polymq.core.cursor_group import CursorGroup
from polymq.core.session import Session
from polymq.core.windows import Windows
from polymq.gateways.effects import Send
from polymq.gateways.rocketmq import pulls, returns, sends
from polymq.gateways.rocketmq.answers import Answer
from polymq.store.log import Log
from polymq.testing.others import OTHERS_FROM
from polymq.wire.batch import ATTRIBUTE_RENEWED
from tests.sim.planting import bug_from, every, replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__: list[str] = []

bug = bug_from(OTHERS_FROM)


@bug
def send_is_answered_before_it_is_written() -> Iterator[None]:
    """A run of sends is answered at once, whatever becomes of it."""
    with replaced(sends, "SendAfter", lambda _: lambda ticket, data, failed: Send(data)):
        yield


@bug
def commit_is_not_journaled() -> Iterator[None]:
    """One in three positions of a group is kept in memory only."""
    strikes = every(3)

    def make(commit: Any) -> Any:
        def forgetful(self: CursorGroup, partition_index: int, offset: int, **options: bool) -> None:
            if strikes():
                self.committed[partition_index] = offset
            else:
                commit(self, partition_index, offset, **options)

        return forgetful

    with replaced(CursorGroup, "commit", make):
        yield


@bug
def pull_steps_over_a_message() -> Iterator[None]:
    """Now and then the next pull begins a message too far."""
    strikes = every(10)

    def make(encode_stored: Any) -> Any:
        def hasty(*arguments: Any, **options: Any) -> Any:
            end, count, following, scanned = encode_stored(*arguments, **options)
            return end, count, following + strikes(), scanned

        return hasty

    with replaced(pulls, "encode_stored", make):
        yield


@bug
def given_back_is_lost() -> Iterator[None]:
    """One in five messages that consumers send back is confirmed and stored nowhere."""
    strikes = every(5)

    def make(take_back: Any) -> Any:
        return lambda client, found, wanted: Answer() if strikes() else take_back(client, found, wanted)

    with replaced(returns, "take_back", make):
        yield


@bug
def given_back_comes_at_once() -> Iterator[None]:
    """What a consumer sends back does not wait for its time."""

    def make(publish_later: Any) -> Any:
        return lambda self, *arguments, delay_ns, **rest: publish_later(self, *arguments, delay_ns=delay_ns // 2, **rest)

    with replaced(Session, "publish_later", make):
        yield


@bug
def put_back_loses_the_copy() -> Iterator[None]:
    """One in three messages that are put back is settled, and not appended again."""
    strikes = every(3)

    def make(renew: Any) -> Any:
        def careless(self: Session, topic: str, group: str, message_id: int, *, lifetime_ns: int) -> Any:
            if strikes():
                return self.settle_any(topic, group, memoryview(array("q", [message_id])), 0, 1)
            return renew(self, topic, group, message_id, lifetime_ns=lifetime_ns)

        return careless

    with replaced(Windows, "renew", make):
        yield


@bug
def put_back_is_shown_twice() -> Iterator[None]:
    """The copy that is appended is not marked, so readers of the log are shown it, too."""
    with replaced(renewing, "ATTRIBUTE_RENEWED", lambda _: 0):
        yield


@bug
def put_back_hides_a_message() -> Iterator[None]:
    """Messages are marked that are no copies."""

    def make(append_records: Any) -> Any:
        return lambda self, *arguments, **options: append_records(self, *arguments, **options | {"attributes": ATTRIBUTE_RENEWED})

    with replaced(Log, "append_records", make):
        yield


@bug
def lifetime_is_forgotten_when_put_back() -> Iterator[None]:
    """What is put back with a time to live gets half of it."""

    def make(renew: Any) -> Any:
        return lambda self, topic, group, message_id, *, lifetime_ns: renew(self, topic, group, message_id, lifetime_ns=lifetime_ns // 2)

    with replaced(Windows, "renew", make):
        yield
