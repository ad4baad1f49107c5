"""Playbooks: what an NSQ client sends, and what the gateway wants to happen."""

from __future__ import annotations

import struct
from functools import partial

import pytest

from polymq.core.ports import TicketState
from polymq.core.settings import CoreSettings
from polymq.errors import Refusal, RefusalCode
from polymq.gateways.contract import Peer
from polymq.gateways.effects import Close, Effect, Flush, Send, SendAfter, SendAfterEach, SetTimer, TimerName
from polymq.gateways.nsq.refusals import publish_refused, settle_refused, subscribe_refused
from polymq.gateways.nsq.tcp import NsqGateway
from polymq.gateways.outbox import Outbox
from polymq.protocols.nsq.encode import HEARTBEAT_FRAME, OK_FRAME, error_frame, response_frame
from polymq.protocols.nsq.settings import NsqSettings
from polymq.protocols.nsq.states import Command
from polymq.wire.slices import MessageBatch
from polymq.wire.tls import TlsLayer
from tests.unit.core.conftest import SECOND_NS, World
from tests.unit.wire.tls_world import server_context


class Client:
    """One connection: speaks bytes, keeps the effects, and plays the pump's part for deliveries."""

    def __init__(self, world: World, *, settings: NsqSettings | None = None, magic: bytes = b"  V2") -> None:
        self.world = world
        session = world.broker.session(world.session.principal)
        settings = settings or NsqSettings()
        make_tls = partial(TlsLayer, server_context()) if settings.tls else None
        self.gateway = NsqGateway(session, Peer("10.0.0.7", 4711, "here:4150"), settings, world.clock.monotonic_ns, make_tls)
        self.outbox = Outbox()
        self.rest = b""
        self.send(magic)

    def send(self, data: bytes) -> list[Effect]:
        effects: list[Effect] = []
        view = memoryview(self.rest + data)
        if len(view) >= self.gateway.need:
            consumed = self.gateway.feed(view, effects)
            self.rest = bytes(view[consumed:])
        else:
            self.rest = bytes(view)
        return effects

    def timer(self, name: TimerName) -> list[Effect]:
        effects: list[Effect] = []
        self.gateway.timer(name, effects)
        return effects

    def turn(self) -> None:
        self.world.broker.tick()
        self.world.store.commit()
        for delivery in self.world.broker.dispatch():
            if delivery.subscription.listener is self.gateway:
                self.gateway.deliver(delivery, self.outbox)

    def messages(self) -> list[tuple[int, bytes, bytes]]:
        """Take what was delivered: (attempts, id, body)."""
        data, found = bytes(self.outbox.data[self.outbox.start : self.outbox.end]), []
        self.outbox.clear()
        while data:
            size, kind = struct.unpack_from(">II", data)
            assert kind == 2
            attempts = int.from_bytes(data[16:18], "big")
            found.append((attempts, data[18:34], data[34 : 4 + size]))
            data = data[4 + size :]
        return found


def publish(topic: bytes, body: bytes) -> bytes:
    return b"PUB %b\n%b%b" % (topic, struct.pack(">I", len(body)), body)


def identify(**wishes: object) -> bytes:
    import json

    body = json.dumps({"feature_negotiation": True, **wishes}).encode()
    return b"IDENTIFY\n" + struct.pack(">I", len(body)) + body


def subscribed(world: World, ready: int = 10, topic: bytes = b"t") -> Client:
    client = Client(world)
    (answer,) = client.send(b"SUB %b ch\nRDY %d\n" % (topic, ready))
    assert isinstance(answer, SendAfter)
    assert answer.data == OK_FRAME
    return client


def texts(effects: list[Effect]) -> list[bytes]:
    return [effect.data for effect in effects if isinstance(effect, Send | SendAfter | SendAfterEach)]


def test_a_run_of_publishes_has_one_answer_that_waits_for_the_commit(single: World) -> None:
    client = Client(single)
    (answer,) = client.send(publish(b"t", b"a") + publish(b"t", b"b"))
    assert isinstance(answer, SendAfter)
    assert answer.data == OK_FRAME * 2
    states = [answer.ticket.state]
    client.turn()
    states.append(answer.ticket.state)
    assert states == [TicketState.PENDING, TicketState.DONE]
    assert answer.failure("no space") == error_frame(b"E_PUB_FAILED PUB failed no space")


