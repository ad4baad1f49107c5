from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from polymq.core.interest.targets import KEEPS_LOCAL, KEEPS_ROUTED, Target
from polymq.gateways.nats.kept import MARK, hear_marks, tell_directed, tell_kept
from polymq.protocols.nats.commands import PeerKind
from polymq.protocols.nats.decode import Decoder
from polymq.protocols.nats.encode import encode_routed, routed_size_bytes
from polymq.protocols.nats.events import Publishes
from polymq.protocols.nats.settings import NatsSettings
from polymq.wire.live import COLUMNS, DIRECTED, KEPT, SPARE, LiveBatch, LiveMessage
from tests.unit.core.live_world import Ears, HandCourier, LiveWorld, capturing


class Route:
    """The owner of a remote target, which writes down what it would send."""

    def __init__(self, world: LiveWorld, *patterns: tuple[bytes, bytes]) -> None:
        self.target = Target(self, remote=True)
        self.sent = b""
        for tag, (pattern, queue) in enumerate(patterns):
            world.space.listen(pattern, self.target, tag=tag, queue=queue)

    def write(self, batch: LiveBatch) -> None:
        target = self.target
        tell_directed(batch, target)
        tell_kept(batch, target)
        count = target.pair_count
        room = bytearray(routed_size_bytes(batch, target.pairs, count, b"$G", target.queues))
        end = encode_routed(room, 0, batch, target.pairs, count, b"$G", target.queues, headers=True)
        self.sent += bytes(room[:end])


class RouteCourier(HandCourier):
    """Brings a route what is for it."""

    def deliver(self, batch: LiveBatch, targets: list[Target], *, more: bool) -> None:
        for target in targets:
            if isinstance(target.owner, Route):
                target.owner.write(batch)
        super().deliver(batch, targets, more=more)


def test_what_one_node_stores_another_does_not() -> None:
    one = LiveWorld(capturing(b"c.*", keeps=KEEPS_LOCAL))
    other = LiveWorld(capturing(b">", keeps=KEEPS_LOCAL | KEEPS_ROUTED))
    route = Route(one, (b">", b""), (b"c.*", b"group"))
    one.broker.live.courier = RouteCourier()
    messages = [
        LiveMessage(b"c.a", b"1"),
        LiveMessage(b"live", b"2"),
        LiveMessage(b"c.b", b"3", b"reply"),
        LiveMessage(b"live", b"4", b"reply"),
    ]
    one.space.publish(LiveBatch.of(messages))
    assert b"\r\nRMSG $G live 1\r\n2\r\n" in route.sent
    events, _ = Decoder(NatsSettings(), PeerKind.ROUTE).feed(memoryview(route.sent))
    (event,) = [event for event in events if isinstance(event, Publishes)]
    hear_marks(event.batch)
    other.space.publish(event.batch, Target(remote=True))
    assert one.kept("c.a") == [b"1"]
    assert sorted(name for _, name in other.broker.catalogue.topics) == ["live"]
    assert other.kept("live") == [b"2", b"4"]


def heard(sent: bytes) -> LiveBatch:
    """What another node makes of it."""
    events, _ = Decoder(NatsSettings(), PeerKind.ROUTE).feed(memoryview(sent))
    (event,) = [event for event in events if isinstance(event, Publishes)]
    hear_marks(event.batch)
    return event.batch


def test_what_is_sent_on_for_a_group_is_for_that_group_alone() -> None:
    """A member has left; the next server's member gets the message, and its plain listeners, who have had it, do not."""
    one = LiveWorld(capturing(b"c.*", keeps=KEEPS_LOCAL | KEEPS_ROUTED))
    other = LiveWorld(capturing(b">", keeps=KEEPS_LOCAL | KEEPS_ROUTED))
    route = Route(one, (b">", b""), (b"*", b"q"), (b"c.*", b"q"))
    one.broker.live.courier = RouteCourier()
    came = b"RMSG $G a | q 1\r\n1\r\nRMSG $G a + reply r  q 1\r\n2\r\nRMSG $G a 1\r\n3\r\nRMSG $G c.a | q 1\r\n4\r\n"
    one.space.publish(heard(came), Target(remote=True))
    assert route.sent == (b"RMSG $G a | _sys_ q 1\r\n1\r\nRMSG $G a + reply _sys_ q 1\r\n2\r\nRMSG $G c.a | _sys_ q _sys_ 1\r\n4\r\n")
    plain, member = Ears(other.space, b">"), Ears(other.space)
    other.space.listen(b">", member.target, tag=2, queue=b"q")
    other.space.publish(heard(route.sent), Target(remote=True))
    assert (plain.got, member.got) == ([], [(b"a", b"1"), (b"a", b"2"), (b"c.a", b"4")])
    assert list(other.broker.catalogue.topics) == []


def test_marks_are_told_apart() -> None:
    lines = [b"q", MARK, b"q " + MARK, MARK + b" q", MARK + b"  q\t" + MARK, b"q " + MARK + b" r"]
    # Names that only look so.
    others = [b"x" + MARK, MARK + b"x", b"q x" + MARK, MARK + b"x q", MARK[:-1], MARK[1:], b"q " + MARK[1:], MARK[:-1] + b" q"]
    batch = heard(b"".join(b"RMSG $G a | %b 1\r\n1\r\n" % names for names in others))
    assert {batch.rows[COLUMNS * index + SPARE] for index in range(batch.count)} == {0}
    batch = heard(b"".join(b"RMSG $G a | %b 1\r\n1\r\n" % names for names in lines))
    found = [batch.rows[COLUMNS * index + SPARE] for index in range(batch.count)]
    assert found == [0, KEPT, KEPT, DIRECTED, KEPT | DIRECTED, 0]


@given(
    some.lists(some.sampled_from([MARK, b"q", b"_sys", b"sys_", b"_sys__", b"__sys_"]), min_size=1, max_size=4),
    some.sampled_from([b" ", b"\t", b"  "]),
)
def test_any_names_are_read_word_by_word(names: list[bytes], blank: bytes) -> None:
    expected = (KEPT if names[-1] == MARK else 0) | (DIRECTED if len(names) > 1 and names[0] == MARK else 0)
    batch = heard(b"RMSG $G a 1\r\n0\r\nRMSG $G a | " + blank.join(names) + b" 1\r\n1\r\n")
    assert [batch.rows[COLUMNS * index + SPARE] for index in range(batch.count)] == [0, expected]
