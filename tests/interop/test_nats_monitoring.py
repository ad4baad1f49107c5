"""The monitoring pages, as nats-server shows them: the same is done on three servers, and then their pages are compared.

Of every document the keys, their order and the types of what is behind them; of what clients have done, the values as well; of questions
that make no sense, every byte. What polymq leaves out is listed here.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.nats_dialogue import Stage
from tests.interop.nats_servers import NATS_KINDS, POLYMQ, SERVING_KINDS, NatsOptions, NatsServer, ending, nats_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NEWEST, OLD = NATS_KINDS
# What the newest one says and polymq does not: its switches, and what JetStream waits for.
LEFT_OUT = {"feature_flags", "disk_io_wait_stats"}
# Values that are the same wherever the same has happened.
COUNTED = (
    "in_msgs",
    "out_msgs",
    "in_bytes",
    "out_bytes",
    "subscriptions",
    "pending_bytes",
    "name",
    "lang",
    "version",
    "kind",
    "type",
    "cid",
)
DONE = (
    (
        b'{"verbose":false,"name":"first","lang":"python","version":"1.2","headers":true}',
        b"SUB shown.a.* 1\r\nSUB shown.b q 2\r\nSUB shown.c 3\r\nUNSUB 3 7\r\n",
    ),
    (b'{"verbose":false,"name":"second"}', b"SUB shown.> 9\r\nSUB shown.b 10\r\nPUB shown.a.x 3\r\nabc\r\nPUB shown.b 2\r\nxy\r\n"),
)


class Shown:
    """A server on which something has been done, by clients that are still there."""

    def __init__(self, kind: str, folder: Any) -> None:
        self.server = NatsServer(kind, f"{kind}-shown", folder, NatsOptions())

    def play(self) -> None:
        self.stage = Stage(self.server, "shown")
        self.talks = []
        for connect, said in DONE:
            talk = self.stage.connect(connect=b"CONNECT " + connect + b"\r\n")
            talk.say(said)
            self.talks.append(talk)
        self.talks[0].say(b"HPUB shown.a.y 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n")
        gone = self.stage.connect(connect=b'CONNECT {"verbose":false,"name":"gone"}\r\n')
        gone.say(b"SUB gone 1\r\n")
        gone.finish()
        gone.hear()
        wrong = self.stage.connect(connect=b'CONNECT {"verbose":false,"name":"wrong"}\r\n')
        wrong.say(b"NOPE\r\n")
        for talk in self.talks:
            talk.say(b"")
        self.first_id = self.talks[0].info["client_id"]

    def ask(self, path: str, method: str = "GET") -> tuple[int, str, str]:
        """Status, type and body."""
        path = path.replace("FIRST", str(self.first_id))
        request = urllib.request.Request(f"http://127.0.0.1:{self.server.http_port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, response.headers["Content-Type"], response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read().decode()

    def document(self, path: str) -> dict[str, Any]:
        status, kind, body = self.ask(path)
        assert (status, kind) == (200, "application/json"), body
        return dict(json.loads(body))

    def await_departed(self, *names: str) -> None:
        """Wait until the server has noticed who has gone."""
        deadline = time.monotonic() + 10
        while not set(names) <= {row.get("name") for row in self.document("/connz?state=closed")["connections"]}:
            assert time.monotonic() < deadline, f"{self.server.name} does not notice that {names} have gone"
            time.sleep(0.02)

    def connections(self, path: str) -> list[dict[str, Any]]:
        """What is counted of each connection; numbers of clients count from the first one's."""
        rows = [{name: row[name] for name in COUNTED if name in row} for row in self.document(path)["connections"]]
        return [{**row, "cid": row["cid"] - self.first_id} for row in rows]


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Shown]]:
    with contextlib.ExitStack() as stack:
        found = {kind: Shown(kind, tmp_path_factory.mktemp("monitored")) for kind in SERVING_KINDS}
        for each in found.values():
            stack.enter_context(ending([each.server]))
            each.server.start()
        for each in found.values():
            each.play()
        for each in found.values():
            each.await_departed("gone", "wrong")
        yield found
        for each in found.values():
            each.stage.end()


def shape(value: Any) -> Any:
    """Keys in their order, and types; of a list, what there is among its rows."""
    if isinstance(value, dict):
        return [(name, shape(inner)) for name, inner in value.items() if name not in LEFT_OUT]
    if isinstance(value, list):
        return sorted({repr(shape(each)) for each in value})
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def contained(old: Any, new: Any, path: str = "") -> list[str]:
    """What an old document has and a new one has not, or as something else."""
    if isinstance(old, dict):
        missing = [f"{path}.{name}" for name in old if name not in new]
        return missing + [each for name in old if name in new for each in contained(old[name], new[name], f"{path}.{name}")]
    if isinstance(old, list):
        merged: list[dict[str, Any]] = [{}, {}]
        for each, rows in zip(merged, (old, new), strict=True):
            for row in rows:
                each |= row if isinstance(row, dict) else {"": row}
        return contained(merged[0], merged[1], f"{path}[]")
    return [] if shape(old) == shape(new) else [f"{path}: {old!r}, {new!r}"]


