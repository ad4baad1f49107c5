from __future__ import annotations

import pytest

from polymq.protocols.nsq import problems
from polymq.protocols.nsq.states import Command

ID = b"0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (problems.not_in_flight(Command.FIN, ID), b"E_FIN_FAILED FIN 0123456789abcdef failed ID not in flight"),
        (problems.not_in_flight(Command.REQ, ID), b"E_REQ_FAILED REQ 0123456789abcdef failed ID not in flight"),
        (problems.not_owned(Command.TOUCH, ID), b"E_TOUCH_FAILED TOUCH 0123456789abcdef failed client does not own message"),
        (problems.publish_failed(Command.PUB, b"exiting"), b"E_PUB_FAILED PUB failed exiting"),
        (problems.publish_failed(Command.MPUB, b"exiting"), b"E_MPUB_FAILED MPUB failed exiting"),
        (problems.channel_full(b"t", b"c", 3), b"E_SUB_FAILED SUB failed consumers for t:c exceeds limit of 3"),
        (problems.insufficient(Command.SUB), b"E_INVALID SUB insufficient number of parameters"),
        (problems.insufficient(Command.FIN, b"params"), b"E_INVALID FIN insufficient number of params"),
        (problems.wrong_channel(b"b@d"), b'E_BAD_CHANNEL SUB channel name "b@d" is not valid'),
        (problems.tls_required(b"NOP"), b"E_INVALID cannot NOP in current state (TLS required)"),
        (problems.auth_first(Command.SUB), b"E_AUTH_FIRST AUTH required before SUB"),
        (problems.unauthorized(Command.SUB, b"t", b"b"), b'E_UNAUTHORIZED AUTH failed for SUB on "t" "b"'),
        (problems.unauthorized(Command.PUB, b"nok", b""), b'E_UNAUTHORIZED AUTH failed for PUB on "nok" ""'),
        (problems.AUTH_FAILED, b"E_AUTH_FAILED AUTH failed"),
    ],
)
def test_words_that_the_decoder_does_not_use(text: bytes, expected: bytes) -> None:
    """The others are compared where they arise, in test_decode.py and test_golden.py."""
    assert text == expected
