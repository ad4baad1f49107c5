"""Invariant: whatever a client writes into a block of headers, every reader finds our word on who asks, and finds it first.

Readers differ: nats-server looks for the name's bytes (old ones anywhere, new ones behind an end of line), Go's library reads lines
that end with LF and names in any case; Python's email parser is one more.
"""

from __future__ import annotations

import email.parser
import email.policy
import random

import pytest

from polymq.protocols.nats.request_info import request_info, with_request_info
from tests.fuzz.test_nsq import SEEDS

BLOCKS_PER_SEED = 400
PIECES = (
    *(b"NATS/1.0", b"\r\n", b"\n", b"\r", b"\r\n\r\n", b" ", b"\t", b":", b": ", b"\0", b"\xff", b"K: v", b'{"acc":"EVIL"}'),
    *(b"Nats-Request-Info", b"nats-request-info", b"NATS-REQUEST-INFO", b'Nats-Request-Info: {"acc":"EVIL"}', b"Nats-Request-", b"Info"),
)
LINE = request_info({"acc": "GOOD"})
VALUE = b'{"acc":"GOOD"}'


def old_server(block: bytes) -> bytes:
    at = block.index(b"Nats-Request-Info") + len(b"Nats-Request-Info:")
    return block[at : block.index(b"\r\n", at)].lstrip(b" ")


def by_lines(block: bytes) -> list[bytes]:
    """Every value that the name has in any case, at any end of line, blanks around it or not."""
    found = []
    for line in block.replace(b"\r", b"\n").split(b"\n"):
        key, colon, value = line.partition(b":")
        if colon and key.strip().lower() == b"nats-request-info":
            found.append(value.strip())
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_our_word_is_the_one_that_counts(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(BLOCKS_PER_SEED):
        said = b"".join(rng.choices(PIECES, k=rng.randrange(20)))
        block = with_request_info(said, LINE)
        assert block.startswith(b"NATS/1.0\r\n" + LINE)
        assert block.endswith(b"\r\n\r\n")
        assert old_server(block) == VALUE
        assert by_lines(block) == [VALUE]
        lines = block.removeprefix(b"NATS/1.0\r\n").decode("latin-1")
        assert email.parser.HeaderParser(policy=email.policy.HTTP).parsestr(lines).get_all("nats-request-info")[0] == VALUE.decode()  # type: ignore[index]
        assert len(block) <= len(said) + len(LINE) + 14
        assert with_request_info(block, LINE) == block, "doing it again changes nothing"
