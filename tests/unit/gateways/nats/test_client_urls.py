from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from polymq.gateways.nats.client_urls import urls_for_clients
from polymq.limits import CONNECT_URL_SIZE_BYTES_MAX, CONNECT_URLS_SIZE_BYTES_MAX, ROUTE_CONNECT_URLS_MAX

OWN = ("10.0.0.1:4222",)
LONGEST = "h" * (CONNECT_URL_SIZE_BYTES_MAX - 5)


def test_servers_come_one_after_the_other_and_addresses_once() -> None:
    assert urls_for_clients((), ()) == ((), [])
    assert urls_for_clients(OWN, [("b:1", "b:2"), ("c:1", "b:2", "10.0.0.1:4222"), ()]) == ((*OWN, "b:1", "b:2", "c:1"), [0, 0, 0])


@pytest.mark.parametrize(
    "url", ["h:1", "10.0.0.1:65535", "nats-1.example.org:4222", "a_b:1", "[::1]:4222", "[fe80::1%eth0]:4222", LONGEST + ":4222"]
)
def test_addresses(url: str) -> None:
    assert urls_for_clients((), [(url,)]) == ((url,), [0])


@pytest.mark.parametrize(
    "url",
    [
        "",
        "h",
        "h:",
        ":1",
        "[::1",
        "[::1]",
        "::1:1",
        "h:123456",
        "h:1/",
        "u@h:1",
        "nats://h:1",
        "h 1:1",
        "h:1\n",
        "ü:1",
        '":1',
        LONGEST + "h:4222",
    ],
)
def test_what_is_no_address(url: str) -> None:
    """A client that is told of one may not connect at all."""
    assert urls_for_clients(OWN, [(url, "b:1")]) == ((*OWN, "b:1"), [1])


def test_each_may_have_some() -> None:
    urls = tuple(f"h{number}:1" for number in range(ROUTE_CONNECT_URLS_MAX + 3))
    assert urls_for_clients((), [urls, ("i:1",)]) == ((*urls[:-3], "i:1"), [3, 0])


def test_who_says_much_does_not_keep_others_out() -> None:
    many = tuple(f"{LONGEST[:-2]}{number:02}:4222" for number in range(ROUTE_CONNECT_URLS_MAX))
    urls, left_out = urls_for_clients(OWN, [many, ("b:1", "b:2"), ("c:1",)])
    assert urls[0] == OWN[0]
    assert {"b:1", "b:2", "c:1"} < set(urls)
    assert len(urls) + sum(left_out) == 4 + ROUTE_CONNECT_URLS_MAX
    assert left_out[0] > 0
    assert (
        CONNECT_URLS_SIZE_BYTES_MAX - CONNECT_URL_SIZE_BYTES_MAX
        < len(json.dumps(urls, separators=(",", ":")))
        <= CONNECT_URLS_SIZE_BYTES_MAX + 2
    )


@given(some.lists(some.lists(some.one_of(some.text(max_size=300), some.from_regex(r"[a-c]{1,250}:[0-9]{1,5}", fullmatch=True)))))
def test_whatever_is_said_clients_are_told_little(others: list[list[str]]) -> None:
    urls, left_out = urls_for_clients(OWN, others)
    assert urls[: len(OWN)] == OWN
    assert len(set(urls)) == len(urls)
    assert set(urls) <= {*OWN, *(url for each in others for url in each)}
    assert len(json.dumps(urls, separators=(",", ":"))) <= CONNECT_URLS_SIZE_BYTES_MAX + 2
    assert [count <= len(each) for count, each in zip(left_out, others, strict=True)] == [True] * len(others)
