from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from polymq.gateways.buffers import BufferPool
from polymq.gateways.outbox import Outbox
from polymq.wire.tickets import TicketState


@dataclass(eq=False)
class Ticket:
    state: TicketState = TicketState.PENDING
    failure: str = ""


def failed(reason: str) -> bytes:
    return f"<{reason}>".encode()


def drain(outbox: Outbox, count: int | None = None) -> bytes:
    """Send what may be sent, or `count` bytes of it."""
    data = b"".join(outbox.views())
    assert len(data) == outbox.ready_size_bytes
    data = data[:count]
    outbox.sent(len(data))
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
    assert b"".join(first.views()) == b"a" * 400
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


@pytest.mark.parametrize("room", [4, 40, 400])
def test_what_waits_is_seldom_moved_however_little_room_is_left(room: int) -> None:
    outbox, piece = Outbox(), bytes(2048)
    outbox.write(bytes(4 << 20))
    outbox.write(b"x")
    outbox.write(bytes(len(outbox.data) - outbox.end - room * 1024))
    appended = moved = 0
    for _ in range(5000):
        outbox.sent(len(piece))
        start = outbox.start
        outbox.write(piece)
        appended += len(piece)
        if outbox.start < start:
            moved += outbox.size_bytes
    assert moved <= 2 * appended + outbox.size_bytes


