"""Streams and services of one account that another one imports; what is heard was compared with nats-server 2.15.2 (interop)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.core.access import Principal
from polymq.core.interest.targets import KEEPS_LOCAL, KEEPS_ROUTED, Target
from polymq.core.live_store import Archives, Capture
from polymq.gateways.nats import imports
from polymq.gateways.nats.imports import ImportRule, Imports, Shape, convert
from polymq.gateways.nats.logins import NatsUser, UserLogins
from polymq.gateways.nats.records import NatsCodec
from polymq.wire.live import LiveBatch, LiveMessage
from tests.unit.core.interest.brute import brute_match
from tests.unit.gateways.nats.client_world import Guest, NatsWorld

if TYPE_CHECKING:
    from polymq.core.live import LiveSpace

SECOND_NS = 1_000_000_000
tokens = st.sampled_from((b"a", b"b", b"c"))


class Counting:
    """Random bytes that are all different."""

    def __init__(self) -> None:
        self.next = 0

    def __call__(self, size: int) -> bytes:
        first = self.next
        self.next += size
        return b"".join((first + at + 1).to_bytes(9, "big") for at in range(0, size, 9))


class Accounts(NatsWorld):
    """A world with accounts A, B and C, and imports between them."""

    def __init__(self, *rules: ImportRule) -> None:
        super().__init__(UserLogins([NatsUser(Principal(name, name), name) for name in "ABC"], digest_key=b"k"))
        self.imports = Imports(self.broker.live, rules, self.clock.monotonic_ns, Counting())

    def of(self, account: str, *said: bytes) -> Guest:
        """Somebody of an account."""
        options = b'"verbose":false,"pedantic":false,"headers":true,"no_responders":true'
        return self.guest(b'CONNECT {"user":"%b",%b}\r\n' % (account.encode(), options), *said)

    def listened(self, account: str) -> int:
        return self.broker.live.space(account).interest.count


def stream(subject: bytes, to: bytes, *, origin: str = "A", namespace: str = "B") -> ImportRule:
    return ImportRule(False, origin, subject, namespace, to)


def service(
    subject: bytes, to: bytes, *, origin: str = "A", namespace: str = "B", response_type: str = "single", response_ns: int = SECOND_NS
) -> ImportRule:
    return ImportRule(True, origin, subject, namespace, to, response_type, response_ns)


# -- subjects ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "there", "wanted", "made"),
    [
        (b"p.a.*", b"a.*", b"p.a.x", b"a.x"),
        (b"p.a.*", b"a.*", b"p.>", b"a.*"),
        (b"p.a.*", b"a.*", b">", b"a.*"),
        (b"p.a.*", b"a.*", b"*.*.x", b"a.x"),
        (b"p.a.*", b"a.*", b"p.b.*", None),
        (b"p.a.*", b"a.*", b"p.a", None),
        (b"p.a.*", b"a.*", b"p.a.b.c", None),
        (b"p.>", b">", b"p.x.*.>", b"x.*.>"),
        (b"p.>", b">", b"p", None),
        (b"p.>", b">", b"p.*", b"*"),
        (b"$2.x.$1", b"*.*", b"one.x.two", b"two.one"),
        (b"$2.x.$1", b"*.*", b"one.>", b"*.one"),
        (b"plain", b"other", b"plain", b"other"),
        (b"plain", b"other", b"*", b"other"),
    ],
)
def test_what_is_wanted_here_is_listened_to_there(here: bytes, there: bytes, wanted: bytes, made: bytes | None) -> None:
    assert convert(Shape(here), Shape(there), wanted) == made


@st.composite
def mappings(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A subject, and what it is called elsewhere."""
    found = draw(st.lists(st.sampled_from((b"a", b"b", b"*", b"*")), min_size=1, max_size=4))
    numbers = [b"$%d" % (number + 1) for number in range(found.count(b"*"))]
    target = draw(st.permutations([*numbers, *draw(st.lists(tokens, max_size=2))])) or [b"t"]
    rest = [b">"] if draw(st.booleans()) else []
    return b".".join([*found, *rest]), b".".join([*target, *rest])


patterns = st.builds(
    lambda found, rest: b".".join([*found, *rest]),
    st.lists(st.sampled_from((b"a", b"b", b"*")), min_size=1, max_size=5),
    st.sampled_from(([], [b">"])),
)


