"""What the interest has to agree with: names and patterns compared token by token, everything looked at every time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from polymq.core.interest.spread import spread_some
from polymq.wire.live import COLUMNS, SPARE, LiveBatch, LiveMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from polymq.core.interest.interest import Interest
    from polymq.core.interest.targets import Target
    from polymq.core.ports import Random

UNBOUNDED = 1 << 62

# Few tokens, so that they meet; those that only look like wildcards are among them.
TOKENS = (b"a", b"b", b"ab", b"foo*", b"*b", b">x", b"a>")
name_tokens = st.sampled_from((*TOKENS, b"*", b">"))
pattern_tokens = st.sampled_from((*TOKENS, b"*", b"*"))
names = st.lists(name_tokens, min_size=1, max_size=4).map(b".".join)
patterns = st.builds(
    lambda tokens, rest: b".".join([*tokens, b">"] if rest or not tokens else tokens),
    st.lists(pattern_tokens, max_size=4),
    st.booleans(),
)


def brute_match(pattern: bytes, name: bytes) -> bool:
    """Compare one name with one legal pattern."""
    wanted, given = pattern.split(b"."), name.split(b".")
    if b"" in given:
        return False
    if wanted[-1] == b">":
        wanted.pop()
        if len(given) <= len(wanted):
            return False
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(one in (b"*", other) for one, other in zip(wanted, given, strict=True))


def node_count(live_patterns: Iterable[bytes]) -> int:
    """Count the beginnings of patterns, whole ones included."""
    return len({tuple(pattern.split(b".")[: count + 1]) for pattern in live_patterns for count in range(pattern.count(b".") + 1)})


def batch_of(*subjects: bytes, queues: Sequence[bytes] = (), account: bytes = b"") -> LiveBatch:
    """Make a batch of empty messages."""
    texts = [*queues, *[b""] * (len(subjects) - len(queues))]
    return LiveBatch.of(
        [LiveMessage(subject, b"", queues=text, account=account) for subject, text in zip(subjects, texts, strict=True)],
    )


def pairs_of(target: Target) -> list[tuple[int, int]]:
    """Copy a target's pairs out."""
    flat = target.pairs.tolist()[: 2 * target.pair_count]
    return list(zip(flat[::2], flat[1::2], strict=True))


def marked(batch: LiveBatch) -> list[int]:
    """List the messages that nobody took, as the batch has it."""
    return [index for index in range(batch.count) if batch.rows[COLUMNS * index + SPARE]]


def spread(batch: LiveBatch, interest: Interest, sender: Target | None, touched: list[Target], random: Random) -> int:
    """Spread a whole batch; returns how many messages nobody took."""
    first = untaken = 0
    while first < batch.count:
        first, more, _ = spread_some(batch, interest, sender, touched, random, first=first, steps_max=UNBOUNDED)
        untaken += more
    return untaken


def drop(target: Target, count_max: int) -> bool:
    """Remove so many entries of a closed target, as `Live.tick` does; True if there are more."""
    assert target.closed
    for entry in target.entries[: -count_max - 1 : -1]:
        assert entry.interest is not None
        entry.interest.remove(entry)
    return bool(target.entries)
