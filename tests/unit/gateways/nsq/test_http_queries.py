"""Whatever a query says, polymq's own endpoints answer it: with what was asked for, or with an error of nsqd's kind."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.gateways.nsq.http import nsq_routes
from polymq.protocols.nsq.settings import NsqSettings
from tests.unit.gateways.nsq.http_world import NsqWorld

ROUTES = [
    (route.method, route.path)
    for route in nsq_routes(NsqSettings())
    if route.path.endswith(("/policy", "/peek", "/deferred", "/cancel", "/replay"))
]
NAMES = [
    "after", "ago", "channel", "count", "dead_letter", "expired", "from", "full", "id", "max_attempts", "max_bytes", "max_messages",
    "offset", "on_disconnect", "ordered", "partition", "time", "topic", "ttl",
]  # fmt: skip
TEXTS = (
    st.sampled_from(["", "0", "1", "-1", "99", "t", "c", "start", "end", "true", "drop", "reject", "wait", "2023-11-14T22:13:20Z"])
    | st.integers(0, 1 << 70).map(str)
    | st.integers(0, 1 << 64).map(lambda number: f"{number:016x}")
    | st.text(max_size=20)
)
QUERIES = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=5), TEXTS, max_size=6)


@pytest.mark.parametrize(("method", "path"), ROUTES)
@settings(max_examples=150)
@given(query=QUERIES, there=st.booleans())
def test_any_query_is_answered(method: str, path: str, query: dict[str, str], there: bool) -> None:
    world = NsqWorld(partitions=2)
    world.post("/topic/create?topic=t")
    world.post("/channel/create?topic=t&channel=c")
    world.publish("t", b"x")
    world.turn()
    if there:
        query = query | {"topic": "t", "channel": "c"}
    text = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items())
    answer = world.ask(method, f"{path}?{text}")
    if answer.status == 200:
        assert not answer.body or isinstance(json.loads(answer.text), dict)
    else:
        assert answer.status in (400, 404)
        assert set(json.loads(answer.text)) == {"message"}
    world.turn()
