"""Invariant: no text makes the readers of nats-server's configuration files raise anything but ConfigError, loop or lose a place."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import ConfigError
from polymq.server.nats_assembly import assemble, read_document
from polymq.server.nats_keys import BLOCKS
from tests.unit.protocols.nats.conf_writer import Data, plain, read, write

PIECES = (
    *"{}[](),;:=#'\"\\$ \n\r\t/.-0aZ",
    "include b\n",
    "\n)\n",
    "$x",
    "x: 1\n",
    "key { a: [1, 2] }\n",
    '"\\x41"',
    "1kb",
    "2024-01-01T00:00:00Z",
    "yes",
    "é",
)


@pytest.mark.parametrize("seed", range(20))
def test_pieces_of_the_language(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(300):
        text, other = ("".join(random_.choices(PIECES, k=random_.randrange(30))) for _ in range(2))
        environment = {"x": "".join(random_.choices(PIECES, k=random_.randrange(8)))}
        first, again = (read(text, environment=environment, files={"b": other}) for _ in range(2))
        assert (first.problems, first.notes, plain(first.root)) == (again.problems, again.notes, plain(again.root))
        assert all(problem.partition(":")[0] in ("test.conf", "b", "$x") for problem in first.problems)


@given(st.text(max_size=200), st.text(max_size=50))
def test_any_text(text: str, variable: str) -> None:
    read(text, environment={"x": variable}, files={"b": text})


# Every key there is, and values that most of them can have: any key may stand in any block.
NAMES = st.sampled_from([*sorted({name for keys, foreign in BLOCKS.values() for name in (*keys, *foreign)}), "A", "B", "$SYS"])
PLAIN = st.sampled_from(["A", "x.>", "x.*", "y.$1", "2m", "-1s", "nats://u:p@h:1", "h:1", "auto", "", "1.3", "single"]) | st.booleans()
VALUES: st.SearchStrategy[Data] = st.recursive(
    PLAIN | st.integers(-2, 70_000) | st.floats(-2, 100).map(lambda each: round(each, 3)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_any_settings(data: dict[str, Data]) -> None:
    draft = read_document(read(write(data, lambda options: options[0])))
    with contextlib.suppress(ConfigError):
        assert assemble(draft).notes == tuple(draft.report.notes)


@pytest.mark.parametrize("seed", range(20))
def test_damaged_settings(seed: int) -> None:
    random_ = random.Random(seed)
    for _ in range(50):
        text = list(WHOLE)
        for _ in range(random_.choice((1, 1, 3, 10))):
            at = random_.randrange(len(text))
            text[at : at + random_.choice((0, 1, 1, 20))] = random_.choice(PIECES)
        draft = read_document(read("".join(text), environment={"x": "1"}))
        with contextlib.suppress(ConfigError):
            assemble(draft)


WHOLE = """
server_name: n1, listen: 127.0.0.1:4222, http: 8222
authorization { timeout: 2, default_permissions { publish: "x.>" }, users: [{ user: a, password: b }] }
accounts {
  A { exports: [{ stream: "s.>", accounts: [B] }, { service: "h.*", response: stream }], users: [{ user: c, password: d }] }
  B { imports: [{ stream: { account: A, subject: "s.x.*" }, prefix: p }, { service: { account: A, subject: "h.*" }, to: "z.$1" }] }
}
cluster { name: c, port: 6222, routes: [nats://u:p@h:1], permissions { import: { deny: a }, export: [b] }, tls { cert_file: a, key_file: b } }
tls { cert_file: a, key_file: b, timeout: 0.5, handshake_first: 50ms }
no_auth_user: a, max_payload: 1MB, ping_interval: "2m", lame_duck_duration: "30s"
"""
