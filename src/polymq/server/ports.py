"""What the pump asks of the world, as protocols: the network, the poller, the broker, the store.

The real ones are in `network.py` and `shell.py`; the simulator has its own. Nothing here blocks: what cannot go on
raises BlockingIOError and is tried again when the poller says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

    from polymq.config_values import Address
    from polymq.core.group import Delivery
    from polymq.gateways.contract import Asked, GatewayFactory, Peer
    from polymq.server.connection import Connection
    from polymq.server.timers import Alarm

__all__ = ["Alarms", "Broker", "ClientTls", "Dial", "Dialer", "Listener", "Outside", "Store", "Stream", "Watcher"]


class Stream(Protocol):
    """One established connection. Errors are OSError; a peer that is gone shows as one, or as a read of nothing."""

    def recv_into(self, buffer: memoryview) -> int:
        """Read what is there; 0 when the peer will send no more; raises BlockingIOError when there is nothing yet."""

    def send(self, view: memoryview) -> int:
        """Write what fits and say how much; raises BlockingIOError when nothing does."""

    def end_output(self) -> None:
        """Tell the peer that nothing more will come; reading goes on."""

    def close(self) -> None:
        """Let go of the connection at once."""


class Listener(Protocol):
    """Where connections come in."""

    address: str

    def accept(self) -> tuple[Stream, Peer]:
        """Take the next waiting connection; raises BlockingIOError when there is none, OSError when it is lost."""

    def close(self) -> None:
        """Take no more connections."""


class Watcher(Protocol):
    """Who says when a connection can be read or written: the shell's poller, or the simulator. Level-triggered."""

    def watch(self, connection: Connection, *, readable: bool, writable: bool) -> None:
        """Replace what is watched for; both False: nothing. A connection starts unwatched, and ends so."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS to whom we call: how, and the name that the server's certificate must have."""

    context: ssl.SSLContext
    server_name: str


class Dial(Protocol):
    """An outgoing connection that is being made."""

    def cancel(self) -> None:
        """Give it up: neither the factory nor `failed` is called any more. Nothing happens once one of them was."""


class Dialer(Protocol):
    """Who makes outgoing connections."""

    def dial(
        self,
        address: Address,
        factory: GatewayFactory,
        *,
        timeout_ns: int,
        failed: Callable[[str], None],
        tls: ClientTls | None = None,
    ) -> Dial:
        """Connect, then open the connection in the pump with a gateway of `factory`; or call `failed` with the reason.

        Never blocks. Exactly one of the two is called, and never before `dial` has returned. A TLS handshake comes
        after the connection: when it fails, the gateway is told (`upgrade_failed`), then ended.
        """


class Alarms(Protocol):
    """Who calls at a given time: the pump."""

    def call_at(self, due_ns: int, function: Callable[[], None]) -> Alarm:
        """Have `function` called in the first turn after `due_ns`, monotonic."""


class Outside(Protocol):
    """Who answers the questions of `Ask`."""

    def ask(self, request: object, answered: Callable[[object], None]) -> Asked:
        """Find the answer in the background, then call `answered` in a later turn (None: there is none)."""


class Broker(Protocol):
    """The core, as far as the pump drives it."""

    def tick(self) -> None:
        """Do what time asks for: leases that end, messages that become due."""

    def dispatch(self) -> Sequence[Delivery]:
        """Say what goes to whom now."""

    def due_ns(self) -> int | None:
        """When it wants to be called next, monotonic; in the past: there is more to do at once."""

    def stop(self) -> None:
        """Take no more requests; stage what has to be kept."""


class Store(Protocol):
    """The store, as far as the pump drives it."""

    @property
    def congested(self) -> bool:
        """Whether publishers are not to be read."""

    @property
    def due_ns(self) -> int | None:
        """When commit() has something to do by itself, monotonic."""

    @property
    def unwritten(self) -> str:
        """Why the last commit() could not write down what the turn did beside publishing; "" if it could."""

    def commit(self) -> None:
        """Write what this turn staged."""

    def poll(self) -> bool:
        """Take notice of background work that has ended."""

    def close(self, *, clean: bool) -> bool:
        """Sync everything, and mark the folder so that the next start need not look for damage; tell whether it is marked."""
