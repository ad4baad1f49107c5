"""What a refusal is on a connection that has no words for it: the end, and the label under which it is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.errors import RefusalCode

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["REASONS"]

REASONS: Final[Mapping[RefusalCode, str]] = {
    RefusalCode.TOPIC_NAME_INVALID: "name",
    RefusalCode.GROUP_NAME_INVALID: "group",
    RefusalCode.TOPIC_NOT_FOUND: "not-found",
    RefusalCode.GROUP_NOT_FOUND: "not-found",
    RefusalCode.MESSAGE_NOT_FOUND: "not-found",
    RefusalCode.MESSAGE_NOT_LEASED: "not-found",
    RefusalCode.MESSAGE_NOT_OWNED: "not-found",
    RefusalCode.GROUP_FULL: "limit",
    RefusalCode.LIMIT_REACHED: "limit",
    RefusalCode.TOPIC_FULL: "limit",
    RefusalCode.BATCH_TOO_LARGE: "length",
    RefusalCode.DELAY_OUT_OF_RANGE: "number",
    RefusalCode.OFFSET_OUT_OF_RANGE: "number",
    RefusalCode.POLICY_INVALID: "refused",
    RefusalCode.STORE_FULL: "store",
    RefusalCode.STORE_FAILED: "store",
    RefusalCode.UNAUTHENTICATED: "forbidden",
    RefusalCode.LOGIN_EXPIRED: "forbidden",
    RefusalCode.FORBIDDEN: "forbidden",
    RefusalCode.SHUTTING_DOWN: "shutdown",
}
