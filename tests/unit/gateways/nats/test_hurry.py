"""A NATS client that keeps a turn busy waits for the next one with what is left; nothing else changes for anybody."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest

from polymq.config_sections import NatsSettings as NatsSection
from polymq.limits import LIVE_LEAVING_PER_TURN, NATS_EVENTS_PER_FEED_MAX, NATS_NS_PER_TURN_MAX, READ_BUFFER_SIZE_BYTES
from polymq.server.courier import LiveCourier
from tests.unit.gateways.nats.bridge_world import BridgeWorld
from tests.unit.gateways.nats.harness import PLAIN, QUIET, World

if TYPE_CHECKING:
    from polymq.core.interest.targets import Target
    from polymq.wire.live import LiveBatch
    from tests.unit.gateways.nats.harness import Talk


def slow(world: World, monkeypatch: pytest.MonkeyPatch, *, pass_ns: int, steps_max: int = 1 << 16) -> None:
    """Let each delivery of a pass take time."""
    deliver = LiveCourier.deliver

    def slowly(courier: LiveCourier, batch: LiveBatch, targets: list[Target], *, more: bool) -> None:
        deliver(courier, batch, targets, more=more)
        world.clock.now_ns += pass_ns

    monkeypatch.setattr(LiveCourier, "deliver", slowly)
    monkeypatch.setattr("polymq.core.live.LIVE_STEPS_PER_PASS_MAX", steps_max)


def begin(talk: Talk, said: bytes) -> None:
    """Have something read, and no turn ended."""
    talk.stream.incoming.append(said)
    talk.world.pump.readable(talk.connection)


def turns(world: World) -> int:
    """Take turns until nothing is to be done at once; how many."""
    for count in range(1, 10_000):
        world.pump.end_turn()
        due_ns = world.pump.due_ns()
        if due_ns is None or due_ns > world.clock.now_ns:
            return count
    raise AssertionError("the pump does not come to rest")


def numbered(count: int, subject: bytes = b"a") -> tuple[bytes, bytes]:
    """So many messages as they are published, and as who listens as 1 gets them."""
    bodies = [b"%d" % number for number in range(count)]
    published = b"".join(b"PUB %b %d\r\n%b\r\n" % (subject, len(body), body) for body in bodies)
    return published, b"".join(b"MSG %b 1 %d\r\n%b\r\n" % (subject, len(body), body) for body in bodies)


@pytest.mark.parametrize("verbose", [False, True])
def test_a_fan_out_goes_on_in_the_next_turn(verbose: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    listeners = [world.connect(PLAIN + b"SUB a 1\r\n") for _ in range(10)]
    few, other = world.connect(PLAIN + b"SUB a 1\r\nUNSUB 1 17\r\n"), world.connect(PLAIN)
    publisher = world.connect()
    publisher.say(b'CONNECT {"verbose":%b,"pedantic":false}\r\n' % (b"true" if verbose else b"false"))
    slow(world, monkeypatch, pass_ns=NATS_NS_PER_TURN_MAX // 2, steps_max=22)
    said, heard = numbered(100)
    begin(publisher, said + b"PING\r\n")
    assert publisher.client.in_message_count == 3
    begin(other, b"PING\r\n")
    world.pump.end_turn()
    assert other.hear().endswith(b"PONG\r\n")
    assert b"PONG" not in publisher.hear()[-6:]
    assert turns(world) > 15
    assert [listener.hear() == heard for listener in listeners] == [True] * 10
    assert few.hear() == numbered(17)[1]
    assert publisher.client.in_message_count == 100
    assert publisher.client.in_size_bytes == 10 + 2 * 90
    assert publisher.connection.rest == b""


@pytest.mark.parametrize("hears", [b"", b"SUB a 1\r\n"])
def test_what_a_verbose_client_is_told_stays_in_its_place(hears: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    heard = []
    said, _ = numbered(30)
    for hurried in (False, True):
        world = World()
        talk, listener = world.connect(), world.connect(PLAIN + b"SUB a 1\r\n")
        talk.say(b'CONNECT {"verbose":true,"pedantic":false}\r\n' + hears)
        if hurried:
            slow(world, monkeypatch, pass_ns=NATS_NS_PER_TURN_MAX, steps_max=3)
        begin(talk, said + b"PING\r\n")
        turns(world)
        heard.append((talk.hear(), listener.hear()))
    assert heard[0] == heard[1]


def test_few_listeners_have_all_in_one_turn() -> None:
    world = World()
    listener, publisher = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    said, heard = numbered(5000)
    reads = len(publisher.stream.reads)
    begin(publisher, said)
    assert (publisher.client.in_message_count, publisher.connection.paused) == (5000, False)
    turns(world)
    assert listener.hear() == heard
    assert len(publisher.stream.reads) == reads + 1


def test_no_more_is_read_while_there_is_a_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    listener, publisher = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    slow(world, monkeypatch, pass_ns=NATS_NS_PER_TURN_MAX, steps_max=50)
    said, heard = numbered(1000)
    for _ in range(10):
        publisher.stream.incoming.append(said)
    most = 0
    while publisher.stream.incoming or publisher.connection.rest:
        world.pump.readable(publisher.connection)
        world.pump.end_turn()
        most = max(most, len(publisher.connection.rest) + publisher.connection.filled)
    assert most <= len(said) <= READ_BUFFER_SIZE_BYTES // 2
    assert listener.hear() == heard * 10


def test_questions_that_nobody_hears_are_told_exactly_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    talk = world.connect(QUIET + b"SUB in.* 1\r\nSUB here 2\r\n")
    said = b"".join(b"PUB nobody in.%d 0\r\n\r\nPUB here 0\r\n\r\n" % number for number in range(40))
    whole = talk.say(said)
    slow(world, monkeypatch, pass_ns=NATS_NS_PER_TURN_MAX, steps_max=3)
    begin(talk, said)
    assert turns(world) > 20
    assert talk.hear() == whole
    assert whole.count(b" 503\r\n") == 40


def test_what_is_captured_is_stored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = BridgeWorld(NatsSection(capture=("c.>",)))
    listener, publisher = world.connect(PLAIN + b"SUB c.a 1\r\n"), world.connect()
    slow(world, monkeypatch, pass_ns=NATS_NS_PER_TURN_MAX, steps_max=7)
    publisher.say(b'CONNECT {"pedantic":false}\r\n')
    said, heard = numbered(50, b"c.a")
    begin(publisher, said + b"PING\r\n")
    assert turns(world) > 6
    assert world.kept("c.a") == [b"%d" % number for number in range(50)]
    assert listener.hear() == heard
    assert publisher.hear().startswith(b"+OK\r\n" * 50 + b"PONG\r\n")


def test_new_topics_are_made_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = BridgeWorld(NatsSection(capture=("c.>",)))
    publisher, other = world.connect(PLAIN), world.connect(PLAIN)
    topics = world.broker.catalogue.topics
    create = world.broker.catalogue.create_topic

    def slowly(*args: object, **more: object) -> object:
        world.clock.now_ns += NATS_NS_PER_TURN_MAX // 3
        return create(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(world.broker.catalogue, "create_topic", slowly)
    names = [b"c.%d" % number for number in range(60)]
    begin(publisher, b"".join(b"PUB %b 1\r\nx\r\nPUB live 1\r\nx\r\n" % name for name in names) + b"PING\r\n")
    made = [len(topics)]
    begin(other, b"PING\r\n")
    while publisher.connection.paused or publisher.connection.resuming:
        world.pump.end_turn()
        made.append(len(topics))
        if len(made) == 2:
            assert other.hear().endswith(b"PONG\r\n")
    assert max(later - before for before, later in zip([0, *made], made, strict=False)) == 4
    turns(world)
    assert all(world.kept(name.decode()) == [b"x"] for name in names)
    # What is there takes no more turns.
    begin(publisher, b"".join(b"PUB %b 1\r\ny\r\n" % name for name in names))
    assert not publisher.connection.paused


def test_names_that_no_topic_is_made_for_are_not_cut_apart() -> None:
    world = BridgeWorld(NatsSection(capture=(">",)))
    talk = world.connect(QUIET + b"SUB _INBOX.> 1\r\n")
    passes = []
    deliver = LiveCourier.deliver

    def counted(courier: LiveCourier, batch: LiveBatch, targets: list[Target], *, more: bool) -> None:
        passes.append(targets)
        deliver(courier, batch, targets, more=more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LiveCourier, "deliver", counted)
        begin(talk, b"".join(b"PUB _INBOX.%d 1\r\nx\r\n" % number for number in range(100)))
    assert len(passes) == 1


# -- what takes time and gives nobody anything -------------------------------------------------------------------------------


SILENT = b'CONNECT {"verbose":false,"pedantic":false,"echo":false}\r\n'
ASKING = b'CONNECT {"verbose":false,"pedantic":false,"echo":false,"headers":true,"no_responders":true}\r\n'
# Patterns of which a name is a prefix of 511: all of them are visited for it, and none matches.
NEARLY = b"".join(b"SUB %b.b %d\r\n" % (b".".join(tokens), number) for number, tokens in enumerate(product((b"a", b"*"), repeat=8)))


def many(line: bytes, count: int) -> bytes:
    return b"".join(line % number for number in range(count))


@pytest.mark.parametrize(
    ("first", "published", "each_max"),
    [
        (SILENT + many(b"SUB a %d\r\n", 3000), b"PUB a 0\r\n\r\n", 30),
        (SILENT + many(b"SUB a q %d\r\n", 3000), b"PUB a 0\r\n\r\n", 30),
        (PLAIN + NEARLY, b"PUB a.a.a.a.a.a.a.a.%d 0\r\n\r\n", 150),
        (ASKING + many(b"SUB a %d\r\n", 3000), b"PUB a in.%d 0\r\n\r\n", 30),
        (ASKING + NEARLY + b"SUB > all\r\n", b"PUB x in.%d 0\r\n\r\n", 150),
    ],
    ids=["own", "members", "patterns", "questions", "answers"],
)
def test_what_nobody_gets_goes_on_in_the_next_turn(first: bytes, published: bytes, each_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    publisher, other = world.connect(first), world.connect(PLAIN)
    look = world.clock.monotonic_ns

    def slowly() -> int:
        # Whoever looks has let a millisecond pass: what matters is what is done between two looks.
        world.clock.now_ns += 1_000_000
        return look()

    monkeypatch.setattr(world.clock, "monotonic_ns", slowly)
    said = b"".join(published % number if b"%d" in published else published for number in range(1000))
    begin(publisher, said + b"PING\r\n")
    looks = NATS_NS_PER_TURN_MAX // 1_000_000
    assert 0 < publisher.client.in_message_count <= looks * each_max
    begin(other, b"PING\r\n")
    world.pump.end_turn()
    assert other.hear().endswith(b"PONG\r\n")
    assert b"PONG" not in publisher.hear()
    assert turns(world) > 1000 // (looks * each_max) - 1
    assert publisher.client.in_message_count == 1000
    assert publisher.hear().endswith(b"PONG\r\n")


# -- commands -------------------------------------------------------------------------------------------------------------


def test_a_burst_of_commands_goes_on_in_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    talk, other = world.connect(PLAIN), world.connect(PLAIN)
    listen = talk.client.session.listen

    def slowly(*args: object, **more: object) -> object:
        world.clock.now_ns += NATS_NS_PER_TURN_MAX // 1000
        return listen(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(talk.client.session, "listen", slowly)
    begin(talk, b"".join(b"SUB s.%d %d\r\n" % (number, number) for number in range(10_000)) + b"PING\r\n")
    assert 1000 <= len(talk.client.subscriptions) <= 1000 + NATS_EVENTS_PER_FEED_MAX
    begin(other, b"PING\r\n")
    world.pump.end_turn()
    assert other.hear().endswith(b"PONG\r\n")
    assert turns(world) >= 8
    assert len(talk.client.subscriptions) == 10_000
    assert talk.hear().endswith(b"PONG\r\n")


def test_messages_between_commands_go_on_in_the_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    listener, publisher = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    publisher.say(b"PING\r\n")
    slow(world, monkeypatch, pass_ns=NATS_NS_PER_TURN_MAX)
    begin(publisher, b"".join(b"PUB a 1\r\n%d\r\nPING\r\n" % number for number in range(10)))
    assert publisher.client.in_message_count == 1
    assert turns(world) >= 9
    assert listener.hear() == b"".join(b"MSG a 1 1\r\n%d\r\n" % number for number in range(10))
    assert publisher.hear() == b"PONG\r\n" * 10


def test_a_connect_behind_messages_that_took_long_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    listener, publisher = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    publisher.say(b"PING\r\n")
    slow(world, monkeypatch, pass_ns=NATS_NS_PER_TURN_MAX)
    begin(publisher, b'PUB a 1\r\n1\r\nPING\r\nCONNECT {"verbose":true}\r\nPUB a 1\r\n2\r\nfoo\r\n')
    turns(world)
    assert listener.hear() == b"MSG a 1 1\r\n1\r\nMSG a 1 1\r\n2\r\n"
    assert publisher.hear() == b"PONG\r\n+OK\r\n+OK\r\n-ERR 'Unknown Protocol Operation'\r\n"


def test_whoever_begins_anew_leaves_little_by_little() -> None:
    world = World()
    talk, other = world.connect(PLAIN), world.connect(PLAIN)
    count = 3 * LIVE_LEAVING_PER_TURN
    for first in range(0, count, 1000):
        talk.say(b"".join(b"SUB a %d\r\n" % number for number in range(first, min(first + 1000, count))))
    interest = world.broker.live.space("").interest
    begin(talk, PLAIN + b"SUB a new\r\nSUB b 1\r\n")
    assert (interest.count, set(talk.client.subscriptions)) == (count + 2, {b"new", b"1"})
    world.pump.end_turn()
    assert interest.count == count + 2 - LIVE_LEAVING_PER_TURN
    other.send(b"PUB a 1\r\nx\r\nPUB b 1\r\ny\r\n")
    assert talk.hear() == b"MSG a new 1\r\nx\r\nMSG b 1 1\r\ny\r\n"
    assert interest.count == 2
    talk.send(PLAIN + b"SUB a new\r\nSUB b 1\r\n")
    assert (talk.client.out_message_count, talk.client.out_size_bytes) == (2, 2)
    assert talk.say(b"UNSUB new\r\nUNSUB 1 1\r\nPING\r\n").endswith(b"PONG\r\n")
    other.send(b"PUB a 1\r\nx\r\nPUB b 1\r\ny\r\n" * 2)
    assert talk.hear() == b"MSG b 1 1\r\ny\r\n"
    assert interest.count == 0
