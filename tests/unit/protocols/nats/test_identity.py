from __future__ import annotations

import base64

from polymq.protocols.nats.identity import make_nonce, make_server_id

# Of a nats-server 2.15.2 that was started once.
REAL = "NB677R63FM4WSVESPKTAHX33QVUOGZL2DYKSTLYEA2UIDZRIGYTFVKVF"


def test_an_id_is_as_a_real_servers() -> None:
    seed = base64.b32decode(REAL)[1:33]
    assert make_server_id(seed) == REAL
    assert make_server_id(bytes(32)).startswith("NAAAA")


def test_a_nonce_has_fifteen_characters_that_urls_have() -> None:
    assert make_nonce(b"\xff" * 20) == "_" * 14 + "8"
    assert len(make_nonce(bytes(11))) == 15
