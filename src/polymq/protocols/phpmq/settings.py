"""What a PHPMQ server accepts: every number can be set by whoever runs it, so they travel as one value."""

from __future__ import annotations

from dataclasses import dataclass

from polymq.phpmq_limits import CONTENT_SIZE_BYTES_MAX, TTL_S_MAX, WINDOW_MAX

__all__ = ["PhpmqSettings"]


@dataclass(frozen=True, slots=True)
class PhpmqSettings:
    """`salt` goes into the check of ids: those of another data folder are not taken for ours.

    legacy:          what is dispatched to whoever has not sent anything is of the older dialect, which has no TTL
    group:           the group of each topic that is its queue
    lease_ns:        a message that is out so long is dispatched again; 0: never
    message_ns:      a message must be there as a whole so long after its first bytes
    copy_dead:       a dead letter (006) goes to a topic before it is removed
    """

    content_size_bytes_max: int = CONTENT_SIZE_BYTES_MAX
    window_max: int = 100_000
    ttl_s_max: int = TTL_S_MAX
    salt: int = 0
    legacy: bool = False
    group: str = "phpmq"
    lease_ns: int = 0
    message_ns: int = 60_000_000_000
    copy_dead: bool = False

    def __post_init__(self) -> None:
        assert 0 < self.content_size_bytes_max <= CONTENT_SIZE_BYTES_MAX
        assert 0 < self.window_max <= WINDOW_MAX
        assert 0 <= self.ttl_s_max <= TTL_S_MAX
        assert 0 <= self.salt < 1 << 64