def test_publishes_to_two_topics_are_answered_in_order(single: World) -> None:
    client = Client(single)
    effects = client.send(publish(b"t", b"a") + publish(b"u", b"b") + publish(b"u", b"c") + publish(b"t", b"d"))
    (answer,) = effects
    assert isinstance(answer, SendAfterEach)
    assert (answer.data, answer.sizes) == (OK_FRAME * 4, [10, 20, 10])
    assert [ticket.state for ticket in answer.tickets] == [TicketState.PENDING] * 3
    assert answer.tickets[0] is answer.tickets[2]
    client.turn()
    assert {ticket.state for ticket in answer.tickets} == {TicketState.DONE}
    # The next run begins anew.
    assert texts(client.send(publish(b"t", b"e"))) == [OK_FRAME]


def test_each_command_has_an_answer_of_its_own_that_a_failure_names(single: World) -> None:
    client = Client(single)
    batch = struct.pack(">III", 9, 1, 1) + b"m"
    effects = client.send(publish(b"t", b"a") + publish(b"u", b"b") + b"MPUB u\n" + batch + b"MPUB t\n" + batch)
    publishes, batches = effects
    assert isinstance(publishes, SendAfterEach)
    assert isinstance(batches, SendAfterEach)
    assert (publishes.sizes, batches.sizes) == ([10, 10], [10, 10])
    assert publishes.failure("no space") == error_frame(b"E_PUB_FAILED PUB failed no space")
    assert batches.failure("no space") == error_frame(b"E_MPUB_FAILED MPUB failed no space")


def test_errors_come_behind_earlier_answers_and_end_the_connection(single: World) -> None:
    client = Client(single)
    effects = client.send(publish(b"t", b"a") + b"BAD\n" + publish(b"t", b"b"))
    assert texts(effects) == [OK_FRAME, error_frame(b"E_INVALID invalid command BAD")]
    assert isinstance(effects[-1], Close)
    client.turn()
    assert single.view().held == 1


def test_a_failed_subscription_ends_the_connection_and_nothing_behind_it_counts(single: World) -> None:
    single.settings = CoreSettings(group_consumers_max=1)
    single.restart()
    subscribed(single)
    client = Client(single)
    effects = client.send(b"SUB t ch\nRDY 1\nFIN 0123456789abcdef\n")
    assert texts(effects) == [error_frame(b"E_SUB_FAILED SUB failed consumers for t:ch exceeds limit of 1")]
    assert isinstance(effects[-1], Close)
    assert single.view().groups[0].consumer_count == 1


def test_messages_are_delivered_and_finished(single: World) -> None:
    client = subscribed(single)
    client.send(publish(b"t", b"one") + publish(b"t", b"two"))
    client.turn()
    (first, second) = client.messages()
    assert [first[0], first[2], second[2]] == [1, b"one", b"two"]
    assert client.send(b"FIN %b\nFIN %b\n" % (first[1], second[1])) == []
    assert texts(client.send(b"FIN %b\nNOP\n" % first[1])) == [error_frame(b"E_FIN_FAILED FIN %b failed ID not in flight" % first[1])]


def test_another_clients_message_cannot_be_finished_given_back_or_touched(single: World) -> None:
    owner, other = subscribed(single, 1), subscribed(single, 0)
    owner.send(publish(b"t", b"x"))
    owner.turn()
    ((_attempts, message_id, _body),) = owner.messages()
    for command, arguments in ((b"FIN", b""), (b"REQ", b" 0"), (b"TOUCH", b"")):
        expected = b"E_%b_FAILED %b %b failed client does not own message" % (command, command, message_id)
        assert texts(other.send(b"%b %b%b\n" % (command, message_id, arguments))) == [error_frame(expected)]
    assert owner.send(b"TOUCH %b\nREQ %b 0\n" % (message_id, message_id)) == []
    owner.turn()
    assert [attempts for attempts, _id, _body in owner.messages()] == [2]


def test_an_id_that_nobody_minted_is_not_in_flight(single: World) -> None:
    client = subscribed(single)
    assert texts(client.send(b"FIN zzzzzzzzzzzzzzzz\n")) == [error_frame(b"E_FIN_FAILED FIN zzzzzzzzzzzzzzzz failed ID not in flight")]


def test_close_wait_stops_deliveries_but_not_settling(single: World) -> None:
    client = subscribed(single, 1)
    client.send(publish(b"t", b"x"))
    client.turn()
    ((_attempts, message_id, _body),) = client.messages()
    (answer,) = client.send(b"CLS\n")
    assert isinstance(answer, SendAfter)
    assert (answer.data, answer.publishes) == (response_frame(b"CLOSE_WAIT"), False)
    # It confirms settles: it waits for the journal, and when that fails nothing is said.
    assert answer.ticket is single.store.journal.last_ticket
    assert answer.failure("no space") == b""
    assert client.send(b"FIN %b\n" % message_id) == []
    client.send(publish(b"t", b"y"))
    client.turn()
    assert client.messages() == []
    assert single.view().groups[0].consumers[0].closing