@given(mappings(), patterns, st.lists(tokens, min_size=1, max_size=6))
def test_a_name_goes_where_it_is_wanted_and_comes_back(mapping: tuple[bytes, bytes], wanted: bytes, found: list[bytes]) -> None:
    there, here = Shape(mapping[0]), Shape(mapping[1])
    name = b".".join(found)
    if not brute_match(there.pattern, name):
        return
    shown = here.write(*there.read_name(name))
    assert brute_match(here.pattern, shown)
    assert there.write(*here.read_name(shown)) == name
    narrowed = convert(here, there, wanted)
    if brute_match(wanted, shown):
        assert narrowed is not None
        assert brute_match(narrowed, name)
    else:
        assert narrowed is None or not brute_match(narrowed, name)


# -- streams -----------------------------------------------------------------------------------------------------------


def test_a_stream_is_heard_under_its_name_here() -> None:
    world = Accounts(stream(b"news.*", b"from.a.$1"))
    reader, other, writer = world.of("B", b"SUB from.> 1\r\n"), world.of("C", b"SUB > 1\r\n"), world.of("A")
    writer.say(b"HPUB news.x re.ply 12 14\r\nNATS/1.0\r\n\r\nhi\r\nPUB other 1\r\nx\r\n")
    assert reader.heard() == b"HMSG from.a.x 1 re.ply 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    assert other.heard() == b""
    reader.say(b"PUB from.a.x 1\r\nx\r\n")
    assert writer.heard() == b""


def test_a_stream_is_listened_to_as_long_as_somebody_wants_it() -> None:
    told: list[tuple[str, bytes, bytes]] = []

    class Watcher:
        def interest_changed(self, space: LiveSpace, pattern: bytes, queue: bytes) -> None:
            told.append((space.namespace, pattern, queue))

    world = Accounts(stream(b"news.>", b"a.>"))
    world.broker.live.watchers.append(Watcher())
    asking = world.of("A", b"SUB inbox 9\r\n")
    assert b"503" in asking.say(b"PUB news.x inbox 0\r\n\r\n")
    one, two = world.of("B"), world.of("B")
    del told[:]
    one.say(b"SUB a.x 1\r\n")
    assert ("A", b"news.x", b"") in told, "other servers hear of it"
    two.say(b"SUB a.x 1\r\nSUB elsewhere 2\r\n")
    assert world.listened("A") == 2
    one.say(b"UNSUB 1\r\n")
    assert world.listened("A") == 2
    two.say(b"UNSUB 1\r\n")
    assert world.listened("A") == 1
    assert b"503" in asking.say(b"PUB news.x inbox 0\r\n\r\n")


def test_a_message_comes_once_for_each_subscription_however_many_patterns_want_it() -> None:
    world = Accounts(stream(b"news.*", b"news.*"))
    reader, writer = world.of("B", b"SUB news.x 1\r\nSUB news.* 2\r\nSUB > 3\r\nSUB news.x 4\r\n"), world.of("A")
    writer.say(b"PUB news.x 1\r\nm\r\n")
    said = reader.heard()
    assert sorted(said[:-2].replace(b"\r\nm", b"").split(b"\r\n")) == [b"MSG news.x %d 1" % number for number in (1, 2, 3, 4)]


def test_queue_groups_of_both_accounts_are_one_group_to_a_stream() -> None:
    """As with nats-server: a member of the group here stands in the group of the same name there."""
    world = Accounts(stream(b"work", b"work"))
    here = [world.of("B", b"SUB work q 1\r\n") for _ in range(2)]
    there, plain, writer = world.of("A", b"SUB work q 1\r\n"), world.of("B", b"SUB * 1\r\n"), world.of("A")
    writer.say(b"PUB work 1\r\nm\r\n" * 300)
    shares = [guest.heard().count(b"MSG") for guest in (*here, there)]
    assert sum(shares) == 300
    assert all(share > 50 for share in shares)
    assert plain.heard().count(b"MSG") == 300
    for guest in here:
        guest.say(b"UNSUB 1\r\n")
    writer.say(b"PUB work 1\r\nm\r\n" * 10)
    assert there.heard().count(b"MSG") == 10


