"""Which nodes there are, what they have of what a query reads, and who does not answer: asked by the driver.

With one `server` there is one node, whose name does not matter, and whoever cannot reach it waits for it as `LogClient`
does. Of several, each is known by the name of its log, which stays over restarts and under other addresses; one that is
away must not hold up the others, so it is asked once and left alone for a while.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from polymq.clients.log import parse_address
from polymq.errors import ConfigError, Refusal, RefusalCode, RemoteProtocolError, TransportError
from polymq.spark.log.offsets import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from polymq.clients.log import LogClient, TopicInfo
    from polymq.spark.log.options import Options

__all__ = ["Nodes", "Survey", "doors_of"]

# A node that is away is asked again after the first, then after twice as long, up to the last.
_PAUSE_SECONDS_FIRST: Final = 0.5
_PAUSE_SECONDS_MAX: Final = 15.0
# Directories are asked again after this, or as soon as a node is missing.
_DIRECTORY_SECONDS: Final = 10.0
_NODES_MAX: Final = 10_000

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Survey:
    """What there was at one moment. `nodes` are addresses by name; `away` are reasons by address, of nodes and directories."""

    topics: list[TopicInfo] = field(default_factory=list)
    nodes: dict[str, str] = field(default_factory=dict)
    away: dict[str, str] = field(default_factory=dict)

    def describe_away(self) -> str:
        """Say who does not answer, for people."""
        return "; ".join(self.away.values()) or "nobody says that it is there"


@dataclass(slots=True)
class _Rest:
    """Until when somebody is left alone, and why."""

    until: float
    pause: float
    text: str


class Nodes:
    """Asks nodes and directories, one after the other. Belongs to one thread."""

    def __init__(
        self,
        options: Options,
        connect: Callable[[str], LogClient],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._connect = connect
        self._monotonic = monotonic
        self._resting: dict[str, _Rest] = {}
        # Of each directory: when it was asked, and what it knows; of each node that it knows: its log's door.
        self._asked_at: dict[str, float] = {}
        self._places: dict[str, dict[str, frozenset[str]]] = {}
        self._doors: dict[str, str] = {}

    @property
    def one(self) -> bool:
        """Whether there is one node, of which nothing is said."""
        return bool(self._options.server)

    def survey(self, optional: Container[str] = (), *, now: bool = False) -> Survey:
        """Ask everybody. Topics that are nowhere raise Refusal, unless they are `optional`, or somebody did not answer.

        `now`: also those who are left alone. Raises TransportError only if there is one `server`.
        """
        if now:
            self._resting.clear()
        away: dict[str, str] = {}
        topics: list[TopicInfo] = []
        nodes: dict[str, str] = {}
        for address in self._addresses(away, now=now):
            self._ask(address, topics, nodes, away)
        missing = [name for name in self._options.subscription.topics if name not in {topic.name for topic in topics}]
        required = [name for name in missing if name not in optional]
        if required and not away:
            raise Refusal(RefusalCode.TOPIC_NOT_FOUND, f"topic {', '.join(required)} not found")
        return Survey(topics, nodes, away)

    def offset_at(self, survey: Survey, place: Place, time_ns: int) -> int:
        """Ask for the first offset of a partition at or after a time."""
        return self._connect(survey.nodes[place.node]).offset_at(place.topic, place.partition, time_ns)

    def _ask(self, address: str, topics: list[TopicInfo], nodes: dict[str, str], away: dict[str, str]) -> None:
        """Add what one node has."""
        if self.one:
            nodes[""] = address
            topics += [replace(topic, node="") for topic in self._topics(self._connect(address))]
            return

        answer = self._try(address, partial(self._of_node, address), away)
        if answer is None:
            return
        name, found = answer
        if not name:
            raise RemoteProtocolError(f"the node at {address} has no name: it cannot be read together with others")
        if name in nodes:
            text = f"{nodes[name]} and {address} are both node {name}: name it once, or remove node-id from the data folder that is a copy"
            raise ConfigError([text])
        nodes[name] = address
        topics += [replace(topic, node=name) for topic in found]

    def _of_node(self, address: str) -> tuple[str, list[TopicInfo]]:
        client = self._connect(address)
        found = self._topics(client)
        return (found[0].node if found else client.node()), found

    def _topics(self, client: LogClient) -> list[TopicInfo]:
        """Ask one node for what it has of what is read."""
        subscription = self._options.subscription
        found: list[TopicInfo] = []
        if subscription.pattern:
            found = [topic for topic in client.topics() if subscription.matches(topic.name)]
        for name in subscription.topics:
            try:
                found.append(client.topic(name))
            except Refusal as error:
                if error.code is not RefusalCode.TOPIC_NOT_FOUND:
                    raise
        if not subscription.assigned:
            return found
        return [
            replace(
                topic,
                partitions=tuple(each for each in topic.partitions if subscription.takes(Place(topic.name, each.partition, topic.node))),
            )
            for topic in found
        ]

    def _addresses(self, away: dict[str, str], *, now: bool) -> list[str]:
        """List the doors: those that were given, or those of the nodes that directories know."""
        options = self._options
        if not options.lookupds:
            return [options.server] if self.one else list(options.servers)
        for address in options.lookupds:
            asked_at = self._asked_at.get(address)
            if not now and asked_at is not None and self._monotonic() < asked_at + _DIRECTORY_SECONDS:
                continue
            listed = self._try(address, partial(self._listed, address), away)
            if listed is not None:
                self._asked_at[address] = self._monotonic()
                self._places[address] = listed
        doors = [self._door_of(place, away, now=now) for listed in self._places.values() for place in listed]
        return list(dict.fromkeys(door for door in doors if door))

    def _listed(self, address: str) -> dict[str, frozenset[str]]:
        return doors_of(self._connect(address).json("/nodes"))

    def _door_of(self, place: str, away: dict[str, str], *, now: bool) -> str:
        """Find the log's door of a node, once; empty if it has none, or does not answer."""
        if place in self._doors and not now:
            return self._doors[place]
        try:
            door = self._try(place, partial(self._door, place), away)
        except (RemoteProtocolError, Refusal):
            topics = {topic for listed in self._places.values() for topic in listed.get(place, ())}
            has = " has topics of this query, and" if topics & set(self._options.subscription.topics) else ""
            warnings.warn(f"the node at {place}{has} is not polymq's, or shows no log: it is not read", RuntimeWarning, stacklevel=2)
            door = ""
        if door is not None:
            self._doors[place] = door
        return self._doors.get(place, "")

    def _door(self, place: str) -> str:
        """Ask a node, at NSQ's HTTP port, for its log's door."""
        answer = self._connect(place).json("/log")
        port = answer.get("port") if isinstance(answer, dict) else None
        if type(port) is not int or not 0 < port < 65536:
            raise RemoteProtocolError(f"the node at {place} has no door to its log")
        host, _ = parse_address(place)
        return _address(host, port)

    def _try(self, address: str, ask: Callable[[], _T], away: dict[str, str]) -> _T | None:
        """Ask somebody who may be away; None if he is, or is left alone since he was."""
        rest = self._resting.get(address)
        if rest is not None and self._monotonic() < rest.until:
            away[address] = rest.text
            return None
        try:
            answer = ask()
        except TransportError as error:
            pause = min(rest.pause * 2, _PAUSE_SECONDS_MAX) if rest is not None else _PAUSE_SECONDS_FIRST
            self._resting[address] = _Rest(self._monotonic() + pause, pause, str(error))
            away[address] = str(error)
            return None
        self._resting.pop(address, None)
        return answer


def doors_of(answer: Any) -> dict[str, frozenset[str]]:
    """Read nsqlookupd's list of nodes: their topics, by the address of NSQ's HTTP port. Raises RemoteProtocolError."""
    try:
        listed = (answer.get("data") or answer)["producers"]
        found = {}
        for each in listed[:_NODES_MAX]:
            host, port = each.get("broadcast_address") or each.get("hostname"), each.get("http_port")
            if isinstance(host, str) and host and type(port) is int and 0 < port < 65536:
                found[_address(host, port)] = frozenset(map(str, each.get("topics") or ()))
    except (AttributeError, KeyError, TypeError) as error:
        raise RemoteProtocolError("what nsqlookupd answers is no list of nodes") from error
    return found


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
