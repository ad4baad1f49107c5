"""Which messages of a topic a consumer wants: a tag expression, as the broker is told it and as it is checked here.

The broker compares hashes of tags only; two tags may have the same, so the text is compared here once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.errors import LocalProtocolError
from polymq.protocols.rocketmq.names import tag_hash

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ALL", "Subscription"]

ALL: Final = "*"
_TAGS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic and a tag expression: `*`, or tags with `||` between them. `version` is the time it was made, in ms.

    With `kind` SQL92 the expression is the broker's to judge, if it does that at all.
    """

    topic: str
    expression: str = ALL
    version: int = 0
    kind: str = "TAG"
    tags: frozenset[str] = frozenset()  # none: all messages

    @classmethod
    def of(cls, topic: str, expression: str = ALL, version: int = 0, kind: str = "TAG") -> Subscription:
        """Read an expression; raises LocalProtocolError when it names nothing."""
        if kind != "TAG":
            return cls(topic, expression, version, kind)
        text = expression.strip()
        if text in ("", ALL):
            return cls(topic, ALL, version)
        tags = [part.strip() for part in text.split("||") if part.strip()]
        if not tags:
            raise LocalProtocolError(f"{expression!r} is not a tag expression, which is *, or TAG || TAG")
        if len(tags) > _TAGS_MAX:
            raise LocalProtocolError(f"{len(tags)} tags; a subscription has at most {_TAGS_MAX}")
        return cls(topic, text, version, kind, frozenset(tags))

    def wants(self, tags: str) -> bool:
        """Say whether a message with these tags is wanted."""
        return not self.tags or tags in self.tags

    def as_json(self) -> dict[str, object]:
        """Write it as heartbeats have it."""
        ordered: Iterable[str] = sorted(self.tags)
        return {
            "classFilterMode": False,
            "codeSet": [tag_hash(each) for each in ordered],
            "expressionType": self.kind,
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": list(ordered),
            "topic": self.topic,
        }
