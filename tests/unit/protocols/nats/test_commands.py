from __future__ import annotations

import pytest

from polymq.protocols.nats import events
from polymq.protocols.nats.commands import MISREAD, PeerKind, Verb, readers_of, verbs_of

# What each verb's line says is in test_decode.py; here is what holds for all.
MESSAGES = {Verb.PUB, Verb.HPUB, Verb.RMSG, Verb.HMSG, Verb.LMSG}
MEANINGLESS = {Verb.PING, Verb.PONG, Verb.OK}
FOR_ROUTES_ALONE = {
    *(Verb.RMSG, Verb.HMSG, Verb.LMSG, Verb.REMOTE_SUB, Verb.REMOTE_UNSUB),
    *(Verb.LEAF_SUB, Verb.LEAF_UNSUB, Verb.ACCOUNT_SUB, Verb.ACCOUNT_UNSUB),
}


def test_each_peer_has_its_verbs() -> None:
    found = {kind: {verb for verb in verbs_of(kind).values() if verb is not None} for kind in PeerKind}
    assert found[PeerKind.ROUTE] == set(Verb)
    assert found[PeerKind.CLIENT] == set(Verb) - FOR_ROUTES_ALONE


@pytest.mark.parametrize("kind", PeerKind)
def test_every_beginning_of_a_verb_is_known(kind: PeerKind) -> None:
    table = verbs_of(kind)
    for name, verb in table.items():
        assert 0 < len(name) <= 7
        if verb is not None:
            assert all(table[name[:size]] is None for size in range(1, len(name)))
    for name, verb in table.items():
        assert verb is not None or any(other.startswith(name) for other, found in table.items() if found is not None)


@pytest.mark.parametrize("kind", PeerKind)
@pytest.mark.parametrize("omitted", [False, True])
def test_every_line_is_read_or_refused(kind: PeerKind, omitted: bool) -> None:
    readers = readers_of(kind)
    verbs = {verb for verb in verbs_of(kind).values() if verb is not None} - MESSAGES - MEANINGLESS
    for verb in verbs:
        for text in (b"", b"a", b"a b", b"a b c", b"a b c 4", b"a b c d 5", b"{}", b"a b c d e f"):
            event = readers[verb](text, omitted)
            assert event is None or isinstance(event, events.Event)
        if verb not in {Verb.CONNECT, Verb.INFO, Verb.ERR}:
            assert readers[verb](b"a\rb", omitted) == MISREAD


def test_secrets_of_connect_stay_in_it() -> None:
    assert readers_of(PeerKind.CLIENT)[Verb.CONNECT](b'{"pass":"\r"}', False) == events.Connect(b'{"pass":"\r"}')