PAGES = [
    "/varz",
    "/connz",
    "/connz?subs=1",
    "/connz?subs=detail",
    "/connz?auth=1",
    "/connz?auth=true&subs=detail&limit=1",
    "/connz?state=closed",
    "/connz?state=closed&subs=1",
    "/connz?state=any&sort=start",
    "/connz?cid=FIRST&subs=detail",
    "/connz?cid=9999",
    "/connz?acc=$G",
    "/connz?user=nobody",
    "/connz?offset=1&limit=1",
    "/connz?offset=99",
    "/routez",
    "/routez?subs=1",
    "/subsz",
    "/subsz?subs=1&acc=$G&limit=1&test=shown.a.x",
    "/subsz?subs=1&test=nobody.here",
    "/subscriptionsz",
    "/healthz",
    "/healthz?js-enabled-only=true",
]


@pytest.mark.parametrize("path", PAGES)
def test_documents_have_the_same_shape(shown: dict[str, Shown], path: str) -> None:
    newest, old, polymq = (shown[kind].document(path) for kind in (NEWEST, OLD, POLYMQ))
    assert shape(polymq) == shape(newest)
    assert not contained(old, polymq)


@pytest.mark.parametrize("path", ["/varz", "/connz?subs=1&limit=1", "/healthz", "/connz?state=closed"])
def test_documents_are_written_alike(shown: dict[str, Shown], path: str) -> None:
    """Blanks and line ends: a document is what its own values give when Go writes them."""
    for kind in (NEWEST, POLYMQ):
        body = shown[kind].ask(path)[2]
        indent, separators = (None, (",", ":")) if path == "/healthz" else (2, None)
        assert body == json.dumps(json.loads(body), indent=indent, separators=separators, ensure_ascii=False)


CONNECTIONS = [
    "/connz",
    "/connz?state=closed",
    "/connz?state=all",
    *(f"/connz?sort={sort}" for sort in ("cid", "start", "subs", "msgs_to", "msgs_from", "bytes_to", "bytes_from", "uptime")),
    "/connz?state=closed&sort=stop",
    "/connz?state=closed&sort=reason",
    "/connz?cid=FIRST",
    "/connz?offset=1",
    "/connz?limit=1",
]


@pytest.mark.parametrize("path", CONNECTIONS)
def test_connections_are_counted_alike(shown: dict[str, Shown], path: str) -> None:
    newest, polymq = (shown[kind].connections(path) for kind in (NEWEST, POLYMQ))
    assert newest
    for row in (*newest, *polymq):
        if row.get("name") == "wrong":
            row["pending_bytes"] = 0  # whether the last words are out when the server looks is left to chance
    if path.endswith("reason"):
        newest, polymq = (sorted(rows, key=lambda row: row["cid"]) for rows in (newest, polymq))
    assert polymq == newest


@pytest.mark.parametrize(
    "path", ["/connz", "/connz?offset=1", "/connz?state=any&limit=1", "/connz?cid=FIRST", "/connz?user=nobody", "/connz?acc=$G"]
)
def test_numbers_of_connections(shown: dict[str, Shown], path: str) -> None:
    newest, polymq = (
        {name: shown[kind].document(path)[name] for name in ("num_connections", "total", "offset", "limit")} for kind in (NEWEST, POLYMQ)
    )
    assert polymq == newest


def test_reasons_of_those_who_have_gone(shown: dict[str, Shown]) -> None:
    newest, polymq = (
        {row["name"]: row["reason"] for row in shown[kind].document("/connz?state=closed")["connections"] if row.get("name")}
        for kind in (NEWEST, POLYMQ)
    )
    assert polymq == newest == {"gone": "Client Closed", "wrong": "Protocol Violation"}


def test_subscriptions_that_a_message_would_reach(shown: dict[str, Shown]) -> None:
    def reached(kind: str) -> list[tuple[Any, ...]]:
        rows = shown[kind].document("/subsz?subs=1&test=shown.b")["subscriptions_list"]
        found = ((row["account"], row["subject"], row.get("qgroup"), row["sid"], row["msgs"], row.get("max")) for row in rows)
        return sorted(found, key=lambda row: int(row[3]))

    assert (
        reached(POLYMQ)
        == reached(NEWEST)
        == [
            ("$G", "shown.b", "q", "2", 1, None),
            ("$G", "shown.>", None, "9", 3, None),
            ("$G", "shown.b", None, "10", 1, None),
        ]
    )


