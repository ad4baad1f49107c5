"""The broker as a node of its own directory: what it serves is found without its connecting to itself."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from polymq.core.group import GroupKind
from polymq.errors import Refusal
from polymq.gateways.nsqlookup.registry import Node
from polymq.protocols.nsq.names import is_valid_name

if TYPE_CHECKING:
    from polymq.gateways.nsqlookup.registry import Registry
    from polymq.protocols.nsqlookup.identify import Identity

__all__ = ["OwnNode"]

log = logging.getLogger(__name__)


class OwnNode:
    """A follower of the core's catalogue that registers as nsqd would. Names that NSQ cannot spell are left out."""

    def __init__(self, registry: Registry, identity: Identity, address: str) -> None:
        """Enter the registry. `address` stands where others have their connection's."""
        self._registry = registry
        self._node = Node(address, identity, heard_ns=None)
        self._full = False
        registry.connect(self._node)

    def topic_created(self, namespace: str, topic: str) -> None:
        """Register a topic."""
        if _is_spelled(namespace, topic):
            self._register(topic, "")

    def topic_deleted(self, namespace: str, topic: str) -> None:
        """Take a topic back; its name stays."""
        if _is_spelled(namespace, topic):
            self._registry.unregister(self._node, topic, "")

    def group_created(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Register a channel."""
        if kind is GroupKind.WORK and _is_spelled(namespace, topic, group):
            self._register(topic, group)

    def group_deleted(self, namespace: str, topic: str, group: str, kind: GroupKind) -> None:
        """Take a channel back."""
        if kind is GroupKind.WORK and _is_spelled(namespace, topic, group):
            self._registry.unregister(self._node, topic, group)

    def _register(self, topic: str, channel: str) -> None:
        try:
            self._registry.register(self._node, topic, channel)
        except Refusal as refusal:
            if not self._full:
                log.warning("the lookup role cannot list every topic of this node: %s", refusal)
            self._full = True


def _is_spelled(namespace: str, *names: str) -> bool:
    return not namespace and all(is_valid_name(name.encode("utf-8")) for name in names)
