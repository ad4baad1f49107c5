"""How long what cannot be reached is tried again, and what is said when messages are lost."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Final, TypeVar

from polymq.clients.rocketmq_queues import QueueClient, is_lasting
from polymq.errors import DeadlineExceeded, Refusal, RefusalCode, RemoteProtocolError, TransportError
from polymq.spark.rocketmq.offsets import DataLoss

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.clients.rocketmq_options import RocketMQOptions
    from polymq.errors import PolyMQError
    from polymq.spark.rocketmq.options import Options

__all__ = ["Patience", "client_of", "is_for_good", "report_loss"]

# What failed is tried again after this, then after twice as long, and so on up to the largest.
_PAUSE_SECONDS_FIRST: Final = 0.05
_PAUSE_SECONDS_MAX: Final = 1.0

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
    if options.fail_on_data_loss:
        raise DataLoss(f"{text}. Some messages cannot be read any more; set failOnDataLoss to false to go on without them.")
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def is_for_good(error: PolyMQError) -> bool:
    """Say whether trying again makes no sense."""
    return is_lasting(error) or (isinstance(error, Refusal) and error.code is RefusalCode.TOPIC_NOT_FOUND)


class Patience:
    """Pauses between attempts that double from one to the next, until the time for them is over."""

    def __init__(
        self, seconds: float, sleep: Callable[[float], None] = time.sleep, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._sleep = sleep
        self._monotonic = monotonic
        self.renew()

    def renew(self) -> None:
        """Begin anew: there was progress."""
        self._pause = _PAUSE_SECONDS_FIRST
        self._deadline: float | None = None

    def pause(self, text: str) -> None:
        """Sleep; raises DeadlineExceeded with `text` instead when the time is over."""
        now = self._monotonic()
        if self._deadline is None:
            self._deadline = now + self._seconds
        if now + self._pause > self._deadline:
            raise DeadlineExceeded(f"{text}, after {self._seconds:g} s")
        self._sleep(self._pause)
        self._pause = min(self._pause * 2, _PAUSE_SECONDS_MAX)

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
