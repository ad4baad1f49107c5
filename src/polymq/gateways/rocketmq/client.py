"""One RocketMQ connection: the decoder's events become calls of handlers, their answers become frames.

Broker and name server are one: requests go by their code to the module that takes care of them. Requests are carried
out in order, and all but held pulls and what waits for the disk is answered in order. Read next: `answers.py`, `house.py`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from polymq.errors import Refusal
from polymq.gateways.contract import BaseGateway
from polymq.gateways.effects import Close, Send, SendAfter
from polymq.gateways.lifecycle import Liveness, Sign
from polymq.gateways.rocketmq.answers import Answer, RequestProblem, failed, refused
from polymq.protocols.rocketmq.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.core.session import Session
    from polymq.gateways.contract import Peer
    from polymq.gateways.effects import Effect, TimerName
    from polymq.gateways.rocketmq.answers import Handler
    from polymq.gateways.rocketmq.house import House
    from polymq.protocols.rocketmq.events import Request

__all__ = ["HANDLERS", "RocketmqClient"]

# A connection on which nothing is said for so long is given up, as the real broker does.
_IDLE_NS: Final = 120_000_000_000

HANDLERS: dict[int, Handler] = {}

log = logging.getLogger(__name__)


class RocketmqClient(BaseGateway):
    """The server's side of one connection.

    `session` is that of whoever has made the request at hand. `own_host` is the address that the peer has reached.
    """

    def __init__(self, house: House, peer: Peer, *, own_host: str = "127.0.0.1") -> None:
        self.house = house
        self.peer = peer
        self.own_host = own_host
        self.session: Session = house.session()
        self.gone = False