@pytest.mark.parametrize("routed", [False, True])
def test_what_came_by_a_stream_is_no_part_of_the_streams_of_here(routed: bool) -> None:
    """As with nats-server: what is exported is what is published in an account, and not what it has of others."""
    world = Accounts(stream(b"x", b"y"), stream(b"y", b"z", origin="B", namespace="C"))
    reader, own, other, writer = world.of("C", b"SUB z 1\r\nSUB z q 2\r\n"), world.of("B"), world.of("B"), world.of("A", b"SUB in 1\r\n")
    assert b"503" in writer.say(b"PUB x in 0\r\n\r\n"), "so nobody asks for it"
    own.say(b"SUB y 1\r\nSUB y q 2\r\n")
    batch = LiveBatch.of([LiveMessage(b"x", b"m", queues=b"q")] * 50)
    if routed:
        world.broker.live.space("A").publish(batch, Target(remote=True))
    else:
        writer.say(b"PUB x 1\r\nm\r\n" * 50)
    assert own.heard().count(b"MSG") == 100, "and a group that both have loses nothing to it"
    assert reader.heard() == b""
    other.say(b"PUB y 1\r\nm\r\n")
    assert reader.heard().count(b"MSG z 1 1") == 1
    reader.say(b"UNSUB 1\r\nUNSUB 2\r\n")
    own.say(b"UNSUB 1\r\nUNSUB 2\r\n")
    assert world.listened("A") == 1
    assert world.listened("B") == 0


def test_two_accounts_import_the_same() -> None:
    world = Accounts(stream(b"x.>", b"b.>"), stream(b"x.>", b"c.>", namespace="C"), stream(b"x.*", b"d.$1"))
    one, two, writer = world.of("B", b"SUB *.y 1\r\nSUB b.> q 2\r\n"), world.of("C", b"SUB c.y 1\r\nSUB c.> q 2\r\n"), world.of("A")
    writer.say(b"PUB x.y 1\r\nm\r\n" * 50)
    heard = one.heard() + two.heard()
    assert [heard.count(b"MSG %b" % each) for each in (b"b.y 1", b"d.y 1", b"c.y 1")] == [50, 50, 50]
    assert heard.count(b"MSG b.y 2") + heard.count(b"MSG c.y 2") == 50, "one group"


def test_what_listens_within_the_broker_is_sent_no_stream() -> None:
    """An archive of what routes bring has its own account's messages, and asks no other for more."""
    world = Accounts(stream(b"x.>", b"x.>"))
    asking = world.of("A", b"SUB in 1\r\n")
    space = world.broker.live.space("B")
    entry = space.listen(b"x.>", Target(keeps=KEEPS_LOCAL | KEEPS_ROUTED), tag=0)
    assert (space.interest.local_count(b"x.>"), space.guest_count(b"x.>", b"")) == (1, 0)
    assert b"503" in asking.say(b"PUB x.y in 0\r\n\r\n")
    guest = world.of("B", b"SUB x.> 1\r\n")
    asking.say(b"PUB x.y 0\r\n\r\n")
    assert guest.heard().count(b"MSG x.y") == 1
    assert space.guest_count(b"x.>", b"") == 1
    space.leave(entry)
    assert (space.interest.local_count(b"x.>"), space.guest_count(b"x.>", b"")) == (1, 1)
    assert space._within == {}


def test_what_is_imported_is_stored_where_it_was_published() -> None:
    world = Accounts(stream(b"x", b"x"), service(b"sum", b"sum"))
    capture = Capture((b">",), KEEPS_LOCAL | KEEPS_ROUTED, private=(b"_R_.",))
    Archives(world.broker, NatsCodec(), capture)
    a, b = world.of("A", b"SUB sum 1\r\nSUB in 2\r\n"), world.of("B", b"SUB x 1\r\nSUB in 2\r\n")
    a.say(b"PUB x 1\r\nm\r\n")
    b.say(b"PUB sum in 1\r\nm\r\n")
    a.say(b"PUB %b 1\r\n!\r\n" % asked(world, a))
    assert b.heard() == b"MSG in 2 1\r\n!\r\n"
    assert sorted(world.broker.catalogue.topics) == [("A", "x"), ("B", "sum")]


def test_who_leaves_takes_what_was_listened_to_along() -> None:
    world = Accounts(stream(b"x.>", b"x.>"))
    reader = world.of("B", b"".join(b"SUB x.%d 1%d\r\nSUB x.%d q 2%d\r\n" % (n, n, n, n) for n in range(10)))
    assert world.listened("A") == 20
    reader.say(b"BAD\r\n")
    world.broker.tick()
    assert world.listened("A") == 0


