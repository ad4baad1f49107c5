"""Which names NATS has for subjects, which of them subscribe to many, and which are the servers' own.

A subject is tokens between dots, none of them empty. In a subscription the token `*` stands for any one token, and
`>` as the last one for one or more; as part of a token both are ordinary characters. Control lines are cut at blanks,
so no subject has any. Observed on nats-server 2.9.10.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from polymq.protocols.nats import problems

if TYPE_CHECKING:
    from polymq.wire.live import LiveBatch

__all__ = [
    "RESERVED_QUEUE",
    "has_many_tokens",
    "has_wildcards",
    "is_valid_literal",
    "is_valid_reply",
    "is_valid_subscription",
    "publish_problem",
]

# A queue group of this name is the servers' own.
RESERVED_QUEUE: Final = b"_sys_"

_BLANK: Final = re.compile(rb"[ \t\r\n]")
# What servers put in place of a reply when it crosses accounts or clusters; clients may neither ask for answers there
# nor, where only servers send, publish there. Raft groups got theirs in 2.11.
_REPLIES_RESERVED: Final = re.compile(rb"_R_\.|\$JS\.ACK\..|_GR_\..", re.DOTALL)
_SUBJECTS_RESERVED: Final = re.compile(rb"_GR_\..|\$NRG\.", re.DOTALL)


def is_valid_subscription(subject: bytes) -> bool:
    """Say whether SUB may name this subject, wildcards or not."""
    tokens = subject.split(b".")
    return b"" not in tokens and b">" not in tokens[:-1] and not _BLANK.search(subject)


def is_valid_literal(subject: bytes) -> bool:
    """Say whether a pedantic connection may publish to this subject: no empty tokens, no wildcards."""
    tokens = subject.split(b".")
    return not {b"", b"*", b">"}.intersection(tokens) and not _BLANK.search(subject)


def is_valid_reply(subject: bytes) -> bool:
    """Say whether a client may ask for answers there: a literal subject, and none that only servers put in place of one."""
    return is_valid_literal(subject) and not _REPLIES_RESERVED.match(subject)


def has_wildcards(subject: bytes) -> bool:
    """Say whether a valid subscription can match more than the one subject that it spells."""
    return subject == b">" or subject.endswith(b".>") or b"*" in subject.split(b".")


def has_many_tokens(subject: bytes, tokens_max: int) -> bool:
    """Say whether a subscription has more tokens than the server allows; 0 allows any number."""
    return 0 < tokens_max <= subject.count(b".")


def publish_problem(batch: LiveBatch, index: int, *, pedantic: bool) -> tuple[list[bytes], bool]:
    """Say what a client is told about one message that it publishes, and whether the message is to be dropped.

    For batches whose event says that some name is unusual. A pedantic complaint comes with the control line, before
    anything else, and leaves the message alone.
    """
    subject = batch.subject(index)
    texts = [problems.INVALID_PUBLISH_SUBJECT] if pedantic and not is_valid_literal(subject) else []
    if _SUBJECTS_RESERVED.match(subject):
        return [*texts, problems.publish_forbidden(subject)], True
    reply = batch.reply(index)
    if _REPLIES_RESERVED.match(reply):
        return [*texts, problems.reply_forbidden(reply)], True
    return texts, False
