"""Questions to JetStream on other servers; every line was compared with a nats-server 2.15.2 without JetStream, beside two with it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from polymq.core.access import Principal
from polymq.core.interest.targets import Target
from polymq.core.live import Taker
from polymq.core.live_rules import NameRule, PatternRules
from polymq.gateways.nats import jetstream_api
from polymq.gateways.nats.cluster import Cluster, RouteFacts
from polymq.gateways.nats.imports import ImportRule, Imports
from polymq.gateways.nats.logins import NatsUser, UserLogins
from polymq.gateways.nats.route_rules import RouteRules
from polymq.protocols.nats.info import Permissions
from polymq.wire.live import COLUMNS, SPARE, UNTAKEN, LiveBatch, LiveMessage
from tests.unit.gateways.nats.client_world import Guest, NatsWorld
from tests.unit.gateways.nats.route_world import PINGS, SECOND_NS, Listener, Server, Stranger, World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WANTS = b"RS+ $SYS $JS.API.>\r\n"
HMSG = re.compile(rb"HMSG \$SYS (\S+) (?:(\S+) )?(\d+) (\d+)\r\nNATS/1\.0\r\nNats-Request-Info: (\{.*?\})\r\n", re.DOTALL)


@pytest.fixture
def world() -> World:
    return World()


def listening(server: Server, pattern: bytes = b"in.>", account: str = "") -> Listener:
    listener = server.listener()
    listener.listen(pattern, account=account)
    return listener


def asking(world: World, *accounts: str, **more: object) -> tuple[Server, Stranger]:
    """A server whose accounts ($G, if none is named) may ask, and a server with JetStream."""
    server = world.server(accounts=accounts, jetstream=accounts or ("$G",), **more)  # type: ignore[arg-type]
    other = world.joined(server)
    other.send(WANTS)
    other.heard()
    return server, other


def heard_question(other: Stranger) -> tuple[bytes, bytes, dict[str, object]]:
    """Subject, reply and asker of the one question that another server has heard last."""
    said = other.heard()
    (found,) = HMSG.finditer(said)
    return found[1], found[2] or b"", json.loads(found[5])


def answer(reply: bytes, body: bytes = b"{}") -> bytes:
    return b"RMSG $SYS %b %d\r\n%b\r\n" % (reply, len(body), body)


# -- between servers -------------------------------------------------------------------------------------------------


def test_a_question_goes_to_the_servers_and_its_answer_to_who_asked(world: World) -> None:
    server, other = asking(world)
    listener = listening(server)
    other.heard()
    assert server.publish(b"$JS.API.STREAM.INFO.S", b"body", reply=b"in.1") == 0
    said = other.heard()
    listen, _, question = said.partition(b"\r\n")
    assert re.fullmatch(rb"RS\+ \$SYS _R_\.[^.]+\.>", listen)
    pattern = listen.split(b" ")[2]
    found = HMSG.match(question)
    assert found is not None
    assert found[1] == b"$JS.API.STREAM.INFO.S"
    assert found[2].startswith(pattern[:-1])
    assert json.loads(found[5]) == {"acc": "$G", "server": "A", "cluster": "c1"}
    assert question.endswith(b"}\r\n\r\nbody\r\n")
    block = question[question.index(b"NATS/1.0") : -len(b"body\r\n")]
    assert (int(found[3]), int(found[4])) == (len(block), len(block) + 4)
    other.send(answer(found[2], b"answer"))
    assert [(each.subject, each.payload, each.reply) for each in listener.got] == [(b"in.1", b"answer", b"")]


def test_an_answer_counts_once_and_whoever_gives_it(world: World) -> None:
    server, one = asking(world)
    two = world.joined(server, "Y", host="10.0.0.8")
    two.send(WANTS)
    listener = listening(server)
    one.heard(), two.heard()
    server.publish(b"$JS.API.INFO", reply=b"in.1")
    subject, reply, _ = heard_question(one)
    assert heard_question(two)[:2] == (subject, reply) == (b"$JS.API.INFO", reply)
    two.send(answer(reply, b"two"))
    one.send(answer(reply, b"one"))
    assert listener.bodies() == [b"two"]


def test_answers_with_headers_keep_them(world: World) -> None:
    server, other = asking(world)
    listener = listening(server)
    server.publish(b"$JS.API.INFO", reply=b"in.1")
    _, reply, _ = heard_question(other)
    other.send(b"HMSG $SYS %b 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n" % reply)
    (found,) = listener.got
    assert (found.header_size, found.payload) == (18, b"NATS/1.0\r\nA: b\r\n\r\nhi")


def test_a_question_without_a_reply_is_passed_on(world: World) -> None:
    server, other = asking(world)
    assert server.publish(b"$JS.API.INFO", b"x") == 0
    said = other.heard()
    assert said.startswith(b"HMSG $SYS $JS.API.INFO ")
    assert b"_R_" not in said


def test_headers_of_the_question_are_kept_and_nobody_is_somebody_else(world: World) -> None:
    server, other = asking(world)
    block = b'NATS/1.0\r\nNats-Request-Info: {"acc":"B"}\r\nK: v\r\n\r\n'
    server.publish(b"$JS.API.INFO", block + b"body", reply=b"in", header_size=len(block))
    said = other.heard()
    assert said.endswith(b'"cluster":"c1"}\r\nK: v\r\n\r\nbody\r\n')
    assert said.count(b"Nats-Request-Info") == 1
    assert b'"B"' not in said


def test_what_the_servers_listen_to_in_the_account_is_not_asked_again(world: World) -> None:
    server, other = asking(world)
    assert server.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.C", reply=b"in") == 1
    assert server.publish(b"$JS.API.DIRECT.GET.S", reply=b"in") == 1
    assert server.publish(b"$JS.API", reply=b"in") == 1
    assert other.heard() == b""
    other.send(b"RS+ $G $JS.API.CONSUMER.MSG.NEXT.S.C\r\n")
    assert server.publish(b"$JS.API.CONSUMER.MSG.NEXT.S.C", reply=b"in") == 0
    assert other.heard() == b"RMSG $G $JS.API.CONSUMER.MSG.NEXT.S.C in 0\r\n\r\n"


def test_nobody_listens_while_no_server_wants_questions(world: World) -> None:
    server = world.server(jetstream=("$G",))
    other = world.joined(server)
    assert server.publish(b"$JS.API.INFO", reply=b"in") == 1
    other.send(WANTS, WANTS)
    assert server.publish(b"$JS.API.INFO", reply=b"in") == 0
    # It is nobody's subscription.
    assert [space.listening_count for space in server.live.spaces.values()] == [0, 1], "but the other server's"
    other.send(b"RS- $SYS $JS.API.>\r\n")
    assert server.publish(b"$JS.API.INFO", reply=b"in") == 1
    other.send(WANTS)
    assert server.publish(b"$JS.API.INFO", reply=b"in") == 0
    other.end.end()
    assert server.publish(b"$JS.API.INFO", reply=b"in") == 1
    world.run()
    assert server.live.space().interest.count == 0
    assert server.live.space().listening_count == 0


def test_as_long_as_one_server_is_left_it_is_asked(world: World) -> None:
    server, one = asking(world)
    two = world.joined(server, "Y", host="10.0.0.8")
    two.send(WANTS)
    one.end.end()
    two.heard()
    server.publish(b"$JS.API.INFO", reply=b"in")
    assert heard_question(two)[0] == b"$JS.API.INFO"


def test_servers_that_join_are_told_where_answers_go_once_somebody_has_asked(world: World) -> None:
    server, _ = asking(world)
    assert world.joined(server, "Y", host="10.0.0.8").heard() == b""
    server.publish(b"$JS.API.INFO", reply=b"in")
    server.publish(b"$JS.API.INFO", reply=b"in")
    assert re.fullmatch(rb"RS\+ \$SYS _R_\.[^.]+\.>\r\n", world.joined(server, "Z", host="10.0.0.7").heard())


def test_what_else_is_said_in_the_account_of_servers_is_passed_over(world: World) -> None:
    server, other = asking(world)
    other.send(b"RS+ $SYS $SYS.SERVER.*.STATSZ\r\nRS+ $SYS >\r\nRS+ $SYS $JS.API.> q 1\r\nRMSG $SYS $JS.API.INFO in 1\r\nx\r\n")
    other.send(b"RS- $SYS >\r\nRS- $SYS $JS.API.> q\r\n", answer(b"_R_.x.y"), answer(b"$SYS.SERVER.X.STATSZ"))
    assert server.cluster.routes["NX"].subscription_count == 1
    assert server.publish(b"$SYS.SERVER.X.STATSZ") == 1
    assert server.publish(b"$JS.API.INFO") == 0
    assert other.closed is None


def test_what_another_server_passes_on_is_not_asked_again(world: World) -> None:
    server, other = asking(world)
    watching = listening(server, b"$JS.API.>")
    other.heard()
    other.send(b"RMSG $G $JS.API.INFO in 1\r\nx\r\n")
    assert watching.bodies() == [b"x"]
    assert other.heard() == b""


def test_servers_of_ours_do_not_ask_each_other(world: World) -> None:
    one, other = world.server("A", jetstream=("$G",)), world.server("B", jetstream=("$G",))
    world.join(one, other)
    assert one.publish(b"$JS.API.INFO", reply=b"in") == 1
    stranger = world.joined(one)
    stranger.send(WANTS)
    assert one.publish(b"$JS.API.INFO", reply=b"in") == 0
    assert other.publish(b"$JS.API.INFO", reply=b"in") == 1


def test_an_answer_goes_where_the_reply_is_wanted(world: World) -> None:
    server, other = asking(world)
    other.send(b"RS+ $G in.x\r\n")
    server.publish(b"$JS.API.INFO", reply=b"in.x")
    _, reply, _ = heard_question(other)
    other.send(answer(reply))
    assert other.heard() == b"RMSG $G in.x 2\r\n{}\r\n"


def test_an_answer_is_no_question(world: World) -> None:
    """Who may not delete a stream must not have the answer to another question do it."""
    server, other = asking(world)
    server.publish(b"$JS.API.INFO", reply=b"$JS.API.STREAM.DELETE.S")
    subject, reply, _ = heard_question(other)
    assert (subject, reply) == (b"$JS.API.INFO", b"")


# -- accounts --------------------------------------------------------------------------------------------------------


def test_accounts_ask_for_themselves(world: World) -> None:
    server, other = asking(world, "A", "B")
    listeners = {account: listening(server, account=account) for account in ("", "A", "B")}
    assert server.publish(b"$JS.API.INFO", reply=b"in.g") == 1
    replies = {}
    for account in "AB":
        other.heard()
        assert server.publish(b"$JS.API.INFO", reply=b"in." + account.encode(), account=account) == 0
        _, replies[account], asker = heard_question(other)
        assert asker["acc"] == account
    other.send(answer(replies["B"], b"b"), answer(replies["A"], b"a"))
    assert {account: listener.bodies() for account, listener in listeners.items()} == {"": [], "A": [b"a"], "B": [b"b"]}


def test_accounts_of_which_it_is_not_said_do_not_ask(world: World) -> None:
    server = world.server(accounts=("A", "B"), jetstream=("A",))
    other = world.joined(server)
    other.send(WANTS)
    assert server.publish(b"$JS.API.INFO", account="A") == 0
    assert server.publish(b"$JS.API.INFO", account="B") == 1


def test_where_nobody_may_ask_the_servers_account_is_not_known(world: World) -> None:
    server = world.server()
    other = world.joined(server)
    other.send(WANTS)
    assert server.cluster.accounts.system is None
    assert server.cluster.routes["NX"].subscription_count == 0
    assert server.publish(b"$JS.API.INFO") == 1


@pytest.mark.parametrize(
    "rules",
    [RouteRules(exports=Permissions(deny=("$JS.>",))), RouteRules(imports=Permissions(deny=("_R_.>",)))],
    ids=["questions", "answers"],
)
def test_what_may_not_cross_routes_does_not(world: World, rules: RouteRules) -> None:
    server, other = asking(world, rules=rules)
    server.publish(b"$JS.API.INFO", reply=b"in")
    assert b"RS+ $SYS" not in other.heard() if rules.imports else other.heard() == b""


# -- limits ----------------------------------------------------------------------------------------------------------


def test_an_answer_has_two_minutes(world: World) -> None:
    server, other = asking(world)
    listener = listening(server)
    server.publish(b"$JS.API.INFO", reply=b"in.1")
    _, reply, _ = heard_question(other)
    world.clock.now_ns += 120 * SECOND_NS + 1
    other.send(answer(reply))
    assert listener.got == []


def test_questions_that_nobody_answers_are_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jetstream_api, "NATS_JETSTREAM_REQUESTS_MAX", 10)
    server, other = asking(world)
    listener = listening(server)
    for number in range(30):
        server.publish(b"$JS.API.INFO", reply=b"in.%d" % number)
    for found in list(HMSG.finditer(other.heard())):
        other.send(answer(found[2]))
    assert [message.subject for message in listener.got] == [b"in.%d" % number for number in range(20, 30)]


def test_what_is_asked_while_the_last_server_goes_is_untaken(world: World) -> None:
    """Its entry is still there, but takes nothing: whoever has published it says so."""
    server, other = asking(world)
    listener = listening(server)
    route = server.cluster.routes["NX"]
    server.live.dismiss(route.target)
    batch = LiveBatch.of(
        [LiveMessage(b"$JS.API.INFO", b"", b"in.1"), LiveMessage(b"$JS.API.INFO", b""), LiveMessage(b"$JS.API.X", b"", b"in.2")]
    )
    assert not server.live.space().is_wanted(b"$JS.API.INFO")
    assert server.live.space().publish(batch) == 3
    assert [bool(batch.rows[COLUMNS * index + SPARE] & UNTAKEN) for index in range(3)] == [True] * 3
    assert listener.got == []
    assert b"HMSG" not in other.heard()


# -- clients ---------------------------------------------------------------------------------------------------------


class JetStream(Taker):
    """A server with it, without a route: what it is asked."""

    def __init__(self, cluster: Cluster) -> None:
        assert cluster.accounts.system is not None
        self.account = cluster.accounts.system
        self.asked: list[LiveMessage] = []
        self.target = Target(self, remote=True)
        self.account.space.listen(b"$JS.API.>", self.target, tag=0)
        assert self.account.changed is not None
        self.account.changed()

    def take(self, batch: LiveBatch, target: Target) -> Callable[[], None] | None:
        self.asked += [batch.message(target.pairs[2 * place]) for place in range(target.pair_count)]
        return None

    def asker(self) -> dict[str, object]:
        (found,) = self.asked
        self.asked.clear()
        line = found.payload[: found.header_size].split(b"\r\n")[1]
        return dict(json.loads(line.removeprefix(b"Nats-Request-Info: ")))


class Clients(NatsWorld):
    """A world of clients that may ask: everybody, or the users of accounts."""

    def __init__(self, accounts: Sequence[str] = (), *, imports: Sequence[ImportRule] = (), bound: PatternRules | None = None) -> None:
        users = [NatsUser(Principal(name, name), name) for name in accounts]
        users.append(NatsUser(Principal("bound", live=bound), "bound"))
        super().__init__(UserLogins(users, digest_key=b"k", nobody=Principal("anybody")))
        cluster = Cluster(self.house, RouteFacts("0.0.0.0", 6222, name="c1"), PINGS, accounts, jetstream=accounts[:1] or ("$G",))
        Imports(self.broker.live, imports, self.clock.monotonic_ns, lambda size: b"\x05" * size)
        self.jetstream = JetStream(cluster)

    def client(self, user: str = "", **more: object) -> Guest:
        told = {"verbose": False, "pedantic": False, "headers": True, "no_responders": True, "user": user, **more}
        return self.guest(b"CONNECT " + json.dumps(told).encode() + b"\r\nPING\r\n", b"SUB in.> 1\r\n")


def test_who_asks_is_told_to_the_servers() -> None:
    world = Clients()
    client = world.client(name="me", lang="python3", version="2.16.0")
    assert client.say(b"PUB $JS.API.INFO in.1 0\r\n\r\n") == b""
    found = world.jetstream.asker()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", str(found.pop("start")))
    assert found == {
        "acc": "$G",
        "host": "192.0.2.9",
        "user": "anybody",
        "name": "me",
        "lang": "python3",
        "ver": "2.16.0",
        "kind": "Client",
        "client_type": "nats",
    }


def test_a_client_that_nobody_hears_is_told_so_by_its_own_rules() -> None:
    world = Clients()
    client = world.client()
    said = client.say(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.C in.1 0\r\n\r\n")
    assert said == b"HMSG in.1 1 61 61\r\nNATS/1.0 503\r\nNats-Subject: $JS.API.CONSUMER.MSG.NEXT.S.C\r\n\r\n\r\n"
    silent = world.client(no_responders=False)
    assert silent.say(b"PUB $JS.API.CONSUMER.MSG.NEXT.S.C in.1 0\r\n\r\n") == b""
    world.broker.live.dismiss(world.jetstream.target)
    assert world.jetstream.account.changed is not None
    world.jetstream.account.changed()
    assert client.say(b"PUB $JS.API.INFO in.1 0\r\n\r\n").startswith(b"HMSG in.1 1 44 44\r\nNATS/1.0 503\r\n")
    assert world.jetstream.asked == []


def test_a_user_asks_what_he_may_publish() -> None:
    world = Clients(bound=PatternRules(publish_deny=[NameRule(b"$JS.API.STREAM.DELETE.>")]))
    client = world.client("bound")
    said = client.say(b"PUB $JS.API.STREAM.DELETE.S in.1 0\r\n\r\nPUB $JS.API.INFO in.1 0\r\n\r\n")
    assert said == b"-ERR 'Permissions Violation for Publish to \"$JS.API.STREAM.DELETE.S\"'\r\n"
    assert [each.subject for each in world.jetstream.asked] == [b"$JS.API.INFO"]


def test_a_client_of_an_account_that_imports_it_is_told_as_well() -> None:
    rule = ImportRule(True, "A", b"$JS.API.>", "B", b"$JS.API.>")
    world = Clients(("A", "B"), imports=[rule])
    world.client("B").say(b"PUB $JS.API.INFO in.1 0\r\n\r\n")
    found = world.jetstream.asker()
    assert (found["acc"], found["svc"], found["user"]) == ("B", "A", "B")
    world.client("A").say(b"PUB $JS.API.INFO in.1 0\r\n\r\n")
    assert "svc" not in (found := world.jetstream.asker())
    assert found["acc"] == "A"


def test_clients_reach_nothing_of_the_servers_account() -> None:
    world = Clients()
    client = world.client()
    client.say(b"SUB _R_.> 2\r\nSUB > 3\r\nPUB $JS.API.INFO in.1 0\r\n\r\n")
    (question,) = world.jetstream.asked
    assert client.say(b"PUB %b 2\r\n{}\r\n" % question.reply).count(b"MSG in.1 ") == 0
    world.jetstream.account.space.publish(LiveBatch.of([LiveMessage(question.reply, b"{}")]), world.jetstream.target)
    assert sorted(client.heard().split(b"\r\n{}\r\n")) == [b"", b"MSG in.1 1 2", b"MSG in.1 3 2"]
