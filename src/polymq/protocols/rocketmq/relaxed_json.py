"""JSON as fastjson writes it: objects as keys, keys without quotes, `$ref`; a tolerant reader and a writer of object keys.

Source: RocketMQ 4.9.8 on the wire: 202, 208, 220, 222, 307, 317 and the routes of old name servers.
"""

from __future__ import annotations

__all__ = ["ObjectKey", "dumps", "loads"]


class ObjectKey(tuple[tuple[str, object], ...]):
    """A JSON object as the key of another: its items, so it can be hashed. `ObjectKey.of(brokerName=…, queueId=…, topic=…)`."""

    __slots__ = ()

    @classmethod
    def of(cls, **items: object) -> ObjectKey:
        return cls(items.items())

    def get(self, name: str, default: object = None) -> object:
        """Find one item's value."""
        return dict(self).get(name, default)


def loads(body: bytes) -> object:
    """Read a body. Raises RemoteProtocolError (not fatal). Limits: JSON_BODY_SIZE_BYTES_MAX, JSON_DEPTH_MAX, JSON_VALUES_MAX. Cost: linear."""
    raise NotImplementedError


def dumps(value: object) -> bytes:
    """Write compact JSON; dictionaries may have `ObjectKey`s and numbers as keys."""
    raise NotImplementedError
