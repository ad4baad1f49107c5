"""What a RocketMQ peer sends, from bytes to events: the hot half of the codec, compiled where possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polymq.protocols.rocketmq.events import Event
    from polymq.protocols.rocketmq.settings import RocketmqSettings

__all__ = ["Decoder"]


class Decoder:
    """One connection's ear, a server's or a client's.

    Feed it, then obey `need`: the bytes that must be there at the start of the next view before another feed can get any further;
    0: there were many events already, act on them, then feed the rest. After a `Violation` all input is swallowed.

    Set by the gateway: `every_request` (sends come as `Request`, too: who has to look at every one's fields, for signatures, wants that).
    """

    every_request: bool

    def __init__(
        self,
        settings: RocketmqSettings,
        *,
        server: bool = True,
        born_host: bytes = b"\x7f\0\0\1",
        born_port: int = 0,
        scanning: bool = True,
    ) -> None:
        """`born_host` (4 or 16 bytes) and `born_port` are the peer's address, for the messages it sends. `server` False: no `Sends`."""
        raise NotImplementedError

    @property
    def need(self) -> int:
        """Bytes that the next view must have for another feed to make progress; 0: feed the rest at once."""
        raise NotImplementedError

    def feed(self, view: memoryview, events: list[Event]) -> int:
        """Decode what has come into `events`; gives how many bytes of the view are done with. The rest comes again, at the start of the next view."""
        raise NotImplementedError