# -- services ----------------------------------------------------------------------------------------------------------


def asked(world: Accounts, responder: Guest) -> bytes:
    """The reply of the only question that has come."""
    line = responder.heard().split(b"\r\n")[0].split(b" ")
    assert line[0] == b"HMSG"
    return line[3]


def told(*facts: bytes) -> bytes:
    """The headers that a service gets with a question."""
    return b"NATS/1.0\r\nNats-Request-Info: {%b}\r\n\r\n" % b",".join(facts)


def test_a_service_is_asked_and_answers() -> None:
    world = Accounts(service(b"sum.*", b"calc.$1"))
    responder, asking, other = world.of("A", b"SUB sum.> 1\r\n"), world.of("B", b"SUB in.> 1\r\n"), world.of("A", b"SUB in.> 1\r\n")
    assert asking.say(b"PUB calc.x in.1 2\r\nhi\r\n") == b""
    reply = asked(world, responder)
    assert reply.startswith(b"_R_.")
    responder.say(b"PUB %b 2\r\nho\r\nPUB %b 5\r\nagain\r\n" % (reply, reply))
    assert asking.heard() == b"MSG in.1 1 2\r\nho\r\n", "one answer to one question"
    assert other.heard() == b""
    asking.say(b"PUB calc.x 2\r\nhi\r\n")
    assert responder.heard() == b"HMSG sum.x 1 44 46\r\n" + told(b'"acc":"B"') + b"hi\r\n", "without a reply"


def test_a_service_that_nobody_gives_has_no_responders() -> None:
    world = Accounts(service(b"sum", b"calc"))
    asking = world.of("B", b"SUB in.> 1\r\n")
    said = asking.say(b"PUB calc in.1 2\r\nhi\r\n")
    assert said == b"HMSG in.1 1 36 36\r\nNATS/1.0 503\r\nNats-Subject: calc\r\n\r\n\r\n"
    assert asking.say(b"PUB calc 2\r\nhi\r\n") == b""


def chained() -> tuple[Accounts, Guest, Guest, Guest]:
    """C asks B, who asks A; somebody of each."""
    world = Accounts(service(b"svc.*", b"mine.*"), service(b"mine.*", b"chain.*", origin="B", namespace="C"))
    return world, world.of("A"), world.of("B", b"SUB in.> 1\r\n"), world.of("C", b"SUB in.> 1\r\n")


def unheard(sid: bytes, subject: bytes, reply: bytes = b"in.1") -> bytes:
    """What is said when nobody listens."""
    headers = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % subject
    return b"HMSG %b %b %d %d\r\n%b\r\n" % (reply, sid, len(headers), len(headers), headers)


@pytest.mark.parametrize("queue", [b"", b" q"])
def test_a_question_that_somebody_has_here_is_heard(queue: bytes) -> None:
    world, _, here, _ = chained()
    responder = world.of("B", b"SUB mine.x%b 1\r\n" % queue)
    assert here.say(b"PUB mine.x in.1 0\r\n\r\n") == b""
    assert responder.heard() == b"MSG mine.x 1 in.1 0\r\n\r\n"


def test_who_answers_in_the_middle_of_a_chain_is_heard() -> None:
    world, _, _, asking = chained()
    responder = world.of("B", b"SUB mine.x 1\r\n")
    assert asking.say(b"PUB chain.x in.1 0\r\n\r\n") == b""
    responder.say(b"PUB %b 2\r\nhi\r\n" % asked(world, responder))
    assert asking.heard() == b"MSG in.1 1 2\r\nhi\r\n"


def test_what_nobody_of_a_chain_hears_is_named_as_it_was_asked() -> None:
    _, _, _, asking = chained()
    assert asking.say(b"PUB chain.x in.1 0\r\n\r\n") == unheard(b"1", b"chain.x")


def test_that_nobody_is_there_is_told_to_the_asker_alone_and_counts_for_nothing() -> None:
    world, *_ = chained()
    others, limited = world.of("B", b"SUB in.> 9\r\n"), world.of("B", b"SUB in.x 1\r\nUNSUB 1 1\r\n")
    for options in (b'"headers":false', b'"headers":true,"no_responders":false'):
        asking = world.guest(b'CONNECT {"user":"B","verbose":false,"pedantic":false,%b}\r\nSUB in.x 1\r\n' % options)
        assert asking.say(b"PUB mine.n in.x 0\r\n\r\n") == b""
    assert limited.say(b"PUB mine.n in.x 0\r\n\r\n" * 2) == unheard(b"1", b"mine.n", b"in.x") * 2
    assert others.heard() == b""


