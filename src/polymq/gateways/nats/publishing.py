"""What a NATS client publishes: handed on in runs, and what it is told of each message, in the order that nats-server has.

A run of messages is one batch, and its `+OK`s are one write, whatever the client has asked for. It ends only where something has to be
said in between: what is wrong with a message, or that nobody hears a question. Who is verbose and hears what it publishes itself
has each `+OK` before its message: they are written together (`write_owed`). The `+OK`s of a run of which something is stored come once
that is durable. Read next: `client.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.core.interest.spread import next_unwanted
from polymq.errors import RefusalCode
from polymq.gateways.effects import Send, SendAfterEach
from polymq.limits import LIVE_REFUSALS_TOLD_MAX, LIVE_STEPS_PER_PASS_MAX
from polymq.protocols.nats import problems
from polymq.protocols.nats.encode import (
    OK,
    encode_confirmed,
    error_line,
    messages_size_bytes,
    next_forbidden,
    next_unheard,
    no_responders,
    ok_lines,
)
from polymq.protocols.nats.subjects import publish_problem
from polymq.wire.live import COLUMNS, KEPT, REPLY_SIZE, SPARE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sized

    from polymq.core.access import LiveRules
    from polymq.core.interest.interest import Interest
    from polymq.core.interest.targets import Target
    from polymq.core.live import LiveSpace, Stored
    from polymq.core.session import Session
    from polymq.gateways.effects import Effect
    from polymq.gateways.outbox import Outbox
    from polymq.protocols.nats.encode import SidTable
    from polymq.protocols.nats.events import Publishes
    from polymq.protocols.nats.info import ClientConnect
    from polymq.wire.live import LiveBatch

__all__ = ["Publishing"]


def _commit_failed(_reason: str) -> bytes:
    """Say that something that was published is not stored, and nobody knows which. Why is in the log: it names files."""
    return error_line(problems.not_stored(b"", RefusalCode.STORE_FAILED.value))


class Publishing:
    """One client's messages. `listen_as` says what the client's own subscriptions are; `late` says that a turn has taken long enough.

    `owed` says how many `+OK`s of the run that is being handed on are not written yet.
    """

    def __init__(self, session: Session, late: Callable[[], bool]) -> None:
        self._session = session
        self._late = late
        self._verbose = self._pedantic = self._asks = False
        self._echo = True
        self._rules: LiveRules | None = None
        self._restricted = self._answering = False
        self.owed = 0
        self._run: LiveBatch | None = None
        # Of messages that will come again, because there was no time for them: how many at the beginning may be published, which has
        # been asked and counted, and how many have been confirmed.
        self._cleared = 0
        self._confirmed = 0
        # What was found wrong with the one behind those.
        self._found: tuple[list[bytes], bool] | None = None

    def listen_as(self, target: Target, sids: SidTable, subscriptions: Sized) -> None:
        """Be told where the client's own subscriptions are, and how it calls them."""
        self._target = target
        self._sids = sids
        self._subscriptions = subscriptions

    def take_connect(self, connect: ClientConnect) -> None:
        """Do as the client has asked for, by the session's rules."""
        self._verbose, self._pedantic, self._echo = connect.verbose, connect.pedantic, connect.echo
        self._asks = connect.no_responders
        self._rules = rules = self._session.live
        self._restricted = rules is not None and rules.restricts_publishing
        self._answering = rules is not None and rules.answering

    def publish(self, event: Publishes, effects: list[Effect]) -> int:
        """Hand on what a client has published, and say what is to be said of it.

        Returns how many messages are done with, at least one; the others are to come again, unless that is all.
        """
        if event.unusual or self._answering:
            return self._publish_checked(event, effects)
        done = (self._publish_allowed if self._restricted else self._hand_on)(event.batch, effects)
        self._cleared = max(0, self._cleared - done)
        return done

    def _publish_allowed(self, batch: LiveBatch, effects: list[Effect]) -> int:
        """Publish as many messages at a time as there are between those that may not be, by rules that do not count."""
        assert self._rules is not None
        first = 0
        while True:
            index = next_forbidden(batch, first, self._rules.may_publish)
            if index > first:
                part = batch if index - first == batch.count else batch.part(first, index - first)
                first += self._hand_on(part, effects)
            if first < index or first == batch.count or (first and self._late()):
                return first
            effects.append(Send(error_line(problems.publish_forbidden(batch.subject(index)))))
            first = index + 1

    def _publish_checked(self, event: Publishes, effects: list[Effect]) -> int:
        """Publish as many messages at a time as there are between those of which something is said first, or which may not be."""
        batch = event.batch
        cleared, self._cleared = self._cleared, 0
        # What it hears of itself may ask it for something, which it then may answer.
        singly = self._answering and len(self._subscriptions) and any(batch.rows[REPLY_SIZE::COLUMNS])
        first = 0
        for index in range(batch.count):
            if singly and index > first:
                first += self._hand_on(batch.part(first, index - first), effects)
                if first < index or self._late():
                    self._cleared = max(index, cleared) - first
                    return first
            if index < cleared:
                continue
            texts, dropped = self._found or self._problem(batch, index, unusual=event.unusual)
            self._found = None
            if texts:
                if index > first:
                    first += self._hand_on(batch.part(first, index - first), effects)
                if first < index:
                    self._cleared, self._found = index - first, (texts, dropped)
                    return first
                effects.extend(Send(error_line(text)) for text in texts)
                first = index + dropped
                if dropped and self._late():
                    return first
        if first < batch.count:
            first += self._hand_on(batch.part(first, batch.count - first) if first else batch, effects)
        self._cleared = max(batch.count, cleared) - first
        return first

    def _problem(self, batch: LiveBatch, index: int, *, unusual: bool) -> tuple[list[bytes], bool]:
        """Say what the client is told of a message before it is published, and whether that is dropped. To be asked once for each."""
        texts, dropped = publish_problem(batch, index, pedantic=self._pedantic) if unusual else ([], False)
        if self._restricted and self._rules is not None and not self._rules.may_publish(subject := batch.subject(index)):
            # Why else it would be dropped is not told then.
            texts[len(texts) - dropped :] = [problems.publish_forbidden(subject)]
            dropped = True
        return texts, dropped

    # -- handing on ------------------------------------------------------------------------------------------------

    def _hand_on(self, batch: LiveBatch, effects: list[Effect]) -> int:
        """Publish messages with which nothing is wrong; returns how many there was time for, at least one."""
        if not self._asks or not self._subscriptions:
            return self._confirm(batch, effects)[0]
        done = 0
        for part in self._questions_apart(batch):
            if done and self._late():
                break
            count, untaken = self._confirm(part, effects)
            done += count
            if untaken:
                self._tell_no_responders(part if count == part.count else part.part(0, count), effects)
            if count < part.count:
                break
        return done

    def _questions_apart(self, batch: LiveBatch) -> Iterator[LiveBatch]:
        """Cut a batch behind every question that nobody hears: that is told before the client has what it sent afterwards."""
        rows, first = batch.rows, 0
        if self._verbose and not self._echo:
            # Who listens may be the client itself, who does not hear it.
            questions: Iterator[int] = (index for index in range(batch.count - 1) if rows[COLUMNS * index + REPLY_SIZE])
        else:
            questions = self._unwanted(batch)
        for index in questions:
            yield batch.part(first, index + 1 - first)
            first = index + 1
        yield batch.part(first, batch.count - first) if first else batch

    def _unwanted(self, batch: LiveBatch) -> Iterator[int]:
        """Find the questions that nobody listens to, but for the last message, as they are at the time; and now and then another.

        So there are no more in a part than can be answered in a few ms, and to find them takes no longer.
        """
        space = self._space()
        index = next_unwanted(batch, space.interest, 0, space.is_wanted, steps_max=LIVE_STEPS_PER_PASS_MAX)
        while index < batch.count - 1:
            yield index
            index = next_unwanted(batch, space.interest, index + 1, space.is_wanted, steps_max=LIVE_STEPS_PER_PASS_MAX)

    def _tell_no_responders(self, batch: LiveBatch, effects: list[Effect]) -> None:
        """Answer questions that nobody has heard."""
        interest = self._interest()
        index = next_unheard(batch, 0)
        while index < batch.count:
            reply = batch.reply(index)
            entry = interest.entry_of(reply, self._target)
            if entry is not None:
                # It counts for nothing, not even for an UNSUB with a maximum.
                effects.append(Send(no_responders(reply, self._sids.sid(entry.tag), batch.subject(index))))
            index = next_unheard(batch, index + 1)

    def _confirm(self, batch: LiveBatch, effects: list[Effect]) -> tuple[int, int]:
        """Publish messages and say `+OK` to who wants it; returns how many there was time for, and how many of those nobody took."""
        if not self._verbose:
            return self._confirm_stored(batch, effects)
        if not self._subscriptions or not self._echo:
            return self._confirm_stored(batch, effects)
        if not self._session.may_keep_live:
            return self._confirm_heard(batch, effects)
        done = missed = 0
        for part, kept in self._kept_apart(batch):
            if done and self._late():
                break
            count, untaken = (self._confirm_stored if kept else self._confirm_heard)(part, effects)
            done += count
            missed += untaken
            if count < part.count:
                break
        return done, missed

    def _kept_apart(self, batch: LiveBatch) -> Iterator[tuple[LiveBatch, bool]]:
        """Cut a batch into runs of what is to be stored and what is not; alone is what is stored and the client hears itself.

        It is cut as well where it has taken long enough to find that out.
        """
        fates: dict[bytes, tuple[bool, bool]] = {}
        first, before = 0, (False, False)
        for index in range(batch.count):
            subject = batch.subject(index)
            fate = fates.get(subject)
            if fate is None:
                if index > first and self._late():
                    yield batch.part(first, index - first), before[0]
                    first = index
                kept = self._session.keeps_live(subject)
                fate = fates[subject] = kept, kept and self._hears(subject)
            if index > first and (fate != before or fate[1]):
                yield batch.part(first, index - first), before[0]
                first = index
            before = fate
        yield batch.part(first, batch.count - first) if first else batch, before[0]

    def _hears(self, subject: bytes) -> bool:
        """Say whether the client may get messages of this name."""
        interest, target = self._interest(), self._target
        if interest.entry_of(subject, target) is not None:
            return True
        return any(entry.target is target for members in interest.match(subject).queues().values() for entry in members)

    def _space(self) -> LiveSpace:
        return self._session.broker.live.space(self._session.principal.namespace)

    def _interest(self) -> Interest:
        return self._space().interest

    def _publish(self, batch: LiveBatch) -> tuple[int, int]:
        return self._session.publish_live_some(batch, None if self._echo else self._target, self._late)

    def _confirm_heard(self, batch: LiveBatch, effects: list[Effect]) -> tuple[int, int]:
        """Publish messages some of which the client may hear, each behind its `+OK`; none of them is stored."""
        before = self._confirmed
        self.owed, self._run = max(0, batch.count - before), batch
        try:
            count, untaken = self._publish(batch)
        finally:
            owed, self.owed, self._run = self.owed, 0, None
        said = max(batch.count, before) - owed
        if said < count:
            effects.append(Send(ok_lines(count - said)))
        self._confirmed = max(0, said - count)
        return count, untaken

    def write_owed(self, batch: LiveBatch, outbox: Outbox, *, headers: bool, waiting_max: int) -> bool:
        """Write what the client hears while `+OK`s are owed, each message behind its own; False, with nothing written, if too much would wait."""
        target, sids, run = self._target, self._sids, self._run
        pairs, count = target.pairs, target.pair_count
        size = messages_size_bytes(batch, pairs, count, sids) + len(OK) * self.owed
        if outbox.size_bytes + size > waiting_max:
            return False
        if batch is run:
            said = batch.count - self.owed
            self.owed = min(self.owed, batch.count - 1 - pairs[2 * count - 2])
        else:  # something else that has come of it
            outbox.write(ok_lines(self.owed))
            said, self.owed = batch.count, 0
        at = outbox.reserve(size)
        outbox.advance(encode_confirmed(outbox.data, at, batch, pairs, count, sids, headers=headers, said=said))
        return True

    # -- what is stored --------------------------------------------------------------------------------------------

    def _confirm_stored(self, batch: LiveBatch, effects: list[Effect]) -> tuple[int, int]:
        """Publish messages; from here on all that is said waits until what is stored of them is durable, `+OK`s and PONGs to come."""
        count, untaken = self._publish(batch)
        stored = self._session.broker.live.stored
        if stored is None:
            if self._verbose:
                effects.append(Send(ok_lines(count)))
            return count, untaken
        if count < batch.count:
            batch = batch.part(0, count)
        if self._verbose:
            said = _answers(batch, stored)
        else:
            said = b""
            effects.extend(Send(_refusal(name, reason)) for name, reason in stored.refusals[:LIVE_REFUSALS_TOLD_MAX])
        if stored.tickets:
            sizes = [0] * len(stored.tickets)
            sizes[-1] = len(said)
            effects.append(SendAfterEach(stored.tickets, sizes, said, _commit_failed))
        elif said:
            effects.append(Send(said))
        return count, untaken


def _refusal(name: bytes, reason: str) -> bytes:
    return error_line(problems.not_stored(name, reason))


def _answers(batch: LiveBatch, stored: Stored) -> bytes:
    """Answer each message of a verbose client: that it is handed on, and stored if it was to be, or that it is not stored."""
    if not stored.refusals:
        return ok_lines(batch.count)
    errors = {name: _refusal(name, reason) for name, reason in stored.refusals}
    rows = batch.rows
    return b"".join(OK if rows[COLUMNS * index + SPARE] & KEPT else errors.get(batch.subject(index), OK) for index in range(batch.count))
