from __future__ import annotations

import pytest

from polymq.core.access import ANONYMOUS, Principal
from polymq.gateways.contract import Peer
from polymq.gateways.nats.logins import NatsUser, OpenDoor, UserLogins
from polymq.gateways.nats.relogin import judge
from polymq.protocols.nats import problems
from polymq.protocols.nats.info import ClientConnect

ME = Principal("me")


def logins(name: str, secret: str, namespace: str = "") -> UserLogins:
    return UserLogins([NatsUser(Principal(name, namespace), name, secret)], digest_key=b"k")


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (logins("me", "p"), ME),
        (logins("me", "p", "A"), b""),
        (logins("other", "p"), b""),
        (logins("me", "q"), problems.AUTH_VIOLATION),
        (logins("me", "$2a$04$hash"), problems.AUTH_VIOLATION),
        (OpenDoor(), ANONYMOUS),
    ],
)
def test_who_is_connected_stays_or_goes(now: UserLogins | OpenDoor, expected: Principal | bytes) -> None:
    assert judge(now, ME, ClientConnect(user="me", password="p"), "", Peer("192.0.2.1", 1), None) == expected