@pytest.mark.parametrize(("piece", "times"), [(20_000, 4), (2_000_000, 2)])
def test_a_buffer_is_at_most_some_times_what_was_in_it(piece: int, times: int) -> None:
    chance = random.Random(7)
    outbox, most = Outbox(), 3 * piece
    for _ in range(1000):
        size = chance.randrange(piece)
        most = max(most, outbox.size_bytes + size)
        outbox.write(bytes(size))
        outbox.sent(min(outbox.size_bytes, chance.randrange(piece * 9 // 10)))
        assert len(outbox.data) <= times * most


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


def lent_to(*borrowers: Outbox, owner: Outbox, data: bytes) -> bytearray:
    """Have `owner` encode something and the others send it as well; the encoder itself has no use for it any more."""
    at = owner.reserve(len(data))
    owner.data[at : at + len(data)] = data
    owner.advance(at + len(data))
    lent = owner.lend(at)
    assert lent is not None
    for borrower in borrowers:
        borrower.borrow(lent)
    lent.release()
    return lent.data


def test_what_is_lent_is_sent_from_one_buffer_which_goes_back_behind_the_last() -> None:
    pool = BufferPool()
    owner, one, two = (Outbox(pool) for _ in range(3))
    buffer = lent_to(one, two, owner=owner, data=b"abc")
    assert all(view.obj is buffer for outbox in (owner, one, two) for view in outbox.views())
    for outbox in (one, owner):
        assert drain(outbox) == b"abc"
        assert pool.take(10) is not buffer
    assert drain(two, 1) == b"a"
    assert drain(two) == b"bc"
    assert pool.take(10) is buffer


@pytest.mark.parametrize("writer", ["owner", "one"])
def test_who_goes_on_writing_leaves_what_is_lent_to_the_others(writer: str) -> None:
    pool = BufferPool()
    outboxes = {"owner": Outbox(pool), "one": Outbox(pool), "two": Outbox(pool)}
    lent_to(outboxes["one"], outboxes["two"], owner=outboxes["owner"], data=b"abc")
    assert drain(outboxes[writer], 1) == b"a"
    at = outboxes[writer].reserve(3)
    outboxes[writer].data[at : at + 3] = b"def"
    outboxes[writer].advance(at + 3)
    outboxes[writer].write(b"g" * 100_000)
    assert drain(outboxes.pop(writer)) == b"bcdef" + b"g" * 100_000
    assert [drain(outbox) for outbox in outboxes.values()] == [b"abc", b"abc"]


def test_who_has_something_waiting_sends_from_the_same_buffer_all_the_same() -> None:
    pool = BufferPool()
    owner, behind = Outbox(pool), Outbox(pool)
    owner.write(b"owner ")
    behind.write(b"behind ")
    buffer = lent_to(behind, owner=owner, data=b"a" * 2000)
    again = lent_to(behind, owner=owner, data=b"b" * 2000)
    behind.write(b"!")
    assert [view.obj for view in behind.views()][1:3] == [buffer, again]
    assert behind.first(100) == b"behind " + b"a" * 93
    assert len(behind.first(1 << 20)) == behind.size_bytes
    assert behind.size_bytes == len(b"behind " + b"!") + 4000
    assert drain(behind, 3000) == b"behind " + b"a" * 2000 + b"b" * 993
    assert drain(behind) == b"b" * 1007 + b"!"
    assert drain(owner) == b"owner " + b"a" * 2000 + b"b" * 2000
    assert {id(pool.take(2000)) for _ in range(4)} >= {id(buffer), id(again)}


def test_who_waits_for_a_commit_gets_a_copy_of_what_is_lent_and_lends_nothing() -> None:
    pool = BufferPool()
    owner, gated = Outbox(pool), Outbox(pool)
    ticket = Ticket()
    gated.write_after(ticket, b"", failed)
    lent_to(gated, owner=owner, data=b"abc")
    assert gated.lend(gated.end) is None
    assert drain(gated) == b""
    ticket.state = TicketState.DONE
    gated.settle()
    assert drain(gated) == b"abc"


def test_little_in_a_large_buffer_does_not_keep_it_waiting() -> None:
    pool = BufferPool()
    owner, prompt, slow = (Outbox(pool) for _ in range(3))
    slow.write(b"slow ")
    owner.reserve(100_000)
    lent_to(prompt, slow, owner=owner, data=b"abc")
    assert len(slow.views()) == 1
    assert drain(slow) == b"slow abc"
    assert drain(prompt) == b"abc"


def test_a_backlog_that_grows_is_not_moved_and_takes_little_more_room_than_it_is() -> None:
    outbox = Outbox()
    pieces: dict[int, bytes] = {}
    for number in range(4000):
        outbox.write(bytes([number % 256]) * 5000)
        for lent, _ in outbox._ahead or ():
            pieces.setdefault(id(lent), bytes(lent.data[:100]))
    assert outbox.size_bytes == 20_000_000
    views = outbox._ahead
    assert views is not None
    assert {id(lent): bytes(lent.data[:100]) for lent, _ in views} == pieces
    assert sum(len(lent.data) for lent, _ in views) + len(outbox.data) < 26_000_000
    for number in range(4000):
        assert drain(outbox, 5000) == bytes([number % 256]) * 5000


def test_only_so_many_pieces_are_sent_at_a_time() -> None:
    pool = BufferPool()
    owner, one = Outbox(pool), Outbox(pool)
    for _ in range(100):
        lent_to(one, owner=owner, data=b"a" * 2000)
    assert 1 < len(one.views()) < 100
    size = sum(map(len, one.views()))
    one.sent(size)
    assert one.size_bytes == 200_000 - size
    one.clear()
    assert one.size_bytes == 0
    assert one.views() == []


def test_a_gate_behind_what_is_lent_moves_along() -> None:
    pool, ticket = BufferPool(), Ticket()
    owner, one = Outbox(pool), Outbox(pool)
    owner.write(b"before ")
    lent_to(one, owner=owner, data=b"abc")
    one.write_after(ticket, b"OK", failed)
    assert drain(one) == b"abc"
    ticket.state = TicketState.FAILED
    assert one.settle() is not None
    assert drain(one) == b"<>"


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_lending_and_writing_keeps_every_stream_whole(seed: int) -> None:
    chance, pool = random.Random(seed), BufferPool()
    outboxes = [Outbox(pool) for _ in range(4)]
    wanted, got = [b""] * 4, [b""] * 4
    for _ in range(300):
        which = chance.randrange(4)
        data = bytes(chance.choices(b"abcdefgh", k=chance.choice((1, 10, 3000, 50_000))))
        match chance.randrange(3):
            case 0:
                others = chance.sample([each for each in range(4) if each != which], chance.randrange(4))
                lent_to(*(outboxes[each] for each in others), owner=outboxes[which], data=data)
                for each in (which, *others):
                    wanted[each] += data
            case 1:
                outboxes[which].write(data)
                wanted[which] += data
            case _:
                got[which] += drain(outboxes[which], chance.choice((1, 1000, 1 << 20)))
    for which, outbox in enumerate(outboxes):
        assert got[which] + drain(outbox) == wanted[which]
