"""The log's door for NATS clients: reading and following topics by requests, at a pace that who listens can keep.

A request is taken while it is being published (`LogDoor.take`), answered when everybody has had what was published with it, and
what takes longer is a `Job` (`log_jobs.py`), which goes on in the turns that follow: piece by piece, as long as little waits for whoever
listens to its subject, and while somebody does. Nobody is answered where he could neither publish nor listens himself: what is
sent on his behalf is sent by the broker, who may everything. So before each piece it is seen whether he still may. Read next:
`log_requests.py` for what is said.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from polymq import limits
from polymq.core.access import Principal
from polymq.core.interest.targets import Target
from polymq.core.live import Taker
from polymq.core.live_rules import NameRule, PatternRules
from polymq.errors import PolyMQError, Refusal, RefusalCode
from polymq.gateways.nats.log_jobs import Listing, Reading
from polymq.gateways.nats.log_requests import PATTERN, PREFIX, BadRequest, OutOfRange, answer, error_answer, parse_request
from polymq.protocols.nats.subjects import is_valid_literal
from polymq.wire.live import COLUMNS, IMPORTED, KEPT, SPARE, LiveBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.core.broker import Broker
    from polymq.core.interest.targets import Entry
    from polymq.core.live import Backlog, LiveSpace
    from polymq.core.session import Session
    from polymq.gateways.nats.log_jobs import Job
    from polymq.gateways.nats.log_requests import LogRequest
    from polymq.gateways.nats.records import NatsCodec
    from polymq.wire.live import LiveMessage

__all__ = ["LogDoor"]

# What all of them may read in a turn has at least so many parts, if there are so many.
_PARTS: Final = 4


class LogDoor(Taker):
    """The door of one namespace. A feeder of the broker.

    `routed` are the topics that clients of other servers may read, whoever they are: what those may do is not told here. None: none, and
    they are not answered. `new_id` makes names of what is followed, which nobody can guess.
    """

    def __init__(
        self, broker: Broker, space: LiveSpace, codec: NatsCodec, *, routed: Sequence[bytes] | None, new_id: Callable[[], str]
    ) -> None:
        self._broker = broker
        self._space = space
        self._codec = codec
        self._new_id = new_id
        self._routed: Session | None = None
        if routed is not None:
            rules = PatternRules(listen_allow=[NameRule(pattern) for pattern in routed])
            self._routed = broker.session(Principal("routes", space.namespace, live=rules))
        self._target = Target(self, told=routed is not None, paced=True)
        self._jobs: dict[str, Job] = {}
        # Those that have something to do, in turn; the others wait for their topic to grow, or for who does not keep up.
        self._active: OrderedDict[Job, None] = OrderedDict()
        self._waiting: dict[tuple[str, str], dict[Job, None]] = {}
        self._stalled: dict[Entry, dict[Job, None]] = {}
        space.inner.append(self._target)
        space.listen(PATTERN, self._target, tag=0)

    # -- requests --------------------------------------------------------------------------------------------------

    def take(self, batch: LiveBatch, target: Target) -> Callable[[], None] | None:
        """Note what is asked: it is answered when everybody else has had the batch."""
        publisher = self._broker.live.publisher
        session = publisher or self._routed
        if session is None:
            return None
        # What came by a stream of another namespace is no question to this one, and what nobody here has published live is only one
        # if another server has sent it: what other protocols publish comes from the log, and says that it is kept.
        unasked = IMPORTED if publisher is not None else IMPORTED | KEPT
        indexes = [index for index in target.pairs[: 2 * target.pair_count : 2] if not batch.rows[COLUMNS * index + SPARE] & unasked]
        messages = [batch.message(index) for index in indexes]
        return lambda: self._answer_all(session, messages)

    def _answer_all(self, session: Session, messages: list[LiveMessage]) -> None:
        for message in messages:
            if session.principal.namespace != self._space.namespace:
                # By a service that it imports: the reply is the import's own.
                what = "the log is read by users of its own account only, and not by way of an import"
                found: LiveMessage | None = error_answer(message.reply, Refusal(RefusalCode.FORBIDDEN, what))
            elif message.reply.startswith(PREFIX) or (message.reply and not _may_be_answered(session, message.reply)):
                continue
            else:
                found = self._answer(session, message, is_remote=session is self._routed)
            if found is not None and found.subject:
                self._publish(session, [found])

    def _answer(self, session: Session, message: LiveMessage, *, is_remote: bool) -> LiveMessage | None:
        """Do what is asked, or begin to. Behind other servers there may be more doors: what is not here is theirs."""
        to = message.reply
        try:
            request = parse_request(message)
            if request.verb == b"TOPICS":
                if to:
                    self._add(Listing(session, to, self._new_id(), request.after))
                return None
            if request.verb == b"CANCEL":
                return self._cancel(session, to, request.follow, is_remote=is_remote)
            if is_remote:
                session.partition_count(request.topic)  # raises if it is not here
            if not _may_hear(session, request.topic.encode()):
                raise Refusal(RefusalCode.FORBIDDEN)
            if request.verb == b"INFO":
                return answer(to, self._describe(session, request.topic))
            return self._begin(session, request, to)
        except PolyMQError as error:
            if is_remote and isinstance(error, Refusal) and error.code is RefusalCode.TOPIC_NOT_FOUND:
                return None
            return error_answer(to, error)

    def _describe(self, session: Session, topic: str) -> dict[str, object]:
        logs = [session.log(topic, index) for index in range(session.partition_count(topic))]
        rows = [
            {"partition": index, "start": log.start, "end": log.end, "readable": log.readable, "epoch": log.epoch, "number": log.number}
            for index, log in enumerate(logs)
        ]
        return {"topic": topic, "partitions": rows}

    def _cancel(self, session: Session, to: bytes, name: str, *, is_remote: bool) -> LiveMessage | None:
        job = self._jobs.get(name)
        if not isinstance(job, Reading) or job.owner is not session:
            return None if is_remote else error_answer(to, BadRequest("you are following nothing of that name"))
        self._end(job)
        return answer(to, {"follow": name, "next": job.next})

    def _begin(self, session: Session, request: LogRequest, reply: bytes) -> LiveMessage | None:
        """Begin to read; raises PolyMQError."""
        log = session.log(request.topic, request.partition)
        to = request.to or reply
        if not to:
            raise BadRequest("a reply subject is needed" if request.verb == b"READ" else "to, or a reply subject, is needed")
        rules = session.live
        if request.to and (not is_valid_literal(to) or to.startswith(b"$") or (rules is not None and not rules.may_always_publish(to))):
            raise BadRequest("to: expected a subject to which you may publish")
        if not self._space.interest.has(to):
            raise BadRequest("nobody listens to the subject to which the messages are to go")
        offset = request.offset
        if offset is None:
            offset = log.readable if request.verb == b"FOLLOW" else log.start
        elif not log.start <= offset <= log.readable:
            raise OutOfRange(log.start, log.readable, offset)
        reading = Reading(session, request, log, offset, to, self._new_id(), self._codec)
        self._add(reading)
        if request.verb == b"READ" or not reply:
            return None
        return answer(reply, {"follow": reading.id, "to": to.decode("utf-8", "replace"), "next": reading.next})

    def _add(self, job: Job) -> None:
        """Begin with something, if there may be one more; raises Refusal."""
        session = job.owner
        if self._limit_reached(session):
            self._end_unheard()
        if most := self._limit_reached(session):
            whose = " of yours" if most == limits.LOG_REQUESTS_PER_SESSION_MAX else ""
            raise Refusal(RefusalCode.LIMIT_REACHED, f"{most} requests{whose} are being answered already")
        self._jobs[job.id] = job
        self._active[job] = None

    def _limit_reached(self, session: Session) -> int:
        """Give the limit that stands against one more; 0: none. All clients of other servers are one session here."""
        if len(self._jobs) >= limits.LOG_REQUESTS_MAX:
            return limits.LOG_REQUESTS_MAX
        most = limits.LOG_REQUESTS_PER_SESSION_MAX
        return most if session is not self._routed and sum(job.owner is session for job in self._jobs.values()) >= most else 0

    # -- what takes longer ---------------------------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether something could go on at once: not for those who have much to receive, or wait for the disk."""
        if any(job.is_ready for job in self._active):
            return True
        return any(not self._is_slow(entry) for entry in self._stalled)

    def _is_slow(self, entry: Entry) -> bool:
        return self._broker.live.is_slow(entry, limits.LOG_REQUEST_BACKLOG_BYTES_MAX)

    def note(self) -> None:
        """Go on with those whose topic is growing."""
        if self._waiting:
            for topic in self._broker.kernel.fresh:
                for job in self._waiting.pop((topic.namespace, topic.name), ()):
                    self._active[job] = None

    def _wake(self) -> None:
        """Go on with those for whom nobody waits any more. Cost: O(those who do not keep up)."""
        for entry in [entry for entry in self._stalled if not self._is_slow(entry)]:
            for job in self._stalled.pop(entry):
                job.slow = None
                self._active[job] = None

    def show(self) -> None:
        """Go on with everything that is asked for, for a bounded time: what many listen to goes on in smaller pieces."""
        # What was committed since `note`, and will not be fresh in the next turn.
        self.note()
        self._wake()
        left = limits.LOG_REQUEST_SIZE_BYTES_PER_TURN
        part = left // max(1, min(len(self._active), _PARTS))
        backlogs: dict[bytes, Backlog | None] = {}
        looks_left = limits.LOG_REQUEST_LISTENERS_PER_TURN
        for _ in range(len(self._active)):
            job, _ = self._active.popitem(last=False)
            if not self._may_go_on(job):
                continue
            if job.to not in backlogs:
                found = self._broker.live.backlog(self._space, job.to, limits.LOG_REQUEST_BACKLOG_BYTES_MAX)
                backlogs[job.to] = found
                looks_left -= 0 if found is None else found.count
            backlog = backlogs[job.to]
            if backlog is None:
                self._end(job)
            elif backlog.slow is not None:
                job.slow = backlog.slow
                self._stalled.setdefault(backlog.slow, {})[job] = None
            else:
                left -= backlog.count * self._go_on(job, max(1, part // backlog.count))
            if left <= 0 or looks_left <= 0:
                return

    def _may_go_on(self, job: Job) -> bool:
        """Say whether what was asked for may still be had by who asked for it; if not, it is ended.

        Whoever has been told that he may not knows it; who may not have anything sent there any more, or has gone, hears nothing.
        """
        owner = job.owner
        if not self._is_here(job) or (owner.principal is not job.principal and not _may_send(owner, job)):
            self._end(job)
            return False
        try:
            if isinstance(job, Reading):
                if owner.principal is not job.principal and not _may_hear(owner, job.topic.encode()):
                    raise Refusal(RefusalCode.FORBIDDEN, "who has asked for this topic may not read it any more")
                if owner.log(job.topic, job.partition) is not job.log:
                    raise Refusal(RefusalCode.TOPIC_NOT_FOUND)
        except PolyMQError as error:
            self._fail(job, error)
            return False
        job.principal = owner.principal
        return True

    def _is_here(self, job: Job) -> bool:
        """Say whether who has asked is still connected, and a user of this namespace."""
        return job.owner in self._broker.sessions and job.owner.principal.namespace == self._space.namespace

    def _go_on(self, job: Job, size_bytes_max: int) -> int:
        """Publish what comes next, if there is something, and put the job where it belongs; gives what that cost, in bytes."""
        try:
            messages, size_bytes = job.go_on(size_bytes_max)
        except PolyMQError as error:
            self._fail(job, error)
            return 0
        if messages:
            self._publish(job.owner, messages)
        topic = job.awaits
        if job.ended:
            self._end(job)
        elif topic is None:
            self._active[job] = None
        else:
            self._waiting.setdefault(topic, {})[job] = None
        return size_bytes

    def _fail(self, job: Job, error: PolyMQError) -> None:
        self._publish(job.owner, [error_answer(job.to, error)])
        self._end(job)

    def _end(self, job: Job) -> None:
        """Forget a job, wherever it is."""
        self._jobs.pop(job.id, None)
        self._active.pop(job, None)
        if isinstance(job, Reading):
            _strike(self._waiting, job.key, job)
        if job.slow is not None:
            _strike(self._stalled, job.slow, job)

    def _end_unheard(self) -> None:
        """Forget what nobody listens to any more, or who has asked for it is gone."""
        for job in list(self._jobs.values()):
            if not self._is_here(job) or not self._space.interest.has(job.to):
                self._end(job)

    def _publish(self, session: Session, messages: list[LiveMessage]) -> None:
        """Send somebody's messages, which are not to be stored, wherever they go."""
        live = self._broker.live
        publisher, live.publisher = live.publisher, session
        try:
            self._space.publish(LiveBatch.of(messages, marks=KEPT))
        finally:
            live.publisher = publisher


def _strike(lists: dict[Any, dict[Job, None]], key: object, job: Job) -> None:
    """Take a job out of a list, if it is in it."""
    found = lists.get(key)
    if found is not None:
        found.pop(job, None)
        if not found:
            del lists[key]


def _may_hear(session: Session, name: bytes) -> bool:
    """Say whether the live messages of a name may be listened to: who may not shall not read them here."""
    rules = session.live
    return rules is None or rules.may_listen(name, b"")


def _may_send(session: Session, job: Job) -> bool:
    """Say whether somebody may still have sent something where a job sends it."""
    if job.named:
        return session.live is None or session.live.may_always_publish(job.to)
    return _may_be_answered(session, job.to)


def _may_be_answered(session: Session, name: bytes) -> bool:
    """Say whether answers may be sent to a name: who asks may publish it, or listens to it, and not just to everything."""
    rules = session.live
    if rules is None or rules.may_always_publish(name):
        return True
    entries = session.broker.live.space(session.principal.namespace).interest.match(name).plain()
    own = any(entry.target is session.live_target and entry.pattern[:1] not in b"*>" for entry in entries)
    return own and rules.may_hear(name)
