"""NATS clients at a broker with a log behind it: `commit` is when what was published is durable."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, ClassVar

from polymq.config_sections import NatsSettings as NatsSection
from polymq.core.access import Principal
from polymq.gateways.nats.logins import OpenDoor
from polymq.server.nats_bridge import bridge
from tests.unit.gateways.nats.harness import QUIET, Talk, World

if TYPE_CHECKING:
    from polymq.gateways.nats.house import NatsLogins

__all__ = ["Accounts", "BridgeWorld", "Heard", "messages_in", "offsets"]


class Heard:
    """One message that a client got."""

    def __init__(self, subject: bytes, headers: bytes, body: bytes) -> None:
        self.subject = subject
        self.status = headers.partition(b"\r\n")[0].removeprefix(b"NATS/1.0").strip()
        self.headers = dict(line.split(b": ", 1) for line in headers.split(b"\r\n")[1:] if line)
        self.body = body

    @property
    def fields(self) -> dict[str, Any]:
        return dict(json.loads(self.body))


_LINE = re.compile(rb"(H?)MSG (\S+) \S+ (?:\S+ )??(?:(\d+) )?(\d+)\r\n")


def messages_in(heard: bytes) -> list[Heard]:
    """The messages among what a client heard; everything else is left out."""
    found, at = [], 0
    while (match := _LINE.search(heard, at)) is not None:
        header_size, size = int(match[3] or 0) if match[1] else 0, int(match[4])
        payload = heard[match.end() : match.end() + size]
        found.append(Heard(match[2], payload[:header_size], payload[header_size:]))
        at = match.end() + size
    return found


def offsets(heard: list[Heard]) -> list[int]:
    """Where those are from that are of the log."""
    return [int(each.headers[b"Polymq-Offset"]) for each in heard if b"Polymq-Offset" in each.headers]


class Accounts(OpenDoor):
    """Lets everybody into the account of the name that he gives."""

    nobody: Principal | None = None
    principals: ClassVar = {name: Principal(name, name) for name in ("A", "B")}

    def begin(self, connect: Any, *_: object) -> Principal:
        return self.principals[connect.name]


class BridgeWorld(World):
    """`commits` False: what is published stays undecided."""

    def __init__(self, section: NatsSection | None = None, *, logins: NatsLogins | None = None) -> None:
        super().__init__(logins=logins)
        bridge(self.broker, section or NatsSection(capture=("c.>",)))
        self.commits = True
        self.files.on_commit = self.commit

    def commit(self) -> None:
        if self.commits:
            self.core.store.commit()

    def settle(self) -> None:
        """Let everything become durable."""
        self.core.store.commit()
        self.turn()

    def kept(self, topic: str) -> list[bytes]:
        found = self.broker.catalogue.topics["", topic]
        return [message.body for message in self.core.store.logs[found.partitions[0].number].messages()]

    def listening(self, *subjects: bytes) -> Talk:
        """A client that listens."""
        talk = self.connect(QUIET)
        for sid, subject in enumerate(subjects):
            assert talk.say(b"SUB %b %d\r\n" % (subject, sid)) == b""
        return talk

    def ask(self, talk: Talk, request: bytes, **fields: object) -> list[Heard]:
        """Ask the log something; what comes, to `in.box` too."""
        payload = json.dumps(fields).encode() if fields else b""
        return messages_in(talk.say(b"PUB $POLYMQ.LOG.%b in.box %d\r\n%b\r\n" % (request, len(payload), payload)))
