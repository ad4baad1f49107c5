"""What PHP applications do that bring no library: publishing over HTTP with `defer=0`, a client without a name, answers that are counted.

The rest of what they can do is in the tests of all client libraries; MPUB with too small a size is how this client always sends it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.jobs import CLIENTS, Step
from tests.interop.raw import Raw
from tests.interop.test_clients import LATE_S_MAX, bodies_of_all_kinds, finished, numbered

if TYPE_CHECKING:
    from tests.interop.servers import Running

PHP = next(client for client in CLIENTS if client.name == "php")

pytestmark = pytest.mark.cell("plain", client="php")


def test_publishing_over_http_with_defer_0(server: Running, topic: str) -> None:
    bodies = bodies_of_all_kinds()
    with Raw(server.tcp) as raw:
        raw.subscribe(topic, "ch", ready=10)
        assert PHP.publish(server.tcp, topic, [Step([body]) for body in bodies], http=server.http) == len(bodies)
        assert [message.body for message in raw.take(len(bodies))] == bodies


def test_publishing_over_http_for_later(server: Running, topic: str) -> None:
    with Raw(server.tcp) as raw:
        raw.subscribe(topic, "ch", ready=10)
        began = time.monotonic()
        assert PHP.publish(server.tcp, topic, [Step([b"later"], delay_ms=1500), Step([b"now"])], http=server.http) == 2
        messages = raw.take(2)
    assert [message.body for message in messages] == [b"now", b"later"]
    assert 1.5 <= messages[1].received_at - began <= 1.5 + LATE_S_MAX


def test_a_client_without_a_name(server: Running, topic: str) -> None:
    with Raw(server.tcp) as raw:
        raw.publish(topic, numbered(1))
        job = PHP.start(action="consume", address=server.tcp, topic=topic, channel="ch", count=2)
        while not [each for each in server.topic(topic)["channels"] if each["clients"]]:
            time.sleep(0.02)
        (client,) = server.channel(topic, "ch")["clients"]
        assert (client["client_id"], client["user_agent"], client["version"]) == ("", "php-sockets", "V2")
        raw.publish(topic, [b"the last"])
    assert finished(PHP.consumed(job)) == [b"0", b"the last"]


def test_many_handshakes_by_counting(server: Running, topic: str) -> None:
    """No frame may come between the answers, however busy the channel is."""
    with Raw(server.tcp) as raw:
        raw.publish(topic, numbered(60))
    jobs = [PHP.start(action="consume", address=server.tcp, topic=topic, channel="ch", count=2, max_in_flight=1) for _ in range(12)]
    assert all(len(finished(PHP.consumed(job))) >= 2 for job in jobs)
