"""NATS and the log, put together: what is stored of what clients publish, and what they hear of what others publish."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Final

from polymq.core.interest.names import tokens_of_pattern
from polymq.core.interest.targets import KEEPS_LOCAL, KEEPS_ROUTED
from polymq.core.live_outlet import Outlet
from polymq.core.live_store import Archives, Capture
from polymq.errors import ConfigError, Refusal
from polymq.gateways.nats.log_door import LogDoor
from polymq.gateways.nats.records import NatsCodec
from polymq.gateways.nats.sharing import PRIVATE, WorkGroups
from polymq.protocols.nats.subjects import RESERVED_QUEUE, is_valid_literal

if TYPE_CHECKING:
    from polymq import config_sections
    from polymq.core.broker import Broker
    from polymq.core.live import LiveSpace

__all__ = ["bridge", "capture_of", "work_groups_of"]

_KEEPS: Final = {"clients": KEEPS_LOCAL, "routes": KEEPS_ROUTED, "both": KEEPS_LOCAL | KEEPS_ROUTED}
# What a list has around it and between its texts: it has been given where one text was expected.
_OF_LISTS: Final = frozenset("\"'[]")
_HOW: Final = 'in a file %s = ["orders.>", "audit.*"], on a command line nats.%s=orders.>,audit.*'


def capture_of(section: config_sections.NatsSettings) -> Capture:
    """Say what is to be stored. Raises ConfigError."""
    problems: list[str] = []
    patterns = _patterns("capture", section.capture, problems)
    never = _patterns("capture_never", section.capture_never, problems)
    if problems:
        raise ConfigError(problems)
    return Capture(patterns, _KEEPS[section.capture_from], section.capture_topics_max, PRIVATE, never, section.capture_age_ns)


def _patterns(name: str, texts: tuple[str, ...], problems: list[str]) -> tuple[bytes, ...]:
    """Read patterns of a setting, each once; what is none is added to the problems."""
    for text in texts:
        problem = ""
        try:
            tokens_of_pattern(text.encode())
        except Refusal as refusal:
            problem = str(refusal)
        if any(character.isspace() for character in text):
            problem = "it has a blank in it"
        elif _OF_LISTS.intersection(text):
            problem = f"it has quotes or brackets in it; {_HOW % (name, name)}"
        if problem:
            problems.append(f'nats.{name}: "{text}" is no subject: {problem}')
    return tuple(dict.fromkeys(text.encode() for text in texts))


def _routed(section: config_sections.NatsSettings) -> tuple[bytes, ...] | None:
    """Say what clients of other servers may read; None: they are not answered. Raises ConfigError."""
    if section.log_requests != "both":
        return None
    problems: list[str] = []
    patterns = _patterns("log_requests_routed", section.log_requests_routed, problems)
    if not patterns and not problems:
        problems.append(
            'nats.log_requests: "both" lets clients of other servers read, whose permissions are not known here: say what all of them may '
            'read, such as nats.log_requests_routed = ["orders.>"]; [">"] is every topic'
        )
    if problems:
        raise ConfigError(problems)
    return patterns


def work_groups_of(broker: Broker, section: config_sections.NatsSettings) -> WorkGroups | None:
    """Say which queue groups are work groups; None: none of them. Raises ConfigError."""
    problems = [
        f'nats.work_groups: "{name}" is no queue group: a name without blanks and wildcards is expected; {_HOW % ("work_groups", "work_groups")}'
        for name in section.work_groups
        if not name or not is_valid_literal(name.encode()) or _OF_LISTS.intersection(name) or name.encode() == RESERVED_QUEUE
    ]
    if problems:
        raise ConfigError(problems)
    return WorkGroups(section.work_groups, NatsCodec(broker.left_out.of("nats"))) if section.work_groups else None


def _new_id() -> str:
    """Make a name that nobody guesses."""
    return base64.urlsafe_b64encode(os.urandom(12)).decode()


def bridge(broker: Broker, section: config_sections.NatsSettings) -> None:
    """Have live messages stored that belong to topics, topics' messages heard live, and the log read by requests. Raises ConfigError.

    To be called when whoever tells other servers what is wanted is there already.
    """
    codec = NatsCodec(broker.left_out.of("nats"))
    Archives(broker, codec, capture_of(section))
    broker.feeders.append(Outlet(broker, codec, codec.left_out))
    if section.log_requests != "off":
        routed = _routed(section)

        def make_door(space: LiveSpace) -> None:
            if not space.namespace.startswith("$"):
                broker.feeders.append(LogDoor(broker, space, codec, routed=routed, new_id=_new_id))

        broker.live.furnishers.append(make_door)
        for space in list(broker.live.spaces.values()):
            make_door(space)
