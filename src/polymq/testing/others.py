"""The other protocols in a simulated run: who is there, what they are owed, and what their topics hold in the end.

Runs whose seed is OTHERS_FROM or more have clients of RocketMQ and PHPMQ beside those of NSQ. RocketMQ's producers send to NSQ's
topics as well, whose channels are judged by the ledger as ever. Its groups read topics of their own: the first group of a topic
that NSQ's channels are to have must be one of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.core.access import ANONYMOUS
from polymq.testing.network import FakeStream
from polymq.testing.phpmq_clients import PhpmqConsumer, PhpmqProducer
from polymq.testing.process import read_partitions
from polymq.testing.promises import PromiseBrokenError
from polymq.testing.rocketmq_clients import RocketmqClient, RocketmqConsumer, RocketmqProducer, dead_letter_topic, retry_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.core.broker import Broker
    from polymq.testing.clients import Client
    from polymq.testing.options import Options, TopicPlan
    from polymq.testing.promises import Publication
    from polymq.testing.witness import Witness, WitnessedSurroundings

__all__ = ["OTHERS_FROM", "Others"]

# Seeds below make the same runs as before there were other protocols.
OTHERS_FROM: Final = 1_000_000
_GROUPS: Final = ("group1", "group2")


class Others:
    """The clients of RocketMQ and PHPMQ in one run."""

    def __init__(self, world: WitnessedSurroundings, options: Options) -> None:
        self._world = world
        self._options = options
        self._witness: Witness = world.witness
        for plan in options.queues:
            self._witness.copies.add_topic(plan.name)
        for group in _GROUPS:
            self._witness.copies.add_topic(retry_topic(group))
            self._witness.copies.add_topic(dead_letter_topic(group))

    def topics_of(self, protocol: str) -> list[TopicPlan]:
        """Say what a protocol's clients publish to."""
        options = self._options
        return [*options.queues] if protocol == "phpmq" else [*options.sends, *options.topics, *options.queues]

    def _queues(self) -> dict[str, int]:
        return {plan.name: plan.partitions for plan in self._options.sends}

    def workers(self) -> list[Client]:
        """Give those who send, read, consume."""
        world, options = self._world, self._options
        clients: list[Client] = []
        if options.sends:
            clients += [RocketmqProducer(world, f"producer{number}") for number in range(options.publishers)]
            clients += [RocketmqConsumer(world, group, self._queues) for group in _GROUPS]
        for plan in options.queues:
            clients.append(PhpmqProducer(world, f"{plan.name}.sender"))
            clients += [PhpmqConsumer(world, f"{plan.name}.taker{number}", plan.name, renews=number > 0) for number in range(3)]
        return clients

    def eager(self, what: str) -> list[Client]:
        """Give those who read everything: one of each group, and of each queue."""
        options = self._options
        clients: list[Client] = []
        for group in _GROUPS if options.sends else ():
            topics = self._queues() | {dead_letter_topic(group): 1}
            clients.append(RocketmqConsumer(self._world, group, topics.copy, eager=True))
        return [*clients, *(PhpmqConsumer(self._world, f"{what}.{plan.name}", plan.name, eager=True) for plan in options.queues)]

    def hear_out(self, clients: Sequence[Client]) -> None:
        """The process has ended: what it had said to these clients was said, although it is still under way."""
        for client in clients:
            if isinstance(client, RocketmqClient | PhpmqConsumer) and isinstance(client.stream, FakeStream) and not client.stream.closed:
                client.hear_out(client.stream.take_all())

    def owed(self) -> dict[str, list[Publication]]:
        """List what is owed, by whom it is owed to."""
        owed: dict[str, list[Publication]] = {}
        for plan in self._options.sends:
            for group in _GROUPS:
                owed[f"{group} of {plan.name}"] = self._witness.positions.owed(group, plan.name)
        for plan in self._options.queues:
            owed[f"queue {plan.name}"] = self._witness.windows.owed(plan.name)
        if self._options.sends:
            owed["copies"] = self._witness.copies.owed()
        return {who: what for who, what in owed.items() if what}

    def describe_owed(self) -> str:
        """Say what is owed, for people."""
        return "; ".join(f"{len(what)} for {who} ({[each.serial for each in what[:5]]})" for who, what in self.owed().items())

    def check(self, broker: Broker, turn: Callable[[], None]) -> None:
        """Read the topics in which messages may be several times, from end to end. Raises PromiseBrokenError."""
        session = broker.session(ANONYMOUS)
        found: list[tuple[str, int, list[tuple[int, bytes]]]] = []
        for topic in sorted(self._witness.copies.topics):
            if session.topic(topic) is not None:
                found += [(topic, number, records) for number, records in read_partitions(session, [topic], turn)]
        if any(records and records[0][0] for _, _, records in found):
            raise PromiseBrokenError("a log begins late, and nothing may be dropped")
        self._witness.copies.check_all(found)
        for plan in self._options.queues:
            shown = dict(read_partitions(session, [plan.name], turn, shown=True)) if session.topic(plan.name) is not None else {}
            for number, records in ((number, records) for topic, number, records in found if topic == plan.name):
                self._witness.copies.check_shown(plan.name, number, records, shown[number], self._witness.windows.shown_max)
