"""JetStream of the cluster's other servers for clients of this one, which has none: questions on `$JS.API.>` are passed on.

To each account it is a service that the servers' own account exports: a question goes to every server that wants them there
(its leader answers, the others keep quiet), with a reply of our own and with who asks (`protocols/nats/request_info.py`). Everything
else of JetStream is what the servers with it publish and listen to in the account itself: streams, acknowledgements, `MSG.NEXT`,
direct reads. As long as no server wants such questions nobody listens here, and who asks is told so. Read next: `route_accounts.py`.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from polymq.core.interest.targets import Target
from polymq.core.live import Taker
from polymq.gateways.nats.monitoring_format import rfc3339
from polymq.gateways.nats.questions import Questions
from polymq.limits import NATS_JETSTREAM_REQUESTS_MAX
from polymq.protocols.nats.request_info import request_info, with_request_info
from polymq.wire.live import LiveBatch, LiveMessage
from polymq.wire.live_mapping import rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polymq.core.interest.targets import Entry
    from polymq.core.live import Live, LiveSpace
    from polymq.core.session import Session
    from polymq.gateways.nats.house import House
    from polymq.gateways.nats.route_accounts import RouteAccount, RouteAccounts

__all__ = ["JETSTREAM_API", "JetStreamApi"]

JETSTREAM_API: Final = b"$JS.API.>"
_PREFIX: Final = b"$JS.API."
# Wanted by the servers in the account itself, and asked often: not to be asked a second time.
_OF_THE_ACCOUNT: Final = (b"$JS.API.CONSUMER.MSG.NEXT.", b"$JS.API.DIRECT.GET.")
# As nats-server waits for answers of a service.
_ANSWER_NS: Final = 120_000_000_000


def _is_passed_on(name: bytes, _queue: bytes) -> bool:
    return not name.startswith(_OF_THE_ACCOUNT)


class _Asking(Taker):
    """One account that may ask."""

    __slots__ = ("_api", "_entry", "account", "target")

    def __init__(self, api: JetStreamApi, account: RouteAccount) -> None:
        self._api = api
        self.account = account
        # Other servers pass on what their clients ask: they are not told of this, and what they send is not meant.
        self.target = Target(self, remote=True, unsure=True)
        self.target.restrict(_is_passed_on)
        account.space.inner.append(self.target)
        account.space.hands_on = True
        self._entry: Entry | None = None

    def listen(self, *, wanted: bool) -> None:
        """Listen, or do not."""
        space = self.account.space
        if wanted and self._entry is None:
            self._entry = space.listen(JETSTREAM_API, self.target, tag=0)
        elif not wanted and self._entry is not None:
            space.leave(self._entry)
            self._entry = None

    def take(self, batch: LiveBatch, target: Target) -> Callable[[], None] | None:
        """Take questions; they are passed on when everybody else has been served."""
        picks = memoryview(array("i", target.pairs[: 2 * target.pair_count].tobytes()))
        return lambda: self._api.ask(self.account, batch, picks)

    def is_wanted(self, name: bytes) -> bool:
        """Say whether a server is there."""
        return self._api.is_there(name)


class JetStreamApi(Taker):
    """What accounts ask JetStream, and the answers. Made before there are routes.

    Limits: NATS_JETSTREAM_REQUESTS_MAX questions without an answer; then the oldest is forgotten.
    """

    def __init__(self, house: House, accounts: RouteAccounts, names: Iterable[str]) -> None:
        """`names` are the accounts that may ask; `accounts.system` is the one that is asked."""
        assert accounts.system is not None
        self._house = house
        self._live: Live = house.broker.live
        self._accounts = accounts
        self._servers: LiveSpace = accounts.system.space
        self._questions = Questions(NATS_JETSTREAM_REQUESTS_MAX, house.clock.monotonic_ns, house.random_bytes)
        self._answered = Target(self)
        self._servers.inner.append(self._answered)
        self._listens: Entry | None = None
        self._asking = [_Asking(self, accounts.by_name[name.encode()]) for name in dict.fromkeys(names)]
        accounts.system.only = frozenset((JETSTREAM_API,))
        accounts.system.changed = self._servers_changed

    def _servers_changed(self) -> None:
        """A server wants such questions from now on, or none any more."""
        wanted = self._servers.interest.has(b"$JS.API.INFO")
        for asking in self._asking:
            asking.listen(wanted=wanted)

    def take(self, batch: LiveBatch, target: Target) -> Callable[[], None] | None:
        """Take answers."""
        messages = [batch.message(target.pairs[2 * place]) for place in range(target.pair_count)]
        return lambda: self._answer(messages)

    def is_there(self, name: bytes) -> bool:
        """Say whether a server takes such questions."""
        return self._servers.is_wanted(name)

    def ask(self, account: RouteAccount, batch: LiveBatch, picks: memoryview) -> None:
        """Pass on what an account asks. While the last server is about to go nobody is there: then it stays untaken."""
        line = self._asker(account)
        replies = []
        for index in picks[::2]:
            reply = batch.reply(index)
            # An answer must not be a question again, which the asker might not be allowed to ask.
            is_answered = reply and not reply.startswith(_PREFIX)
            replies.append(self._note(account.space, reply) if is_answered else b"")
        questions = rewrite(batch, picks, marks=0, replies=replies, head=lambda block: with_request_info(block, line))
        self._questions.ask(self._servers, batch, picks, questions, replies)

    def _note(self, space: LiveSpace, reply: bytes) -> bytes:
        """Remember who asks; from the first time on the servers know where answers go, and are told so before the question."""
        if self._listens is None:
            self._listens = self._servers.listen(self._questions.pattern, self._answered, tag=0)
        return self._questions.note(space, reply, _ANSWER_NS)

    def _answer(self, messages: list[LiveMessage]) -> None:
        """Give answers to those who have asked: to each question one."""
        for message in messages:
            question = self._questions.take(message.subject)
            if question is not None:
                answer = LiveMessage(question.reply, message.payload, message.reply, message.header_size)
                question.space.publish(LiveBatch.of([answer]))

    def _asker(self, account: RouteAccount) -> bytes:
        """Say who asks: the account that counts, and what JetStream's notices show of a client."""
        name = account.name.decode()
        publisher = self._live.publisher
        info = self._house.info
        facts: dict[str, object] = {"acc": name, "server": info.server_name, "cluster": info.cluster}
        if publisher is not None:
            theirs = self._accounts.by_namespace.get(publisher.principal.namespace)
            if theirs is not None and theirs is not account:
                # It has come here by a service that one account imports from the other.
                facts |= {"acc": theirs.name.decode(), "svc": name}
            facts |= _described(publisher)
        return request_info(facts)


def _described(session: Session) -> dict[str, object]:
    """Say what is known of a client, in the words of nats-server."""
    peer = session.peer
    if peer.protocol != "nats":
        return {}
    lang, _, version = peer.user_agent.partition("/")
    return {
        "start": rfc3339(peer.connected_at_ns),
        "host": peer.remote_address.rpartition(":")[0].strip("[]"),
        "user": peer.identity,
        "name": peer.client_id,
        "lang": lang,
        "ver": version,
        "kind": "Client",
        "client_type": "nats",
    }