def test_varz_counts_clients(shown: dict[str, Shown]) -> None:
    # Of what was sent to somebody without headers, nats-server counts the headers here, although not in /connz.
    names = ("in_client_msgs", "in_client_bytes", "out_client_msgs", "connections", "max_payload", "ping_interval", "host")
    newest, polymq = ({name: shown[kind].document("/varz")[name] for name in names} for kind in (NEWEST, POLYMQ))
    assert polymq == newest


NONSENSE = [
    "/connz?limit=x",
    "/connz?limit=1x",
    "/connz?limit=99999999999999999999",
    "/connz?offset=1.5",
    "/connz?cid=x",
    "/connz?cid=-1",
    "/connz?auth=x",
    "/connz?auth=yes",
    "/connz?subs=x",
    "/connz?state=x",
    "/connz?sort=x",
    "/connz?sort=stop",
    "/connz?sort=reason&state=open",
    "/subsz?subs=x",
    "/subsz?limit=x",
    "/subsz?test=a..b",
    "/subsz?test=a.*",
    "/routez?subs=x",
    "/healthz?js-enabled=x",
    "/healthz?js-server-only=x",
    "/nothing",
    "/varz/more",
]


@pytest.mark.parametrize("path", NONSENSE)
def test_what_makes_no_sense(shown: dict[str, Shown], path: str) -> None:
    assert shown[POLYMQ].ask(path) == shown[NEWEST].ask(path)


@pytest.mark.parametrize("path", ["/varz", "/connz", "/healthz", "/routez", "/subsz"])
def test_no_script_is_called(shown: dict[str, Shown], path: str) -> None:
    """Older ones do: `take({...})`, whatever the name is."""
    for kind in (NEWEST, POLYMQ):
        status, content, body = shown[kind].ask(f"{path}?callback=take")
        assert (status, content) == (200, "application/json")
        assert body.startswith("{")


@pytest.mark.parametrize("method", ["HEAD", "POST"])
def test_other_methods(shown: dict[str, Shown], method: str) -> None:
    newest, polymq = (shown[kind].ask("/healthz", method) for kind in (NEWEST, POLYMQ))
    assert polymq == newest


def test_the_first_page_leads_to_the_others(shown: dict[str, Shown]) -> None:
    for kind in (NEWEST, POLYMQ):
        status, content, body = shown[kind].ask("/")
        assert (status, content) == (200, "text/html; charset=utf-8")
        for path in ("/varz", "/connz", "/routez", "/subsz", "/healthz"):
            assert f".{path}" in body
            assert shown[kind].ask(path)[0] == 200


def test_many_connections_are_all_listed(shown: dict[str, Shown]) -> None:
    """A long list is sent in pieces; together they are what one piece would be."""
    for kind in (NEWEST, POLYMQ):
        port = shown[kind].server.client_port
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
                connection.recv(4096)
                connection.sendall(b'CONNECT {"verbose":false,"name":"<many>"}\r\nSUB many 1\r\nPING\r\n')
                assert connection.recv(4096).startswith(b"PONG")
            body = shown[kind].ask("/connz?subs=1")[2]
            document = json.loads(body)
            assert document["num_connections"] == len(document["connections"]) == 202
            assert json.dumps(document, indent=2, ensure_ascii=False).replace("<", "\\u003c").replace(">", "\\u003e") == body


def test_routes_are_shown_on_both_sides(tmp_path: Path) -> None:
    """The newest one says as well that nothing is compressed, and which account a connection is for: polymq has one for all."""
    with nats_cluster((POLYMQ, NEWEST), tmp_path) as (polymq, newest):
        (ours,) = polymq.monitored("routez")["routes"]
        (theirs, *_) = [row for row in newest.monitored("routez")["routes"] if row["remote_id"] == polymq.server_id()]
        assert list(ours) == [name for name in theirs if name not in {"compression", "account"}]
        assert (ours["remote_id"], ours["remote_name"]) == (newest.server_id(), newest.name)
        varz, wanted = polymq.monitored("varz"), newest.monitored("varz")
        assert (varz["routes"], varz["remotes"]) == (1, 1)
        assert [name for name in wanted["cluster"] if name != "pool_size"] == list(varz["cluster"])
        assert varz["cluster"]["cluster_port"] == polymq.route_port
        assert polymq.monitored("routez")["num_routes"] == 1
