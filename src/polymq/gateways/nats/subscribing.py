"""What a NATS client may subscribe to, and why not; and where it may answer because it was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.errors import RefusalCode
from polymq.protocols.nats import problems
from polymq.protocols.nats.subjects import RESERVED_QUEUE, has_many_tokens, is_valid_subscription

if TYPE_CHECKING:
    from polymq.core.access import LiveRules
    from polymq.core.interest.targets import Target
    from polymq.protocols.nats.events import Subscribe
    from polymq.protocols.nats.settings import NatsSettings
    from polymq.wire.live import LiveBatch

__all__ = ["note_questions", "refused", "subscribe_problem"]


def refused(code: RefusalCode, event: Subscribe) -> bytes:
    """Say why there is no such subscription."""
    if code in (RefusalCode.FORBIDDEN, RefusalCode.UNAUTHENTICATED):
        return problems.subscription_forbidden(event.subject, event.queue)
    if code in (RefusalCode.LIMIT_REACHED, RefusalCode.GROUP_FULL):
        return problems.SUBSCRIPTIONS_EXCEEDED
    return problems.INVALID_SUBJECT


def subscribe_problem(event: Subscribe, rules: LiveRules | None, settings: NatsSettings, count: int) -> bytes | None:
    """Say what is wrong with a subscription of somebody who has so many; None: nothing."""
    if event.queue == RESERVED_QUEUE or not (rules is None or rules.may_listen(event.subject, event.queue)):
        return problems.subscription_forbidden(event.subject, event.queue)
    if has_many_tokens(event.subject, settings.subscription_tokens_max):
        return problems.too_many_tokens(event.subject)
    if 0 < settings.subscriptions_max <= count:
        return problems.SUBSCRIPTIONS_EXCEEDED
    return None if is_valid_subscription(event.subject) else problems.INVALID_SUBJECT


def note_questions(rules: LiveRules | None, batch: LiveBatch, target: Target) -> None:
    """Remember where a client may answer because it is being asked."""
    assert rules is not None
    for place in range(target.pair_count):
        if reply := batch.reply(target.pairs[2 * place]):
            rules.heard(reply)
