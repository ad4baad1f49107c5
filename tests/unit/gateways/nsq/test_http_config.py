"""`/config/{opt}`, beyond what the transcript shows."""

from __future__ import annotations

import json

import pytest

from polymq.limits import LOOKUP_ADDRESSES_MAX
from tests.unit.gateways.nsq.http_world import NsqWorld, message, parse


@pytest.fixture
def world() -> NsqWorld:
    return NsqWorld()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_msg_size", "1048576"),
        ("max_body_size", "5242880"),
        ("max_req_timeout", "3600000000000"),
        ("max_msg_timeout", "900000000000"),
        ("output_buffer_timeout", "250000000"),
        ("max_heartbeat_interval", "60000000000"),
        ("broadcast_tcp_port", "24150"),
        ("statsd_prefix", "nsq.127_0_0_1_24151."),
        ("statsd_mem_stats", "true"),
        ("mem_queue_size", "10000"),
        ("http_address", "127.0.0.1:24151"),
        ("tls_cert", ""),
    ],
)
def test_values(world: NsqWorld, option: str, value: str) -> None:
    assert world.get(f"/config/{option}").text == value


@pytest.mark.parametrize("option", ["node_id", "lookupd_tcp_address", "max-rdy-count", "verbose"])
def test_flags_are_no_options(world: NsqWorld, option: str) -> None:
    assert message(world.get(f"/config/{option}")) == (400, "INVALID_OPTION")


def test_log_level_is_changed(world: NsqWorld) -> None:
    assert world.ask("PUT", "/config/log_level", b"WaRn").text == "3"
    assert world.levels == ["warn"]
    assert world.get("/config/log_level").text == "3"


@pytest.mark.parametrize("value", [b"warning", b"info\n", b"3"])
def test_wrong_log_levels(world: NsqWorld, value: bytes) -> None:
    assert message(world.ask("PUT", "/config/log_level", value)) == (400, "INVALID_VALUE")
    assert world.levels == []


@pytest.mark.parametrize(
    ("value", "shown"), [(b'["a:1","b:2"]', '["a:1","b:2"]'), (b"null", "null"), (b" [ ] ", "[]"), (b"[null]", '[""]')]
)
def test_addresses_are_changed(world: NsqWorld, value: bytes, shown: str) -> None:
    assert world.ask("PUT", "/config/nsqlookupd_tcp_addresses", value).text == shown
    assert world.get("/config/nsqlookupd_tcp_addresses").text == shown


def test_whoever_announces_this_node_is_told(world: NsqWorld) -> None:
    told: list[list[str]] = []
    world.context.change_lookupd_addresses = told.append
    for value in (b'["a:1"]', b"[]", b"null", b"[1]"):
        world.ask("PUT", "/config/nsqlookupd_tcp_addresses", value)
    assert told == [["a:1"], [], []]


def test_addresses_are_no_more_than_anybody_needs(world: NsqWorld) -> None:
    most = ["a:1"] * LOOKUP_ADDRESSES_MAX
    assert world.ask("PUT", "/config/nsqlookupd_tcp_addresses", json.dumps(most).encode()).status == 200
    more = [*most, "a:1"]
    assert message(world.ask("PUT", "/config/nsqlookupd_tcp_addresses", json.dumps(more).encode())) == (400, "INVALID_VALUE")


@pytest.mark.parametrize("value", [b"[1]", b'"a:1"', b"{}", b"[] []"])
def test_wrong_addresses(world: NsqWorld, value: bytes) -> None:
    assert message(world.ask("PUT", "/config/nsqlookupd_tcp_addresses", value)) == (400, "INVALID_VALUE")
    assert world.get("/config/nsqlookupd_tcp_addresses").text == "[]"


def test_value_that_is_too_large_or_broken(world: NsqWorld) -> None:
    head = b"PUT /config/log_level HTTP/1.1\r\nHost: h\r\n"
    too_large = parse(world.raw(head + b"Content-Length: 1048577\r\n\r\n").output)
    assert message(too_large) == (413, "INVALID_VALUE")
    broken = parse(world.raw(head + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n").output)
    assert message(broken) == (500, "INTERNAL_ERROR")
