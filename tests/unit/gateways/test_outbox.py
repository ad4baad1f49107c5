from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from polymq.gateways.outbox import BufferPool, Outbox
from polymq.wire.tickets import TicketState


@dataclass(eq=False)
class Ticket:
    state: TicketState = TicketState.PENDING
    failure: str = ""


def failed(reason: str) -> bytes:
    return f"<{reason}>".encode()


def drain(outbox: Outbox, count: int | None = None) -> bytes:
    """Send what may be sent, or `count` bytes of it."""
    start, limit = outbox.start, outbox.limit()
    if count is not None:
        limit = min(limit, start + count)
    data = bytes(outbox.data[start:limit])
    outbox.sent(limit - start)
    return data


def test_reserved_bytes_are_sent_once_advanced() -> None:
    outbox = Outbox()
    at = outbox.reserve(10)
    outbox.data[at : at + 4] = b"abcd"
    assert outbox.size_bytes == 0
    outbox.advance(at + 4)
    assert outbox.size_bytes == 4
    assert drain(outbox) == b"abcd"
    assert outbox.size_bytes == 0


def test_advancing_beyond_the_reserve_is_our_bug() -> None:
    outbox = Outbox()
    outbox.reserve(10)
    with pytest.raises(AssertionError):
        outbox.advance(len(outbox.data) + 1)


def test_an_empty_outbox_holds_no_buffer_and_the_next_one_gets_it() -> None:
    pool = BufferPool()
    first, second = Outbox(pool), Outbox(pool)
    first.write(b"x")
    buffer = first.data
    assert drain(first) == b"x"
    assert not first.data
    second.write(b"y")
    assert second.data is buffer


def test_huge_and_many_buffers_are_not_kept() -> None:
    pool = BufferPool()
    outbox = Outbox(pool)
    outbox.write(bytes(8 * 1024 * 1024))
    drain(outbox)
    assert len(pool.take(100_000)) < 1024 * 1024
    for size, count, kept_max in ((100_000, 100, 8), (20_000, 300, 128), (100, 5000, 2048)):
        many = [pool.take(size) for _ in range(count)]
        for buffer in many:
            pool.give(buffer)
        again = {id(pool.take(size)) for _ in range(count)} & {id(buffer) for buffer in many}
        assert 0 < len(again) <= kept_max


def test_who_writes_little_holds_little() -> None:
    pool = BufferPool()
    outboxes = [Outbox(pool) for _ in range(100)]
    for outbox in outboxes:
        outbox.write(bytes(200))
    assert sum(len(outbox.data) for outbox in outboxes) < 1024 * 1024


def test_a_buffer_that_has_become_too_small_goes_to_the_next_and_gates_stay_where_they_were() -> None:
    pool = BufferPool()
    first, second = Outbox(pool), Outbox(pool)
    first.write(b"a" * 1000)
    first.sent(600)
    small, ticket = first.data, Ticket()
    first.write_after(ticket, b"b" * 5000, failed)
    assert first.limit() - first.start == 400
    assert bytes(first.data[first.start : first.limit()]) == b"a" * 400
    second.write(b"c")
    assert second.data is small
    ticket.state = TicketState.DONE
    assert first.settle() is None
    assert drain(first) == b"a" * 400 + b"b" * 5000


def test_what_waits_survives_growing_and_moving() -> None:
    chance = random.Random(3)
    outbox = Outbox()
    written = sent = b""
    for index in range(2000):
        data = bytes([index % 256]) * chance.randrange(3000)
        if chance.random() < 0.5:
            outbox.write(data)
        else:
            at = outbox.reserve(len(data) + chance.randrange(100))
            outbox.data[at : at + len(data)] = data
            outbox.advance(at + len(data))
        written += data
        if chance.random() < 0.6:
            sent += drain(outbox, chance.randrange(4000))
        assert outbox.size_bytes == len(written) - len(sent)
    assert sent + drain(outbox) == written


def test_a_gate_holds_everything_behind_it() -> None:
    outbox, ticket = Outbox(), Ticket()
    outbox.write(b"before ")
    outbox.write_after(ticket, b"OK ", failed)
    outbox.write(b"behind")
    assert outbox.settle() is None
    assert drain(outbox) == b"before "
    ticket.state = TicketState.DONE
    assert outbox.settle() is None
    assert drain(outbox) == b"OK behind"
    assert not outbox.gated
    assert not outbox.data


def test_gates_open_in_order_however_the_tickets_end() -> None:
    outbox, one, two = Outbox(), Ticket(), Ticket()
    outbox.write_after(one, b"1", failed)
    outbox.write_after(two, b"2", failed)
    two.state = TicketState.DONE
    outbox.settle()
    assert drain(outbox) == b""
    one.state = TicketState.DONE
    outbox.settle()
    assert drain(outbox) == b"12"


