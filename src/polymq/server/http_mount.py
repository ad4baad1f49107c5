"""HTTP of any kind, mounted: endpoints behind a port, and who is asked for a login in front of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from polymq.gateways.http.gateway import HttpGateway
from polymq.gateways.http.guard import GuardedDoor, GuardedRouter
from polymq.server.mount import Mount

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.access import Action
    from polymq.core.session import Session
    from polymq.gateways.contract import Peer
    from polymq.gateways.http.gateway import Answering
    from polymq.protocols.http.router import Router
    from polymq.server.network import SocketListener
    from polymq.server.node import Node
    from polymq.wire.exchange import Request, Response
    from polymq.wire.tls import TlsLayer

__all__ = ["guard", "mount_http"]

Context = TypeVar("Context")


def guard(
    node: Node,
    router: Router[Context],
    with_session: Callable[[Context, Session], Context],
    refuse: Callable[[int], Response],
    open_path: str,
    concerns_all: Callable[[Request], Action | None],
    *,
    open_methods: frozenset[str] = frozenset(),
) -> Callable[[Peer, TlsLayer | None], Answering[Context]]:
    """Have requests of a connection answered: by the router, or by a guard in front of it if the settings ask for that.

    What is made wants to know the connection's TLS, if it has that, for authentication servers may judge by it.
    """
    if node.guests is None:
        return lambda _peer, _tls: router
    door = GuardedDoor(
        router,
        node.guests,
        with_session=with_session,
        refuse=refuse,
        open_paths=frozenset({open_path}),
        concerns_all=concerns_all,
        open_methods=open_methods,
    )
    return lambda peer, tls: GuardedRouter(door, peer, node.clock, tls)


def mount_http(
    node: Node,
    what: str,
    listener: SocketListener,
    answering: Callable[[Peer, TlsLayer | None], Answering[Context]],
    context: Context,
    *,
    room: int = 0,
    make_tls: Callable[[], TlsLayer] | None = None,
) -> Mount:
    """Have a port answered over HTTP, within TLS if there is something to make it; answers are counted by status."""
    answers: dict[int, int] = {}

    def plain(peer: Peer) -> HttpGateway[Context]:
        return HttpGateway(answering(peer, None), context, node.clock, peer, answers=answers)

    def within(peer: Peer) -> HttpGateway[Context]:
        assert make_tls is not None  # or there would be no such port
        tls = make_tls()
        return HttpGateway(answering(peer, tls), context, node.clock, peer, lambda: tls, answers)

    return Mount(what, listener, plain if make_tls is None else within, answers, room=room)