def test_deferred_publish_comes_when_it_is_due(single: World) -> None:
    client = subscribed(single)
    assert texts(client.send(b"DPUB t 300\n" + struct.pack(">I", 1) + b"x")) == [OK_FRAME]
    client.turn()
    assert client.messages() == []
    assert (single.view().scheduled, single.view().message_count) == (1, 1)
    single.clock.now_ns += 300_000_000
    client.turn()
    assert [body for _attempts, _id, body in client.messages()] == [b"x"]


def test_heartbeats_start_with_the_magic_and_again_with_identify(single: World) -> None:
    client = Client(single, magic=b"")
    timers = [effect for effect in client.send(b"  V2") if isinstance(effect, SetTimer)]
    assert [(timer.name, timer.due_ns) for timer in timers] == [
        (TimerName.HEARTBEAT, 30 * SECOND_NS),
        (TimerName.READ_DEADLINE, 60 * SECOND_NS),
    ]
    single.clock.now_ns = SECOND_NS
    timers = [effect for effect in client.send(identify(heartbeat_interval=1000)) if isinstance(effect, SetTimer)]
    assert [timer.due_ns for timer in timers] == [2 * SECOND_NS, 3 * SECOND_NS]
    single.clock.now_ns = 2 * SECOND_NS
    again, beat = client.timer(TimerName.HEARTBEAT)
    assert beat == Send(HEARTBEAT_FRAME)
    assert again == SetTimer(TimerName.HEARTBEAT, 3 * SECOND_NS)


def test_only_the_first_identify_sets_what_deliveries_depend_on(single: World) -> None:
    client = Client(single)
    client.send(identify(msg_timeout=60_000, sample_rate=0))
    effects = client.send(identify(msg_timeout=1000, sample_rate=10, heartbeat_interval=2000) + b"SUB t ch\nRDY 1\n")
    assert [(effect.name, effect.due_ns) for effect in effects if isinstance(effect, SetTimer)] == [
        (TimerName.READ_DEADLINE, 4 * SECOND_NS)
    ]
    consumer = single.broker.catalogue.topics["", "t"].groups["ch"].consumers[0]
    assert (consumer.lease_ns, consumer.sample_percent) == (60 * SECOND_NS, 0)


def test_silence_ends_the_connection_and_any_command_prevents_that(single: World) -> None:
    client = Client(single)
    client.send(identify(heartbeat_interval=1000))
    single.clock.now_ns = SECOND_NS
    client.send(b"NOP\n")
    single.clock.now_ns = 2 * SECOND_NS
    assert client.timer(TimerName.READ_DEADLINE) == [SetTimer(TimerName.READ_DEADLINE, 3 * SECOND_NS)]
    single.clock.now_ns = 3 * SECOND_NS
    (closed,) = client.timer(TimerName.READ_DEADLINE)
    assert isinstance(closed, Close)


def test_who_never_says_anything_is_closed(single: World) -> None:
    client = Client(single)
    effects: list[Effect] = []
    client.gateway.opened(effects)
    assert effects == [SetTimer(TimerName.READ_DEADLINE, 60 * SECOND_NS)]
    single.clock.now_ns = 60 * SECOND_NS
    (closed,) = client.timer(TimerName.READ_DEADLINE)
    assert isinstance(closed, Close)


def test_half_a_command_is_no_sign_of_life(single: World) -> None:
    client = Client(single)
    client.send(identify(heartbeat_interval=1000))
    single.clock.now_ns = SECOND_NS
    client.send(b"NO")
    single.clock.now_ns = 2 * SECOND_NS
    (closed,) = client.timer(TimerName.READ_DEADLINE)
    assert isinstance(closed, Close)


def test_a_body_that_does_not_come_is_an_error(single: World) -> None:
    client = Client(single)
    client.send(identify(heartbeat_interval=1000))
    client.send(b"PUB t\n\0\0\0\x09half")
    single.clock.now_ns = 2 * SECOND_NS
    effects = client.timer(TimerName.READ_DEADLINE)
    assert texts(effects) == [error_frame(b"E_BAD_MESSAGE PUB failed to read message body")]
    assert isinstance(effects[-1], Close)


def test_heartbeats_may_be_switched_off_for_producers_only(single: World) -> None:
    client = Client(single)
    effects = client.send(identify(heartbeat_interval=-1))
    assert [effect.due_ns for effect in effects if isinstance(effect, SetTimer)] == [None, None]
    assert texts(client.send(b"SUB t ch\n")) == [error_frame(b"E_INVALID cannot SUB with heartbeats disabled")]