def test_that_nobody_is_there_comes_before_what_was_sent_afterwards() -> None:
    _, _, asking, _ = chained()
    assert asking.say(b"SUB own 2\r\nPUB mine.n in.1 0\r\n\r\nPUB own 1\r\nx\r\nPUB mine.n in.2 0\r\n\r\n") == (
        unheard(b"1", b"mine.n") + b"MSG own 2 1\r\nx\r\n" + unheard(b"1", b"mine.n", b"in.2")
    )


def test_a_responder_with_a_limit_leaves_the_rest_unheard() -> None:
    _, responder, asking, _ = chained()
    responder.say(b"SUB svc.* 1\r\nUNSUB 1 2\r\n")
    said = asking.say(b"".join(b"PUB mine.x in.%d 0\r\n\r\n" % number for number in range(5)))
    assert responder.heard().count(b"HMSG svc.x") == 2
    assert said == b"".join(unheard(b"1", b"mine.x", b"in.%d" % number) for number in (2, 3, 4))


FORGED = b'NATS/1.0\r\nnats-request-INFO: {"acc":"ADMIN","user":"root"}\r\nKey: value\r\n\r\n'


def test_a_service_is_told_who_asks_and_nobody_else_says_so() -> None:
    _, responder, asking, further = chained()
    responder.say(b"SUB svc.* 1\r\n")
    asking.say(b"HPUB mine.x %d %d\r\n%bhi\r\n" % (len(FORGED), len(FORGED) + 2, FORGED))
    block = told(b'"acc":"B"')[:-2] + b"Key: value\r\n\r\n"
    assert responder.heard() == b"HMSG svc.x 1 %d %d\r\n%bhi\r\n" % (len(block), len(block) + 2, block)
    further.say(b"HPUB chain.x %d %d\r\n%bhi\r\nPUB chain.x 1\r\nm\r\n" % (len(FORGED), len(FORGED) + 2, FORGED))
    plain = told(b'"acc":"C"', b'"svc":"B"')
    block = plain[:-2] + b"Key: value\r\n\r\n"
    assert responder.heard() == b"HMSG svc.x 1 %d %d\r\n%bhi\r\nHMSG svc.x 1 %d %d\r\n%bm\r\n" % (
        *(len(block), len(block) + 2, block),
        *(len(plain), len(plain) + 1, plain),
    )


def passes_of(world: Accounts, namespace: str) -> list[int]:
    """How many messages each pass over what is published in an account hands on, from here on."""
    found: list[int] = []
    courier, interest = world.broker.live.courier, world.broker.live.space(namespace).interest
    deliver = courier.deliver

    def watched(batch: LiveBatch, targets: list[Target], *, more: bool) -> None:
        if any(entry.interest is interest for entry in targets[0].entries):
            found.append(max(target.pair_count for target in targets))
        deliver(batch, targets, more=more)

    world.broker.live.courier = SimpleNamespace(deliver=watched, waiting_size_bytes=courier.waiting_size_bytes)
    return found


