"""One whole run: a broker, its clients, everything that goes wrong, and the verdict.

Only clock, network, disk and worker are fakes. A run is a sequence of lives of the broker's process, each with its
faults and its ending; then a life without faults in which every channel is drained; then one more in which nothing
that was settled may come back. Time jumps from event to event.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Final

from polymq.errors import StoreError
from polymq.testing.clients import NEVER_NS, Client, Consumer, LastPublisher, Publisher
from polymq.testing.clock import FakeClock
from polymq.testing.disk import FakeFiles, SimulatedKill
from polymq.testing.durability import JOURNAL
from polymq.testing.faults import Faults
from polymq.testing.ledger import Ledger
from polymq.testing.network import FakeNetwork, NetworkConditions
from polymq.testing.operators import LogReader, Operator, channel_names
from polymq.testing.options import Ending, LifePlan, Options
from polymq.testing.others import OTHERS_FROM, Others
from polymq.testing.process import BrokerProcess
from polymq.testing.promises import Connection, PromiseBrokenError
from polymq.testing.tap import Tap
from polymq.testing.trace import Trace
from polymq.testing.witness import Witness

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.testing.durability import Place
    from polymq.testing.network import FakeStream
    from polymq.testing.options import TopicPlan

__all__ = ["World"]

_SECOND_NS: Final = 1_000_000_000
_DRAIN_NS_MAX: Final = 60 * _SECOND_NS
_GHOSTS_NS: Final = 1_200_000_000
_RELEASE_NS: Final = 500_000_000  # from the due time to the log, on a fast disk
_OVERTIME_NS: Final = 2 * _SECOND_NS


class World:
    """Everything of one seed. `run` raises PromiseBrokenError, or whatever the broker should not have raised."""

    def __init__(self, seed: int, *, echo: Callable[[str], None] | None = None, options: Options | None = None) -> None:
        self.random = Random(seed)
        self.options = options or (Options.draw if seed < OTHERS_FROM else Options.draw_with_others)(self.random)
        self.clock = FakeClock()
        self.trace = Trace(self.clock, echo)
        self.ledger = Ledger(
            self.clock,
            sync_slack_ns=3 * self.options.disk_delay_ns_max + 50_000_000,
            wall_slack_ns=2 * self.options.wall_step_ns_max,
            retention_ns=self.options.retention_ns,
        )
        self.witness = Witness(self.ledger)
        self.sent: Counter[str] = Counter()
        self.others = Others(self, self.options)
        self.network = FakeNetwork(self.clock, self.random, self.options.network)
        self.files = FakeFiles(self.random, sector_size_bytes=self.options.sector_size_bytes)
        self.clients: list[Client] = []
        self.process: BrokerProcess | None = None
        self.faults = Faults(self)
        self._places: dict[int, Place] = {}
        self._serial = 0
        # The present life: its first message, its beginning, how long it is to last (0: it has no messages).
        self._serials_before = 0
        self._started_ns = 0
        self._lasts_ns = 0
        self._boot = 0

    # What clients reach.

    def next_serial(self, count: int) -> int:
        """Take numbers for messages."""
        self._serial += count
        return self._serial - count

    @property
    def wants_messages(self) -> bool:
        """Whether this life has not had its messages; they are spread over it, so that its end finds some under way."""
        elapsed_ns = self.clock.monotonic_ns() - self._started_ns
        quota = self.options.messages_per_life * min(elapsed_ns, self._lasts_ns) // max(1, self._lasts_ns)
        return self._serial - self._serials_before <= quota and self._lasts_ns > 0

    def connect(self, connection: Connection) -> FakeStream | None:
        """Reach the broker, if it is up; what it says on this connection is told to the ledger."""
        if self.process is None:
            return None
        client, server = self.network.pair()
        tap = Tap(self.ledger, connection, self.trace)
        server.on_send = tap.sent
        server.on_close = tap.closed
        self.process.connect(server)
        return client

    def dial(self, port: str, on_end: Callable[[], None] | None = None) -> FakeStream | None:
        """Reach one of the broker's other ports, if it is up; `on_end`: when it hangs up."""
        if self.process is None:
            return None
        client, server = self.network.pair()
        server.on_close = on_end
        self.process.connect(server, port)
        return client

    def topics_of(self, protocol: str) -> list[TopicPlan]:
        """Say what a protocol's clients publish to."""
        return self.others.topics_of(protocol)

    def place(self, number: int) -> Place | None:
        """Say what a partition's folder belongs to, as the broker that runs, or the last one that knew, has it."""
        if self.process is not None:
            self._places.update(self.process.places())
        return self._places.get(number)

    def is_there(self, place: Place) -> bool:
        """Whether the broker still has what a folder belongs to."""
        return place == JOURNAL or place in self.process_running.places().values()

    # The run.

    def run(self) -> None:
        """Live all lives, drain, and judge."""
        options = self.options
        self.clients += [Publisher(self, f"publisher{number}") for number in range(options.publishers)]
        for topic in options.topics:
            for channel in channel_names(topic):
                self.clients += [
                    Consumer(self, f"{topic.name}.{channel}.{number}", topic.name, channel)
                    for number in range(options.consumers_per_channel)
                ]
        if options.manage_percent:
            self.clients.append(Operator(self, "operator"))
        self.clients += [
            LogReader(self, f"reader{number}", self.random.choice(options.topics).name) for number in range(options.log_readers)
        ]
        self.clients += self.others.workers()
        for plan in options.lives:
            self._live(plan)
        self._drain()
        self._judge()

    def _live(self, plan: LifePlan) -> None:
        """Live one life up to its ending."""
        clock = self.clock
        if plan.ending.in_operation and plan.operations == 1:
            self.files.kill_at = self.random.randrange(40)  # while it starts
        try:
            self._start(plan.lasts_ns)
            self.faults.plan(plan.lasts_ns)
            self._run_until(clock.monotonic_ns() + plan.lasts_ns)
            self.faults.check_health(self.process_running.store.health())
            if plan.ending.in_operation:
                self.files.kill_at = self.files.operations + plan.operations
                self._run_until(clock.monotonic_ns() + _OVERTIME_NS)
            if plan.ending is Ending.STOP:
                self.process_running.stop()
        except SimulatedKill:
            self.trace("killed in a disk operation")
        self._end(plan)

    def _end(self, plan: LifePlan) -> None:
        """The process is gone, in whatever way; time passes without one."""
        self.trace("the broker ends: %s", plan.ending.value)
        self.others.hear_out(self.clients)
        self.witness.stopped()
        self.ledger.stopped(clean=plan.ending is Ending.STOP)
        power_loss = plan.ending.power_loss
        if self.process is not None:
            self._places.update(self.process.places())
            self.process.vanish(power_loss=power_loss)
        self.process = None
        self.files = self.files.crash(power_loss=power_loss)
        self.faults.clear()
        if power_loss:
            self._boot += 1
            self.witness.power_lost(self.ledger.power_lost())
        self._run_until(self.clock.monotonic_ns() + plan.downtime_ns)

    @property
    def process_running(self) -> BrokerProcess:
        """The broker, where there must be one."""
        assert self.process is not None
        return self.process

    def _start(self, lasts_ns: int = 0) -> None:
        """Start the broker, with messages to be published for so long."""
        self._serials_before, self._started_ns, self._lasts_ns = self._serial, self.clock.monotonic_ns(), lasts_ns
        if lasts_ns:
            self.faults.plan_start()
        while self.process is None:
            self.files.watch(on_fault=self.faults.struck)
            self.ledger.started()
            try:
                self.process = BrokerProcess(self.files, self.clock, self.random, self.options, boot_id=f"boot{self._boot}")
            except StoreError as error:
                self.trace("the broker does not start: %s", error)
                self.faults.excuse_start(error)
                self.witness.stopped()
                self.ledger.stopped()
                self.files = self.files.crash()
                self.faults.clear()
        self.faults.clear()
        self.trace("the broker serves")

    def _run_until(self, end_ns: int, done: Callable[[], bool] | None = None) -> bool:
        """Let things happen until a moment, or until `done`."""
        clock = self.clock
        while done is None or not done():
            process = self.process
            at_ns = min((client.wakes_at_ns for client in self.clients), default=NEVER_NS)
            at_ns = min(at_ns, self.faults.wakes_at_ns)
            if process is not None:
                at_ns = min(at_ns, process.wakes_at_ns)
            if at_ns >= end_ns:
                clock.advance_to(end_ns)
                return False
            clock.advance_to(at_ns)
            now_ns = clock.monotonic_ns()
            if self.faults.wakes_at_ns <= now_ns:
                self.faults.strike()
            for client in self.clients:
                if client.wakes_at_ns <= now_ns:
                    client.step()
            if process is not None and process.wakes_at_ns <= now_ns:
                process.turn()
        return True

    def _turn(self) -> None:
        """Let the broker get on by itself."""
        self.process_running.turn()
        self.clock.advance_to(self.process_running.wakes_at_ns)

    # The end.

    def _drain(self) -> None:
        """Give every channel one consumer that settles all it gets, until nothing is owed; then publish some more to all."""
        self.network.conditions = NetworkConditions(delay_ns_max=1)
        self._dismiss()
        self._start()
        self.process_running.worker.delay_ns_max = 0
        operator = Operator(self, "drain.operator", resumes_all=True)
        self.clients = [operator]
        self._wait(lambda: operator.is_busy or operator.stream is None or bool(operator.agenda), "the operator waits")
        self.clients += [*self._eager("drain"), *self.others.eager("drain")]
        self._wait(self._lacks_consumers, "a consumer waits")
        self.ledger.deliveries.prompt_since_ns = self.clock.monotonic_ns()
        self._wait(self._drains, "lost, or stuck")
        self.ledger.calm = True
        self._publish_last()
        self._wait(self._drains, "lost, or stuck")
        self.ledger.deliveries.prompt_since_ns = None
        self.trace("drained")

    def _publish_last(self) -> None:
        """Publish to every topic when everything is well and every channel has its consumer: all of it must arrive."""
        publisher = LastPublisher(self, "last")
        self.clients.append(publisher)
        self._wait(lambda: bool(publisher.agenda) or bool(publisher.connection.commands), "the last publisher waits")

    def _wait(self, waits: Callable[[], bool], what: str) -> None:
        """Run on as long as something is waited for; raises PromiseBrokenError if that does not end."""
        end_ns = self.clock.monotonic_ns() + self.options.deferred_ns_max + _DRAIN_NS_MAX
        step_ns = 50_000_000
        while waits():
            self._run_until(self.clock.monotonic_ns() + step_ns)
            step_ns = min(2 * step_ns, _SECOND_NS)
            if self.clock.monotonic_ns() >= end_ns:
                raise PromiseBrokenError(f"{what}: {self._describe_owed()}")

    def _eager(self, what: str) -> list[Client]:
        return [
            Consumer(self, f"{what}.{channel.topic}.{channel.name}", channel.topic, channel.name, eager=True)
            for channel in list(self.ledger.channels.values())
        ]

    def _dismiss(self) -> None:
        for client in self.clients:
            client.stopped = True
            client.disconnect()

    def _lacks_consumers(self) -> bool:
        return any(client.stream is None or client.connection.commands for client in self.clients)

    def _drains(self) -> bool:
        """Whether there is anything left to wait for."""
        waits = self._lacks_consumers() or self.ledger.falls_due_later(_RELEASE_NS) or bool(self.ledger.owed())
        return waits or bool(self.others.owed())

    def _describe_owed(self) -> str:
        owed = [f"message {publication.serial} for {channel}" for channel, publication in self.ledger.owed()]
        waiting = [client.connection.name for client in self.clients if client.connection.commands]
        return f"{len(owed)} messages ({', '.join(owed[:5])}), unanswered on {waiting}; {self.others.describe_owed()}"

    def _judge(self) -> None:
        """Start once more: what is settled stays settled, and the log holds what it must."""
        ending = self.random.choice((Ending.STOP, Ending.KILL))
        self._dismiss()
        if ending is Ending.STOP:
            self.process_running.stop()
        self._end(LifePlan(0, ending))
        self._start()
        self.clients = [*self._eager("ghosts"), *self.others.eager("ghosts")]
        self._run_until(self.clock.monotonic_ns() + _GHOSTS_NS + 3 * self.options.disk_delay_ns_max)
        health = self.process_running.store.health()
        if health:
            raise PromiseBrokenError(f"the store is not well after a clean life: {health}")
        plain = (*self.options.topics, *self.options.sends)
        readers = [LogReader(self, f"inspector.{topic.name}", topic.name, thorough=True) for topic in plain]
        self.clients += readers
        asked_ns = self.clock.monotonic_ns()
        self._wait(lambda: not all(reader.is_done for reader in readers), "the log cannot be read to its end")
        self.ledger.check_log([each for reader in readers for each in reader.records.items()], asked_ns=asked_ns)
        self.others.check(self.process_running.broker, self._turn)
        self.trace("nothing came back, the log is whole")
