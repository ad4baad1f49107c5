from __future__ import annotations

import json

import pytest

from polymq.protocols.nats.request_info import REQUEST_INFO, request_info, with_request_info

LINE = request_info({"acc": "$G"})


def test_the_line_has_what_is_known() -> None:
    line = request_info({"acc": "A", "user": "", "server": "ä\r\nX: y\ud800", "cluster": None, "name": '"'})
    assert line.startswith(b"Nats-Request-Info: {")
    assert line.endswith(b"}\r\n")
    assert line.count(b"\r\n") == 1
    assert json.loads(line.partition(b": ")[2]) == {"acc": "A", "server": "ä\r\nX: y\ud800", "name": '"'}


@pytest.mark.parametrize("block", [b"", b"NATS/1.0\r\n\r\n", b"NATS/1.0", b"garbage", b"\r\n\r\n", b"NATS/1.0 503\r\n\r\n"])
def test_where_there_are_no_headers_it_is_the_only_one(block: bytes) -> None:
    assert with_request_info(block, LINE) == b"NATS/1.0\r\n" + LINE + b"\r\n"


def test_headers_are_kept_behind_it() -> None:
    block = b"NATS/1.0\r\nNats-Required-Api-Level: 1\r\na:b\r\nA: \xff \r\n\r\n"
    assert with_request_info(block, LINE) == b"NATS/1.0\r\n" + LINE + block.removeprefix(b"NATS/1.0\r\n")


@pytest.mark.parametrize("end", [b"", b"\r\n", b"\r\n\r\n", b"\r\n\r\n\r\n", b"\n"])
def test_the_block_ends_as_it_must(end: bytes) -> None:
    assert with_request_info(b"NATS/1.0\r\na: b" + end, LINE) == b"NATS/1.0\r\n" + LINE + b"a: b\r\n\r\n"


@pytest.mark.parametrize(
    "forged",
    [
        b"Nats-Request-Info: {}",
        b"nats-request-info:{}",
        b"Nats-Request-Info : {}",
        b" \tNats-Request-Info: {}",
        b"x: y\nNats-Request-Info: {}",
        b"x: y\rNats-Request-Info: {}",
    ],
)
def test_what_a_client_says_of_itself_does_not_count(forged: bytes) -> None:
    block = b"NATS/1.0\r\na: b\r\n" + forged + b"\r\nc: d\r\n" + forged + b"\r\n\r\n"
    assert with_request_info(block, LINE) == b"NATS/1.0\r\n" + LINE + b"a: b\r\nc: d\r\n\r\n"


@pytest.mark.parametrize("blank", [b" ", b"\t ", b"\r\n", b"\n\t", b"\r\n "])
def test_it_is_a_line_of_its_own(blank: bytes) -> None:
    assert with_request_info(b"NATS/1.0\r\n" + blank + b"a: b\r\n\r\n", LINE) == b"NATS/1.0\r\n" + LINE + b"a: b\r\n\r\n"


def test_nothing_is_found_before_it() -> None:
    block = b'NATS/1.0 Nats-Request-Info: {"acc":"B"}\r\nX-Nats-Request-Info: 1\r\nY: Nats-Request-Info: 2\r\n\r\n'
    found = with_request_info(block, LINE)
    assert found.index(REQUEST_INFO) == len(b"NATS/1.0\r\n")
    # Headers of other names are left alone.
    assert found.endswith(LINE + b"X-Nats-Request-Info: 1\r\nY: Nats-Request-Info: 2\r\n\r\n")