@pytest.mark.parametrize("is_service", [False, True])
def test_what_is_handed_on_is_so_in_batches_between_which_the_clock_is_looked_at(is_service: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.core.live.LIVE_STEPS_HANDED_ON_FIRST", 4)
    world = Accounts(service(b"x", b"x") if is_service else stream(b"x", b"x", origin="B", namespace="A"))
    reader, writer = world.of("A", b"SUB x 1\r\n"), world.of("B", b"SUB in 1\r\n")
    passes, handed_on = passes_of(world, "B"), passes_of(world, "A")
    writer.say(b"PUB x in 0\r\n\r\n" * 60)
    assert passes == handed_on == [4, 8, 16, 32], "whole passes, twice as large each"
    assert reader.heard().count(b"MSG x") == 60
    del passes[:], handed_on[:]
    late = iter((False, True))
    batch = LiveBatch.of([LiveMessage(b"x", b"", b"in")] * 60)
    assert world.broker.live.space("B").publish_some(batch, None, lambda: next(late)) == (12, 0)
    assert passes == handed_on == [4, 8], "and none once it is late"
    assert reader.heard().count(b"MSG x") == 12


def test_answers_as_the_service_gives_them() -> None:
    world = Accounts(service(b"many", b"many", response_type="stream"), service(b"parts", b"parts", response_type="chunked"))
    responder, asking = world.of("A", b"SUB * 1\r\n"), world.of("B", b"SUB in.> 1\r\n")
    asking.say(b"PUB many in.1 0\r\n\r\n")
    reply = asked(world, responder)
    responder.say(b"PUB %b 1\r\na\r\n" % reply * 2)
    world.clock.now_ns += SECOND_NS - 1
    responder.say(b"PUB %b 1\r\na\r\n" % reply)
    assert asking.heard().count(b"MSG in.1") == 3
    world.clock.now_ns += SECOND_NS + 1
    responder.say(b"PUB %b 1\r\na\r\n" % reply)
    assert asking.heard() == b"", "it has been silent for too long"
    asking.say(b"PUB parts in.2 0\r\n\r\n")
    reply = asked(world, responder)
    responder.say(b"PUB %b 1\r\na\r\n" % reply * 2 + b"PUB %b 0\r\n\r\nPUB %b 1\r\nb\r\n" % (reply, reply))
    assert asking.heard() == b"MSG in.2 1 1\r\na\r\nMSG in.2 1 1\r\na\r\nMSG in.2 1 0\r\n\r\n"


def test_an_answer_has_its_time() -> None:
    world = Accounts(service(b"sum", b"sum"))
    responder, asking = world.of("A", b"SUB sum 1\r\n"), world.of("B", b"SUB in.> 1\r\n")
    asking.say(b"PUB sum in.1 0\r\n\r\n")
    reply = asked(world, responder)
    world.clock.now_ns += SECOND_NS + 1
    responder.say(b"PUB %b 1\r\na\r\n" % reply)
    assert asking.heard() == b""


def test_questions_that_nobody_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "NATS_SERVICE_REQUESTS_MAX", 10)
    world = Accounts(service(b"sum", b"sum"))
    responder, asking = world.of("A", b"SUB sum 1\r\n"), world.of("B", b"SUB in.> 1\r\n")
    replies = []
    for number in range(30):
        asking.say(b"PUB sum in.%d 0\r\n\r\n" % number)
        replies.append(asked(world, responder))
    responder.say(b"".join(b"PUB %b 0\r\n\r\n" % reply for reply in replies))
    assert [line.split(b" ")[1] for line in asking.heard().split(b"\r\n") if line] == [b"in.%d" % number for number in range(20, 30)]


def test_the_replies_of_questions_that_nobody_answers_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.nats.questions.NATS_QUESTIONS_SIZE_BYTES_MAX", 1000)
    world = Accounts(service(b"sum", b"sum"))
    responder, asking = world.of("A", b"SUB sum 1\r\n"), world.of("B", b"SUB in.> 1\r\n")
    inboxes = [b"in.%d." % number + b"x" * 300 for number in range(30)]
    replies = []
    for inbox in inboxes:
        asking.say(b"PUB sum %b 0\r\n\r\n" % inbox)
        replies.append(asked(world, responder))
    responder.say(b"".join(b"PUB %b 0\r\n\r\n" % reply for reply in replies))
    assert [line.split(b" ")[1] for line in asking.heard().split(b"\r\n") if line] == inboxes[-3:]


def test_a_service_of_a_service() -> None:
    world = Accounts(service(b"x", b"y"), service(b"y", b"z", origin="B", namespace="C"))
    responder, asking = world.of("A", b"SUB x 1\r\n"), world.of("C", b"SUB in.> 1\r\n")
    asking.say(b"PUB z in.1 1\r\nq\r\n")
    responder.say(b"PUB %b 1\r\na\r\n" % asked(world, responder))
    assert asking.heard() == b"MSG in.1 1 1\r\na\r\n"


def test_what_another_server_sends_on_is_not_asked_here_again() -> None:
    world = Accounts(service(b"sum", b"sum"))
    responder = world.of("A", b"SUB sum 1\r\n")
    world.broker.live.space("B").publish(LiveBatch.of([LiveMessage(b"sum", b"x")]), Target(remote=True))
    assert responder.heard() == b""
    world.broker.live.space("B").publish(LiveBatch.of([LiveMessage(b"sum", b"x")]))
    assert responder.heard() == b"HMSG sum 1 44 45\r\n" + told(b'"acc":"B"') + b"x\r\n"
