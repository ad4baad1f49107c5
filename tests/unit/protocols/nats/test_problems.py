from __future__ import annotations

import pytest

from polymq.protocols.nats import problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (problems.publish_forbidden(b"a.b"), b'Permissions Violation for Publish to "a.b"'),
        (problems.reply_forbidden(b"_R_.x"), b'Permissions Violation for Publish with Reply of "_R_.x"'),
        (problems.subscription_forbidden(b"a"), b'Permissions Violation for Subscription to "a"'),
        (problems.subscription_forbidden(b"a", b"_sys_"), b'Permissions Violation for Subscription to "a" using queue "_sys_"'),
        (problems.too_many_tokens(b"a.b"), b'Permissions Violation for Subscription to "a.b", too many tokens'),
        (problems.cluster_name_conflict(b"a", b"b"), b'Rejecting connection, cluster name "a" does not match "b"'),
        (problems.wrong_gateway(b"G1"), b'Rejecting connection from gateway "G1" on the Route port'),
        (problems.unsupported_compression(b"x"), b'unsupported route compression mode "x"'),
        (problems.publish_forbidden(b'a"\xff'), b'Permissions Violation for Publish to "a\\"\\xff"'),
    ],
)
def test_the_words_are_nats_servers(text: bytes, expected: bytes) -> None:
    assert text == expected


def test_clients_find_what_they_look_for() -> None:
    # nats-py and nats.go compare in lower case.
    assert problems.STALE_CONNECTION.lower() == b"stale connection"
    assert problems.AUTH_VIOLATION.lower() == b"authorization violation"
    assert b"permissions violation" in problems.publish_forbidden(b"a").lower()
    assert problems.CONNECTIONS_EXCEEDED.lower() == b"maximum connections exceeded"


def test_no_text_ends_the_line_or_the_quotes() -> None:
    texts = [value for value in vars(problems).values() if isinstance(value, bytes)]
    assert len(texts) > 15
    for text in [*texts, problems.subscription_forbidden(b"\r\n", b"\r\n")]:
        assert not {b"\r", b"\n", b"'"} & {text[i : i + 1] for i in range(len(text))}
