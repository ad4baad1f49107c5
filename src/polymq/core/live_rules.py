"""What a principal may publish to and listen to among live messages: names allowed and denied, with wildcards.

The rules of one principal are shared by its sessions. What was said about a name is remembered, for names repeat. What a session
may answer, because it was asked, is its own (`LiveAnswers`). Who listens to more than it may hear is not refused when only a
part of that is denied: what it may not hear is left out when it comes (`may_hear`). Read next: `interest/`, which matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from polymq.core.interest.interest import Interest
from polymq.core.interest.names import collide, covers
from polymq.core.interest.targets import Target
from polymq.limits import INTEREST_CACHED_NAME_SIZE_BYTES_MAX, LIVE_ANSWERS_MAX, LIVE_ANSWERS_SIZE_BYTES_MAX, LIVE_RULES_NAMES_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polymq.core.access import LiveRules

__all__ = ["AnswerRule", "LiveAnswers", "NameRule", "PatternRules"]

_EVERYBODY: Final = Target()


@dataclass(frozen=True, slots=True)
class NameRule:
    """A pattern of names. With `queue` it is about those who listen in a queue group whose name matches that."""

    pattern: bytes
    queue: bytes = b""


@dataclass(frozen=True, slots=True)
class AnswerRule:
    """Who was asked may answer where it was asked to: so many times, for so long (None: any number, for ever)."""

    messages_max: int | None
    lifetime_ns: int | None


class _Names:
    """Some patterns, to be looked up by name; those with queue groups beside those without."""

    def __init__(self, rules: Iterable[NameRule]) -> None:
        self.rules = tuple(rules)
        self._interest = Interest()
        for rule in self.rules:
            self._interest.insert(rule.pattern, _EVERYBODY, tag=0, queue=rule.queue)

    def has(self, name: bytes) -> bool:
        """Whether a name is meant, by a pattern alone."""
        return bool(self._interest.match(name).plain())

    def has_any(self, name: bytes) -> bool:
        """Whether a name is meant, be it in a queue group."""
        return self._interest.has(name)

    def of_queues(self, name: bytes, queue: bytes) -> bool | None:
        """Whether a queue group is meant where a name is; None: no queue groups are named there."""
        groups = self._interest.match(name).queues()
        if not groups:
            return None
        # What looks like a wildcard may be a group's name itself.
        return any(queue == group or covers(group, queue) for group in groups)


class PatternRules:
    """`LiveRules` by lists of patterns: of each kind what is allowed (None: everything), but not what is denied.

    A pattern that is listened to is looked up as if it were a name: `a.*` allows to listen to `a.*`, and denies
    it. Where a list names queue groups for a name, they decide for those who come in a group, and not the pattern alone.
    Limits: LIVE_RULES_NAMES_MAX names are remembered, none above INTEREST_CACHED_NAME_SIZE_BYTES_MAX. Cost: 0.1 µs for one of them,
    else 1 µs.
    """

    def __init__(
        self,
        *,
        publish_allow: Iterable[NameRule] | None = None,
        publish_deny: Iterable[NameRule] = (),
        listen_allow: Iterable[NameRule] | None = None,
        listen_deny: Iterable[NameRule] = (),
        answers: AnswerRule | None = None,
    ) -> None:
        self._publish_allow = None if publish_allow is None else _Names(publish_allow)
        self._publish_deny = _Names(publish_deny)
        self._listen_allow = None if listen_allow is None else _Names(listen_allow)
        self._listen_deny = _Names(listen_deny)
        self._answers = answers
        self._publishable: dict[bytes, bool] = {}
        self._audible: dict[bytes, bool] = {}
        self._audible_in: dict[tuple[bytes, bytes], bool] = {}  # by name and queue group
        self._denies_queues = any(rule.queue for rule in self._listen_deny.rules)
        self.answering = False
        self.restricts_publishing = publish_allow is not None or bool(self._publish_deny.rules)

    def of_session(self, monotonic_ns: Callable[[], int]) -> LiveRules:
        """Give the rules of one session."""
        if self._answers is None or not self.restricts_publishing:
            return self
        return LiveAnswers(self, self._answers, monotonic_ns)

    def may_publish(self, name: bytes) -> bool:
        """Say whether a message of this name may be published."""
        found = self._publishable.get(name)
        if found is None:
            allow = self._publish_allow
            found = (allow is None or allow.has(name)) and not self._publish_deny.has(name)
            _remember(self._publishable, name, found)
        return found

    def may_listen(self, pattern: bytes, queue: bytes) -> bool:
        """Say whether a pattern may be listened to, alone or as a member of a queue group."""
        allow, deny = self._listen_allow, self._listen_deny
        if allow is not None:
            allowed = allow.of_queues(pattern, queue) if queue else None
            if not (allow.has(pattern) if allowed is None else allowed):
                return False
        denied = deny.of_queues(pattern, queue) if queue else None
        return not (deny.has(pattern) if denied is None else denied)

    def may_always_publish(self, name: bytes) -> bool:
        """Say whether messages of this name may be published, however many."""
        return self.may_publish(name)

    def may_hear_all(self, pattern: bytes, queue: bytes = b"") -> bool:
        """Say whether everything may be heard that comes by a pattern that may be listened to."""
        if any((queue or not rule.queue) and collide(rule.pattern, pattern) for rule in self._listen_deny.rules):
            return False
        allow = self._listen_allow
        return allow is None or any(covers(rule.pattern, pattern) for rule in allow.rules)

    def may_hear(self, name: bytes, queue: bytes = b"") -> bool:
        """Say whether a message of this name may be heard by who listens to more than it may.

        A queue group may hear what is denied neither to all nor to that group.
        """
        if queue and self._denies_queues:
            found = self._audible_in.get((name, queue))
            if found is None:
                found = self.may_hear(name) and not self._listen_deny.of_queues(name, queue)
                _remember(self._audible_in, (name, queue), found)
            return found
        found = self._audible.get(name)
        if found is None:
            allow = self._listen_allow
            found = (allow is None or allow.has_any(name)) and not self._listen_deny.has(name)
            _remember(self._audible, name, found)
        return found

    def heard(self, reply: bytes) -> None:
        """Nothing comes of it."""


class LiveAnswers:
    """The rules of one session that may answer what it is asked, beside what it may publish anyway.

    Limits: LIVE_ANSWERS_MAX questions that were not answered, with LIVE_ANSWERS_SIZE_BYTES_MAX of names; then the oldest are forgotten.
    """

    answering = True
    restricts_publishing = True

    def __init__(self, rules: PatternRules, rule: AnswerRule, monotonic_ns: Callable[[], int]) -> None:
        self._rules = rules
        self._rule = rule
        self._monotonic_ns = monotonic_ns
        # Where answers go: how many are left, and until when. The oldest come first.
        self._open: dict[bytes, tuple[int | None, int]] = {}
        self._size_bytes = 0
        self.of_session = rules.of_session
        self.may_listen = rules.may_listen
        self.may_always_publish = rules.may_publish
        self.may_hear = rules.may_hear
        self.may_hear_all = rules.may_hear_all

    def may_publish(self, name: bytes) -> bool:
        """Say whether a message of this name may be published; an answer is counted."""
        if self._rules.may_publish(name):
            return True
        found = self._open.get(name)
        if found is None:
            return False
        left, from_ns = found
        lifetime_ns = self._rule.lifetime_ns
        if lifetime_ns is not None and self._monotonic_ns() - from_ns > lifetime_ns:
            self._close(name)
            return False
        if left is not None:
            if left == 1:
                self._close(name)
            else:
                self._open[name] = left - 1, from_ns
        return True

    def heard(self, reply: bytes) -> None:
        """A message asks for an answer there. Who is asked once more has as many answers as before, from now on."""
        if self._rules.may_publish(reply):
            return
        self._close(reply)
        if len(self._open) >= LIVE_ANSWERS_MAX or self._size_bytes + len(reply) > LIVE_ANSWERS_SIZE_BYTES_MAX:
            self._forget_some()
        self._open[reply] = self._rule.messages_max, self._monotonic_ns()
        self._size_bytes += len(reply)

    def _close(self, name: bytes) -> None:
        """Expect no answer there, if one is expected."""
        if self._open.pop(name, None) is not None:
            self._size_bytes -= len(name)

    def _forget_some(self) -> None:
        """Make room: all whose time is over, and a part of the others. Cost: O(open), each time for a part of that."""
        lifetime_ns, now_ns = self._rule.lifetime_ns, self._monotonic_ns()
        size_bytes = 0
        kept: list[tuple[bytes, tuple[int | None, int]]] = []
        for name, (left, from_ns) in reversed(self._open.items()):
            size_bytes += len(name)
            if len(kept) >= LIVE_ANSWERS_MAX * 3 // 4 or size_bytes > LIVE_ANSWERS_SIZE_BYTES_MAX * 3 // 4:
                break
            if lifetime_ns is None or now_ns - from_ns <= lifetime_ns:
                kept.append((name, (left, from_ns)))
        self._open = dict(reversed(kept))
        self._size_bytes = sum(map(len, self._open))


def _remember(cache: dict[Any, bool], name: bytes | tuple[bytes, bytes], found: bool) -> None:  # the value that is kept, no switch
    """Keep an answer; a table that is full is begun anew, which is cheaper than knowing which names are the old ones."""
    if (len(name) if isinstance(name, bytes) else len(name[0]) + len(name[1])) > INTEREST_CACHED_NAME_SIZE_BYTES_MAX:
        return
    if len(cache) >= LIVE_RULES_NAMES_MAX:
        cache.clear()
    cache[name] = found
