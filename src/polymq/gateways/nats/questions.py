"""Questions that are asked elsewhere with a reply of our own, and where their answers go: for services of other accounts.

Who answers sees `_R_.<prefix>.<token>` and nothing of who asks; an answer is matched by that name. Both parts are random, so
that nobody answers who was not asked. Read next: `imports.py`, `jetstream_api.py`.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.limits import NATS_QUESTIONS_SIZE_BYTES_MAX
from polymq.protocols.nats.encode import next_unheard
from polymq.wire.live_mapping import note_taken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.core.live import LiveSpace
    from polymq.wire.live import LiveBatch

__all__ = ["Question", "Questions"]

_REPLY_RANDOM_BYTES: Final = 9
_TOKEN_SIZE: Final = 12  # in base 64
_REPLIES: Final = b"_R_."


@dataclass(slots=True)
class Question:
    """Where the answer goes: a subject of a space."""

    space: LiveSpace
    reply: bytes
    until_ns: int


class Questions:
    """Those that have no answer yet.

    Limits: `count_max`, and NATS_QUESTIONS_SIZE_BYTES_MAX of replies; then the oldest is forgotten. Those whose time is over go when others come.
    """

    def __init__(self, count_max: int, monotonic_ns: Callable[[], int], random_bytes: Callable[[int], bytes]) -> None:
        self._count_max = count_max
        self._monotonic_ns = monotonic_ns
        self._random_bytes = random_bytes
        self._open: dict[bytes, Question] = {}  # by the reply that is asked for; the oldest come first
        self._size_bytes = 0  # of the replies of those who asked
        self._prefix = _REPLIES + self._random_token() + b"."

    def __len__(self) -> int:
        return len(self._open)

    @property
    def pattern(self) -> bytes:
        """Where all answers come."""
        return self._prefix + b">"

    def _random_token(self) -> bytes:
        return base64.urlsafe_b64encode(self._random_bytes(_REPLY_RANDOM_BYTES))

    def note(self, space: LiveSpace, reply: bytes, lifetime_ns: int) -> bytes:
        """Remember who asks, and give a reply of our own."""
        return self.note_all(space, [reply], lifetime_ns)[0]

    def note_all(self, space: LiveSpace, replies: Sequence[bytes], lifetime_ns: int) -> list[bytes]:
        """Remember all who want an answer, and give each a reply of our own; b"" to others. Cost: 1 µs for each."""
        until_ns = self._monotonic_ns() + lifetime_ns
        tokens = base64.urlsafe_b64encode(self._random_bytes(_REPLY_RANDOM_BYTES * len(replies)))
        prefix, questions = self._prefix, self._open
        found: list[bytes] = []
        at = 0
        for reply in replies:
            if not reply:
                found.append(b"")
                continue
            self._make_room(len(reply), until_ns - lifetime_ns)
            ours = prefix + tokens[at : at + _TOKEN_SIZE]
            at += _TOKEN_SIZE
            questions[ours] = Question(space, reply, until_ns)
            self._size_bytes += len(reply)
            found.append(ours)
        return found

    def _make_room(self, size_bytes: int, now_ns: int) -> None:
        """Forget those whose time is over, and as many more as there has to be room for."""
        while self._open:
            oldest = next(iter(self._open))
            fits = len(self._open) < self._count_max and self._size_bytes + size_bytes <= NATS_QUESTIONS_SIZE_BYTES_MAX
            if fits and self._open[oldest].until_ns > now_ns:
                break
            self.forget(oldest)

    def ask(self, space: LiveSpace, asked: LiveBatch, picks: memoryview, questions: LiveBatch, replies: Sequence[bytes]) -> None:
        """Publish what `rewrite` has made of the picks of `asked`, with these replies; what nobody hears is forgotten, and stays untaken there."""
        if space.publish(questions):
            index = next_unheard(questions, 0)
            while index < questions.count:
                self.forget(replies[index])
                index = next_unheard(questions, index + 1)
        note_taken(asked, picks, questions)

    def forget(self, ours: bytes) -> None:
        """Expect no answer any more: nobody was there to be asked, or it takes too long."""
        question = self._open.pop(ours, None)
        if question is not None:
            self._size_bytes -= len(question.reply)

    def take(self, ours: bytes, *, again_ns: int = 0) -> Question | None:
        """Say whose answer has come; None: it is too late, or nobody asked. With `again_ns` there may be another within that time."""
        question = self._open.get(ours)
        if question is None:
            return None
        now_ns = self._monotonic_ns()
        late = question.until_ns < now_ns
        self.forget(ours)
        if late:
            return None
        if again_ns:
            # It goes on, so it is among the youngest again.
            question.until_ns = now_ns + again_ns
            self._open[ours] = question
            self._size_bytes += len(question.reply)
        return question