def test_a_run_for_one_ticket_is_one_gate() -> None:
    outbox, ticket = Outbox(), Ticket()
    for _ in range(3):
        outbox.write_after(ticket, b"OK", failed)
    assert len(outbox._gates) == 1
    ticket.state = TicketState.DONE
    outbox.settle()
    assert drain(outbox) == b"OKOKOK"


def test_a_failure_takes_the_place_of_all_behind_the_gate() -> None:
    outbox, one, two = Outbox(), Ticket(), Ticket()
    outbox.write(b"before ")
    outbox.write_after(one, b"OK ", failed)
    outbox.write_after(two, b"OK ", failed)
    outbox.write(b"behind")
    one.state = TicketState.DONE
    two.state, two.failure = TicketState.FAILED, "disk"
    assert outbox.settle() == "disk"
    assert drain(outbox) == b"before OK <disk>"


def test_each_part_of_an_answer_waits_for_its_own_ticket() -> None:
    outbox, tickets = Outbox(), [Ticket() for _ in range(3)]
    outbox.write(b"before ")
    outbox.write_after_each(list(tickets), [1, 2, 3], b"122333", failed)
    outbox.write(b" behind")
    assert outbox.settle() is None
    assert drain(outbox) == b"before "
    tickets[1].state = TicketState.DONE
    assert outbox.settle() is None
    assert drain(outbox) == b""
    tickets[0].state = TicketState.DONE
    assert outbox.settle() is None
    assert drain(outbox) == b"122"
    tickets[2].state = TicketState.DONE
    assert outbox.settle() is None
    assert drain(outbox) == b"333 behind"
    assert not outbox.gated


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_what_is_durable_is_said_before_a_part_that_failed(broken: int) -> None:
    outbox, tickets = Outbox(), [Ticket(TicketState.DONE) for _ in range(3)]
    tickets[broken].state, tickets[broken].failure = TicketState.FAILED, "disk"
    outbox.write_after_each(list(tickets), [1, 2, 3], b"122333", failed)
    outbox.write(b" behind")
    assert outbox.settle() == "disk"
    assert drain(outbox) == [b"", b"1", b"122"][broken] + b"<disk>"


def test_more_for_the_last_ticket_of_a_run_needs_no_gate_of_its_own() -> None:
    outbox, one, two = Outbox(), Ticket(TicketState.DONE), Ticket()
    outbox.write_after_each([one, two], [1, 1], b"12", failed)
    outbox.write_after(two, b"2", failed)
    assert len(outbox._gates) == 1
    outbox.settle()
    assert drain(outbox) == b"1"
    two.state = TicketState.DONE
    outbox.settle()
    assert drain(outbox) == b"22"


def test_a_failure_always_has_a_reason() -> None:
    outbox = Outbox()
    outbox.write_after(Ticket(TicketState.FAILED), b"OK", failed)
    assert outbox.settle() == "commit failed"


def test_gates_keep_their_place_when_the_output_moves() -> None:
    outbox, ticket = Outbox(), Ticket()
    outbox.write(b"a" * 60_000)
    outbox.write_after(ticket, b"OK", failed)
    drain(outbox, 50_000)
    outbox.write(b"b" * 500_000)
    assert drain(outbox) == b"a" * 10_000
    ticket.state = TicketState.DONE
    outbox.settle()
    assert drain(outbox) == b"OK" + b"b" * 500_000


class Layer:
    closing = established = holding = False

    def receive(self, data: bytes) -> bytes:
        return data

    def send(self, data: bytes) -> bytes:
        return data

    def wants_write(self) -> bool:
        return False

    def close(self) -> bytes:
        return b""


def test_a_mark_is_passed_when_all_before_has_been_sent() -> None:
    outbox, layer, ticket = Outbox(), Layer(), Ticket(TicketState.DONE)
    outbox.write(b"before")
    outbox.mark(layer)
    outbox.write_after(ticket, b"behind", failed)
    outbox.settle()
    assert outbox.pass_mark() is None
    assert drain(outbox) == b"before"
    assert outbox.pass_mark() is layer
    assert drain(outbox) == b""
    outbox.settle()
    assert drain(outbox) == b"behind"


def test_what_was_meant_for_an_unused_layer_is_cut() -> None:
    outbox, layer = Outbox(), Layer()
    outbox.write(b"before")
    outbox.mark(layer)
    outbox.write_after(Ticket(), b"behind", failed)
    outbox.cut(layer)
    outbox.write(b"!")
    assert drain(outbox) == b"before!"
    outbox.cut(layer)
