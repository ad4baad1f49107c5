"""The node's side: what a node says to a directory, as bytes, and what it hears, as answers.

Knows no socket. A directory's answers come in the order of the commands and say nothing else about which they belong
to. Read next: `gateways/nsq/announce.py`, which keeps a connection to each directory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.limits import LOOKUP_REPLY_SIZE_BYTES_MAX
from polymq.protocols.nsqlookup.identify import write_identity

if TYPE_CHECKING:
    from polymq.protocols.nsqlookup.identify import Identity

__all__ = ["OK", "PING", "ReplyReader", "identify", "register", "unregister"]

OK: Final = b"OK"
PING: Final = b"PING\n"
_SIZE_SIZE_BYTES: Final = 4


def identify(identity: Identity) -> bytes:
    """Say who this node is; the first command."""
    body = write_identity(identity)
    return b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body


def register(topic: str, channel: str = "") -> bytes:
    """Say that this node has a topic, or a channel and its topic."""
    return _command("REGISTER", topic, channel)


def unregister(topic: str, channel: str = "") -> bytes:
    """Say that this node no longer has a channel, or a topic."""
    return _command("UNREGISTER", topic, channel)


def _command(name: str, topic: str, channel: str) -> bytes:
    return f"{name} {topic} {channel}\n".encode() if channel else f"{name} {topic}\n".encode()


class ReplyReader:
    """Cuts a directory's output into answers. `need` as in `gateways.contract.Gateway`."""

    def __init__(self) -> None:
        self.need = _SIZE_SIZE_BYTES

    def feed(self, view: memoryview) -> tuple[list[bytes], int | None]:
        """Give every whole answer, and how many bytes they were; None instead if this is no directory's output."""
        replies: list[bytes] = []
        at = 0
        while len(view) - at >= _SIZE_SIZE_BYTES:
            size = int.from_bytes(view[at : at + _SIZE_SIZE_BYTES], "big", signed=True)
            if not 0 <= size <= LOOKUP_REPLY_SIZE_BYTES_MAX:
                return replies, None
            end = at + _SIZE_SIZE_BYTES + size
            if len(view) < end:
                self.need = end - at
                return replies, at
            replies.append(bytes(view[at + _SIZE_SIZE_BYTES : end]))
            at = end
        self.need = _SIZE_SIZE_BYTES
        return replies, at
