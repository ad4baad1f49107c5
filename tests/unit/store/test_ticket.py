"""A ticket is settled once."""

from __future__ import annotations

from polymq.store.ticket import Ticket, TicketState


def test_a_ticket_is_done_once() -> None:
    ticket = Ticket()
    assert (ticket.state, ticket.failure) == (TicketState.PENDING, "")
    ticket.resolve()
    ticket.fail("too late")
    assert (ticket.state, ticket.failure) == (TicketState.DONE, "")


def test_a_ticket_fails_once() -> None:
    ticket = Ticket()
    ticket.fail("the disk is broken")
    ticket.resolve()
    ticket.fail("again")
    assert (ticket.state, ticket.failure) == (TicketState.FAILED, "the disk is broken")
