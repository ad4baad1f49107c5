"""SIGHUP: what changes, what stays, and what becomes of those who are connected."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from polymq.config_values import TcpAddress
from polymq.errors import ConfigError
from polymq.gateways.login import PasswordCheck
from polymq.server.nats_cluster import make_route_tls
from polymq.server.nats_logins import make_nats_logins
from polymq.server.nats_mount import nats_settings
from polymq.server.nats_reload import NatsReload
from polymq.server.nats_settings import (
    AccountSettings,
    AuthorizationSettings,
    ClusterSettings,
    NatsServerSettings,
    PermissionSettings,
    SubjectRule,
    SubjectRules,
    TlsSettings,
    UserSettings,
)
from polymq.server.nats_tls import make_client_tls
from tests.unit.gateways.nats.harness import SECOND_NS, Talk, World
from tests.unit.wire.authority import Authority

if TYPE_CHECKING:
    from polymq.server.nats_cluster import RouteTls

HASH = "$2a$04$abcdefghijklmnopqrstuufznL8bkzdtHwLhca4To/v9Lo9bA7fR6"  # of "pass"
VIOLATION = b"-ERR 'Authorization Violation'\r\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


class Story:
    """A server, and what its file says by now."""

    def __init__(self, route_tls: RouteTls | None = None, **said: Any) -> None:
        self.told: NatsServerSettings | ConfigError = NatsServerSettings(**said)
        self.world = World(nats_settings(self.told), logins=make_nats_logins(self.told), tls=make_client_tls(self.told))
        self.house = self.world.house
        self.house.info = replace(self.house.info, auth_required=self.house.logins.told)
        self.reload = NatsReload(self.house, self.told, self._reread, self.world.pump.call_at, route_tls=route_tls)

    def _reread(self) -> NatsServerSettings:
        if isinstance(self.told, ConfigError):
            raise self.told
        return self.told

    @property
    def house_told(self) -> NatsServerSettings:
        assert isinstance(self.told, NatsServerSettings)
        return self.told

    def hup(self, **said: Any) -> None:
        assert isinstance(self.told, NatsServerSettings)
        self.told = replace(self.told, **said)
        self.reload.begin()
        self.world.turn()

    def come(self, name: str, password: str, *lines: bytes, protocol: int = 0) -> Talk:
        first = b'CONNECT {"verbose":false,"user":"%b","pass":"%b","protocol":%d}\r\n' % (name.encode(), password.encode(), protocol)
        return self.world.connect(first + b"".join(lines))


def user(name: str, password: str = "p", account: str = "$G", **rules: tuple[str, ...]) -> UserSettings:
    listen, publish = (
        SubjectRules(allow=tuple(SubjectRule(each) for each in rules[key])) if key in rules else SubjectRules()
        for key in ("subscribe", "publish")
    )
    return UserSettings(name, password, account=account, permissions=PermissionSettings(publish, listen) if rules else None)


ALL = (user("a"), user("b"), user("c"), user("d", subscribe=("x.>", "y")), user("e", account="ACC"))
ACCOUNTS = (AccountSettings("ACC"),)
SUBSCRIBED = b"SUB x.1 1\r\nSUB y 2\r\n"


def test_clients_stay_go_or_may_do_less() -> None:
    story = Story(users=ALL, accounts=ACCOUNTS)
    clients = {each.name: story.come(each.name, "p", SUBSCRIBED) for each in ALL}
    later = (user("a"), user("c", "other"), user("d", subscribe=("y",), publish=("z",)), user("e"))
    story.hup(users=later)
    said = {name: talk.hear() for name, talk in clients.items()}
    assert said == {
        "a": b"",
        "b": b"",
        "c": VIOLATION,
        "d": b'-ERR \'Permissions Violation for Subscription to "x.1" (sid "1")\'\r\n',
        "e": b"",
    }
    assert [name for name, talk in clients.items() if talk.closed] == ["b", "c", "e"], "gone, changed, of another account"
    assert clients["d"].say(b"PUB x 1\r\nx\r\n").startswith(b"-ERR 'Permissions Violation for Publish")
    clients["a"].send(b"PUB x.1 1\r\nx\r\nPUB y 1\r\ny\r\n")
    assert clients["a"].hear() == b"MSG x.1 1 1\r\nx\r\nMSG y 2 1\r\ny\r\n"
    assert clients["d"].hear() == b"MSG y 2 1\r\ny\r\n"
    assert story.come("c", "other", SUBSCRIBED).say(b"PING\r\n") == b"PONG\r\n"


def test_many_clients_are_asked_some_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(users=(user("a"),))
    talks = [story.come("a", "p", b"SUB x 1\r\nSUB y 2\r\n") for _ in range(7)]
    monkeypatch.setattr("polymq.server.nats_reload.NATS_RECONSIDERED_PER_TURN_MAX", 2 * (20 + 2))
    story.told = replace(story.house_told, users=(user("a", subscribe=("y",)),))
    story.reload.begin()
    lost = []
    for _ in range(5):
        story.world.pump.end_turn()
        lost.append(sum(len(talk.client.subscriptions) == 1 for talk in talks))
    assert lost == [4, 6, 7, 7, 7], "two at once, and two in each turn"
    # Once more while it goes on: everybody is asked by what holds then.
    story.told = replace(story.house_told, users=(user("a", subscribe=("x",)),))
    story.reload.begin()
    story.world.pump.end_turn()
    story.told = replace(story.house_told, users=())
    story.reload.begin()
    for _ in range(5):
        story.world.pump.end_turn()
    assert len({talk.client.session.principal.name for talk in talks}) == 1
    assert not any(talk.closed for talk in talks), "the door is open"


def test_many_subscriptions_are_looked_at_some_in_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    story = Story(users=(user("a"), user("b")))
    talk, other = story.come("a", "p"), story.come("b", "p")
    names = [b"x%d" % index if index % 2 else b"y%d" % index for index in range(7)]
    talk.say(b"".join(b"SUB %b %d\r\n" % (name, index) for index, name in enumerate(names)))
    monkeypatch.setattr("polymq.gateways.nats.relogin.NATS_RECONSIDERED_PER_TURN_MAX", 3)
    allowed = tuple(name.decode() for name in names if name.startswith(b"y"))
    story.told = replace(story.house_told, users=(user("a", subscribe=allowed), user("b")))
    story.reload.begin()
    story.world.pump.end_turn()
    assert len(talk.client.subscriptions) == 6, "one that is kept, and one that is lost, which counts for more"
    talk.stream.incoming.append(b"SUB y0 20\r\nSUB x9 21\r\nPING\r\n")
    story.world.pump.readable(talk.connection)
    other.stream.incoming.append(b"".join(b"PUB %b 1\r\n%b\r\n" % (name, name[:1]) for name in names))
    story.world.pump.readable(other.connection)
    story.world.turn()
    heard = talk.hear()
    assert heard.count(b"\r\nx\r\n") == 0, "what is not looked at yet is not heard any more either"
    assert heard.count(b"\r\ny\r\n") == 4
    assert heard.count(b"Permissions Violation for Subscription to") == 4
    assert heard.endswith(b"-ERR 'Permissions Violation for Subscription to \"x9\"'\r\nPONG\r\n"), "it is heard once all is clear"
    assert sorted(talk.client.subscriptions) == [b"0", b"2", b"20", b"4", b"6"]
    assert talk.client._target.hears is None


def test_who_gets_everything_back_meanwhile_is_heard_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.gateways.nats.relogin.NATS_RECONSIDERED_PER_TURN_MAX", 1)
    story = Story(users=(user("a"),))
    talk = story.come("a", "p", b"SUB x 1\r\nSUB y 2\r\nSUB z 3\r\n")
    before = story.house_told
    story.told = replace(before, users=(user("a", subscribe=("y.>",)),))
    story.reload.begin()
    story.world.pump.end_turn()
    talk.stream.incoming.append(b"PING\r\n")
    story.world.pump.readable(talk.connection)
    story.told = before
    story.reload.begin()
    story.world.turn()
    assert talk.hear().endswith(b"PONG\r\n")
    assert 0 < len(talk.client.subscriptions) < 3
    assert talk.client._target.hears is None


def test_who_may_do_more_or_as_much_notices_nothing() -> None:
    story = Story(users=(user("a", subscribe=("x.*",)), user("b", subscribe=("y",))))
    a, b = story.come("a", "p", SUBSCRIBED[:11]), story.come("b", "p", SUBSCRIBED[11:])
    before = b.client.session.principal
    story.hup(users=(user("a"), user("b", subscribe=("y",))))
    assert (a.hear(), b.hear(), a.closed, b.closed) == (b"", b"", False, False)
    assert b.client.session.principal is before
    assert a.say(b"SUB y 2\r\nPUB y 1\r\ny\r\n") == b"MSG y 2 1\r\ny\r\n"


def test_a_door_that_is_open_can_be_closed_and_opened() -> None:
    story = Story()
    early = story.world.connect()
    assert early.say(b"SUB x.1 1\r\n") == b"+OK\r\n"
    story.hup(users=(user("a"),))
    assert (early.hear(), early.closed) == (VIOLATION, True)
    assert story.house.info.auth_required
    waiting, named = story.world.connect(), story.come("a", "p")
    story.hup(users=())
    assert not waiting.closed
    assert not named.closed
    assert waiting.say(b'CONNECT {"verbose":false}\r\nPING\r\n') == b"PONG\r\n"
    assert not story.house.info.auth_required


def test_a_hashed_password_is_known_again_as_long_as_the_hash_is_the_same() -> None:
    story = Story(users=(user("a", HASH),))
    logins: Any = story.house.logins
    logins.remember(logins._users["a"], b"pass")
    talk = story.come("a", "pass")
    story.hup(users=(user("a", HASH), user("b")))
    assert not talk.closed
    assert story.come("a", "pass").say(b"PING\r\n") == b"PONG\r\n"
    story.hup(users=(user("a", HASH.replace("fR6", "fR5")), user("b")))
    assert talk.hear() == VIOLATION


def test_who_is_being_looked_at_is_held_against_the_new_list() -> None:
    story = Story(users=(user("a", HASH),))
    asked: list[tuple[object, Any]] = []

    class Outside:
        def ask(self, request: object, answered: Any) -> Outside:
            asked.append((request, answered))
            return self

        def cancel(self) -> None:
            """Nobody is asked."""

    story.world.pump.outside = Outside()
    talk = story.come("a", "pass")
    ((request, answered),) = asked
    assert request == PasswordCheck(b"pass", HASH.encode())
    story.hup(users=(user("b"),))
    answered(True)
    story.world.turn()
    assert (talk.hear(), talk.closed) == (VIOLATION, True)


def test_limits_hold_for_those_who_are_there_as_well() -> None:
    story = Story(payload_size_bytes_max=10)
    talk = story.world.connect(b'CONNECT {"verbose":false,"protocol":1}\r\n')
    talk.say(b"PING\r\n")
    story.hup(payload_size_bytes_max=20, subscriptions_max=1, connections_max=1, write_deadline_ns=7)
    assert b'"max_payload":20' in talk.hear()
    assert talk.say(b"PUB a 15\r\n%b\r\nPING\r\n" % (b"x" * 15)) == b"PONG\r\n"
    assert talk.say(b"SUB a 1\r\nSUB b 2\r\n") == b"-ERR 'maximum subscriptions exceeded'\r\n"
    assert talk.client.write_timeout_ns == 7
    assert b"maximum connections exceeded" in Talk(story.world, "192.0.2.9").hear()


def test_who_came_last_goes_where_fewer_may_be_there(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    story = Story(connections_max=9)
    talks = [story.world.connect(b'CONNECT {"verbose":false}\r\n') for _ in range(5)]
    story.hup(connections_max=5)
    assert not any(talk.closed for talk in talks)
    story.hup(connections_max=2)
    assert [talk.closed for talk in talks] == [False, False, True, True, True]
    assert [talk.hear() for talk in talks] == [b""] * 2 + [b"-ERR 'maximum connections exceeded'\r\n"] * 3
    assert {each.reason for each in story.house.departed.last} == {"Maximum Connections Exceeded"}
    assert "3 NATS clients are closed, for max_connections is 2 now" in caplog.text
    story.hup(connections_max=None)
    assert not any(talk.closed for talk in talks[:2])


def test_what_the_pages_say_is_what_holds_by_now(authority: Authority) -> None:
    file = str(authority.issue("localhost"))
    story = Story(authorization=AuthorizationSettings(timeout_ns=3 * SECOND_NS), tls=TlsSettings(file, file), allow_non_tls=True)
    house, settings = story.house, story.house.settings
    assert (settings.auth_timeout_ns, settings.tls_timeout_ns, house.reloaded_at_ns) == (3 * SECOND_NS, 2 * SECOND_NS, 0)
    story.hup(authorization=AuthorizationSettings(timeout_ns=4 * SECOND_NS), tls=TlsSettings(file, file, timeout_ns=7 * SECOND_NS))
    settings = house.settings
    assert (settings.auth_timeout_ns, settings.tls_timeout_ns) == (4 * SECOND_NS, 7 * SECOND_NS)
    assert house.reloaded_at_ns == house.clock.wall_ns()
    story.told = ConfigError(["x"])
    story.world.clock.now_ns += SECOND_NS
    story.reload.begin()
    assert house.reloaded_at_ns < house.clock.wall_ns()


def test_what_needs_a_restart_is_named_and_stays(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    story = Story(users=(user("a"),), accounts=ACCOUNTS)
    talk = story.come("a", "p")
    for _ in range(2):
        caplog.clear()
        story.hup(listen=TcpAddress("h", 1), accounts=(), users=(), server_name="other", ping_max=3, cluster=ClusterSettings())
        assert [(record.levelname, record.message) for record in caplog.records][-1] == (
            "WARNING",
            "needs a restart, and stays as it was: listen, server_name, accounts, users, cluster",
        )
    assert not talk.closed
    assert story.house.settings.pings_unanswered_max == 3


def test_a_file_with_errors_changes_nothing(caplog: pytest.LogCaptureFixture, tmp_path: Any) -> None:
    story = Story(users=(user("a"),))
    talk = story.come("a", "p")
    before = story.house.settings
    story.told = ConfigError(["s.conf:1: one", "s.conf:2: two"])
    story.reload.begin()
    assert [record.message for record in caplog.records][:2] == ["s.conf:1: one", "s.conf:2: two"]
    assert "not reloaded" in caplog.records[2].message
    story.told = NatsServerSettings(users=(), payload_size_bytes_max=7)
    story.reload._settings = replace(story.reload._settings, tls=TlsSettings(str(tmp_path / "none"), str(tmp_path / "none")))
    story.reload.begin()
    assert "cert_file" in caplog.records[3].message
    assert story.house.settings is before
    assert not talk.closed


def test_certificates_are_read_again(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    old, new = (str(authority.issue(name)) for name in ("localhost", "other"))
    tls, later = (TlsSettings(file, file, str(authority.certificate)) for file in (old, new))
    cluster = ClusterSettings(name="c", listen=TcpAddress("h", 1), tls=tls)
    route_tls = make_route_tls(NatsServerSettings(cluster=cluster))
    story = Story(route_tls, tls=tls, cluster=cluster)
    assert route_tls is not None
    contexts = story.house.tls, route_tls._server, route_tls._client
    story.reload.begin()
    assert story.house.tls is not contexts[0], "files may be others under the same name"
    assert (route_tls._server, route_tls._client) != contexts[1:]
    assert caplog.records[-1].message == "reloaded: certificates"
    story.hup(tls=replace(later, verify=True), cluster=replace(cluster, tls=later))
    assert caplog.records[-1].message == "reloaded: tls, cluster, certificates"
    assert story.house.info.tls_verify
    for other in (None, replace(later, handshake_first=True)):
        story.hup(tls=other)
        assert caplog.records[-1].message == "needs a restart, and stays as it was: tls"
        assert story.house.tls is not None
        assert not story.house.tls.first


def test_the_limits_of_logins_are_the_new_ones() -> None:
    story = Story(users=(user("a"),))
    story.hup(authorization=AuthorizationSettings(timeout_ns=5 * SECOND_NS))
    assert story.house.logins.timeout_ns == 5 * SECOND_NS
