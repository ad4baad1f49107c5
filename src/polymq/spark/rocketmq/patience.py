"""How long what cannot be reached is tried again, and what is said when messages are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from polymq.clients.rocketmq_queues import QueueClient, is_lasting
from polymq.errors import Refusal, RefusalCode, RemoteProtocolError, TransportError
from polymq.spark import losses

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.clients.rocketmq_options import RocketMQOptions
    from polymq.errors import PolyMQError
    from polymq.spark.rocketmq.options import Options

__all__ = ["Patience", "client_of", "is_for_good", "report_loss"]

_Found = TypeVar("_Found")

# One client for each (name servers, group, how they are spoken to) in this process: Spark uses a worker for many tasks.
_clients: Final[dict[tuple[tuple[str, ...], str, RocketMQOptions], QueueClient]] = {}


def client_of(options: Options) -> QueueClient:
    """Give this process's client."""
    key = (options.name_servers, options.group, options.client)
    if key not in _clients:
        _clients[key] = QueueClient(options.name_servers, options.group, options.client)
    return _clients[key]


def report_loss(text: str, options: Options) -> None:
    """Fail for lost messages, or warn if the query is to go on."""
    losses.report_loss(text, options, "messages")


def is_for_good(error: PolyMQError) -> bool:
    """Say whether trying again makes no sense."""
    return is_lasting(error) or (isinstance(error, Refusal) and error.code is RefusalCode.TOPIC_NOT_FOUND)


class Patience(losses.Patience):
    """Does work again that fails, with pauses that grow, until the time for that is over."""

    def until_done(self, work: Callable[[], _Found]) -> _Found:
        """Do something again and again until it works, or there is no sense in it."""
        self.renew()
        while True:
            try:
                return work()
            except (TransportError, RemoteProtocolError, Refusal) as error:
                if is_for_good(error):
                    raise
                self.pause(str(error))
