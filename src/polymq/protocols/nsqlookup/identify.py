"""IDENTIFY: who a node says that it is, and who the directory says that it is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.protocols.nsqlookup import problems
from polymq.protocols.nsqlookup.settings import VERSION
from polymq.wire.go_json import INT64, decode_struct

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Identity", "parse_identity", "parse_reply", "write_identity"]

# nsqlookupd knows `remote_address` too: it is overwritten, but a wrong type in it fails the whole.
_FIELDS: Final[Mapping[str, type | range]] = {
    "remote_address": str,
    "hostname": str,
    "broadcast_address": str,
    "tcp_port": INT64,
    "http_port": INT64,
    "version": str,
}
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class Identity:
    """Where a node, or a directory, can be reached by others. A node's ports are taken as they come, as nsqlookupd does."""

    broadcast_address: str
    hostname: str
    http_port: int
    tcp_port: int
    version: str = VERSION


def parse_identity(body: bytes) -> Identity | bytes:
    """Read what a node says of itself; the text of the error if that is not enough.

    Source: NSQ 1.3.0, nsqlookupd/lookup_protocol_v1.go, IDENTIFY.
    """
    found = decode_struct(body, _FIELDS)
    if found is None:
        return problems.NOT_JSON
    identity = _identity(found)
    if not (identity.broadcast_address and identity.tcp_port and identity.http_port and identity.version):
        return problems.FIELDS_MISSING
    return identity


def parse_reply(data: bytes) -> Identity | None:
    """Read what a directory says of itself; None if it makes no sense. Without an address it cannot be asked anything."""
    found = decode_struct(data, _FIELDS)
    if not found:
        return None
    identity = _identity(found)
    return identity if 0 <= identity.http_port <= _PORT_MAX else None


def _identity(found: Mapping[str, str | int]) -> Identity:
    return Identity(
        broadcast_address=str(found.get("broadcast_address", "")),
        hostname=str(found.get("hostname", "")),
        http_port=int(found.get("http_port", 0)),
        tcp_port=int(found.get("tcp_port", 0)),
        version=str(found.get("version", "")),
    )


def write_identity(identity: Identity) -> bytes:
    """Write what both sides say of themselves, with its keys in the order that Go gives them."""
    return json.dumps(
        {
            "broadcast_address": identity.broadcast_address,
            "hostname": identity.hostname,
            "http_port": identity.http_port,
            "tcp_port": identity.tcp_port,
            "version": identity.version,
        },
        separators=(",", ":"),
        ensure_ascii=False,
    ).encode("utf-8", "replace")