def test_output_is_gathered_only_for_who_asks_for_more_than_the_habit(single: World) -> None:
    usual = Client(single)
    assert TimerName.FLUSH not in [e.name for e in usual.send(identify(output_buffer_timeout=250)) if isinstance(e, SetTimer)]
    client = Client(single)
    effects = client.send(identify(output_buffer_timeout=500, output_buffer_size=4096) + b"SUB t ch\nRDY 10\n")
    assert SetTimer(TimerName.FLUSH, 500_000_000) in effects
    client.send(publish(b"t", b"x"))
    client.turn()
    assert client.outbox.hold_below == 4096
    assert Flush() in client.timer(TimerName.FLUSH)


def test_a_client_that_takes_all_it_may_have_is_not_kept_waiting(single: World) -> None:
    client = Client(single)
    client.send(identify(output_buffer_timeout=500) + b"SUB t ch\nRDY 1\n")
    client.send(publish(b"t", b"x"))
    client.turn()
    assert client.outbox.hold_below == 0


def test_a_full_outbox_holds_the_subscription(single: World) -> None:
    client = subscribed(single)
    client.gateway.full([])
    client.send(publish(b"t", b"x"))
    client.turn()
    assert client.messages() == []
    client.gateway.writable([])
    client.turn()
    assert len(client.messages()) == 1


def test_short_bodies_are_an_error_even_at_the_end_of_input(single: World) -> None:
    client = Client(single)
    client.send(b"PUB t\n" + struct.pack(">I", 10) + b"abc")
    effects: list[Effect] = []
    client.gateway.eof(effects)
    assert texts(effects) == [error_frame(b"E_BAD_MESSAGE PUB failed to read message body")]


def test_an_unfinished_multi_publish_makes_its_topic(single: World) -> None:
    client = Client(single)
    client.send(b"MPUB t\n" + struct.pack(">I", 100))
    assert single.session.topic_names() == ["t"]


def test_ephemeral_names_make_ephemeral_things(single: World) -> None:
    client = Client(single)
    client.send(b"SUB t#ephemeral c#ephemeral\n")
    assert single.view("t#ephemeral").ephemeral
    client.gateway.ended()
    assert single.session.topic_names() == []


def test_a_deleted_channel_closes_its_consumers(single: World) -> None:
    client = subscribed(single)
    rung: list[bool] = []
    client.gateway.ring = lambda: rung.append(True)
    single.session.delete_group("t", "ch")
    effects: list[Effect] = []
    client.gateway.woken(effects)
    assert rung == [True]
    assert effects == [Close("group deleted")]


def test_auth_is_refused_when_there_is_none(single: World) -> None:
    client = Client(single)
    assert texts(client.send(b"AUTH\n" + struct.pack(">I", 3) + b"abc")) == [error_frame(b"E_AUTH_DISABLED AUTH disabled")]


def test_a_stopping_broker_refuses_in_nsqds_words(single: World) -> None:
    client, consumer = Client(single), Client(single)
    single.broker.stop()
    assert texts(client.send(publish(b"new", b"x"))) == [error_frame(b"E_PUB_FAILED PUB failed exiting")]
    assert texts(consumer.send(b"SUB t c\n")) == [error_frame(b"E_SUB_FAILED SUB failed exiting")]


def test_statistics_know_who_the_client_is(single: World) -> None:
    client = subscribed(single)
    other = Client(single)
    other.send(identify(client_id="me", hostname="box", user_agent="test/1") + b"SUB t ch\n")
    peers = [consumer.peer for consumer in single.view().groups[0].consumers]
    assert (peers[0].client_id, peers[0].remote_address) == ("10.0.0.7", "10.0.0.7:4711")
    assert (peers[1].client_id, peers[1].host_name, peers[1].user_agent) == ("me", "box", "test/1")
    client.gateway.ended()
    assert single.view().groups[0].consumer_count == 1


@pytest.mark.parametrize("code", RefusalCode)
def test_every_refusal_has_an_answer(code: RefusalCode) -> None:
    refusal = Refusal(code, "5")
    for command in (Command.PUB, Command.MPUB, Command.DPUB):
        assert publish_refused(command, b"t", refusal).startswith(b"E_")
    assert subscribe_refused(b"t", b"c", refusal).startswith(b"E_")
    for command in (Command.FIN, Command.REQ, Command.TOUCH):
        assert settle_refused(command, b"0" * 16, code).startswith(b"E_%b_FAILED " % command.value)


def test_batches_of_the_wrong_size_are_refused_by_the_core(single: World) -> None:
    huge = MessageBatch(memoryview(b""), memoryview(b""), memoryview(b""), first=0, count=1, size_bytes=1 << 30)
    with pytest.raises(Refusal) as refused:
        single.session.publish("t", huge, origin=1)
    assert refused.value.code is RefusalCode.BATCH_TOO_LARGE
