from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.protocols.nats import info, problems
from polymq.protocols.nats.info import ClientConnect, Permissions, RouteConnect, ServerInfo
from polymq.protocols.nats.problems import CloseReason

# A line of nats-server 2.9.10 on a route, ids shortened.
ROUTE_INFO = (
    b'{"server_id":"NAWM","server_name":"B","version":"2.9.10","proto":2,"go":"go1.19.8","host":"127.0.0.1","port":24242,"headers":true,'
    b'"max_payload":1048576,"nonce":"T2ZjkxsR6fX_fB8","cluster":"c1","connect_urls":["127.0.0.1:24222"],"lnoc":true} '
)
NATS_PY = b'{"verbose": false, "pedantic": false, "lang": "python3", "version": "2.16.0", "protocol": 1, "headers": true, "no_responders": true, "echo": true}'


def test_the_info_of_a_real_server() -> None:
    assert info.parse_info(ROUTE_INFO) == ServerInfo(
        server_id="NAWM",
        server_name="B",
        version="2.9.10",
        proto=2,
        go="go1.19.8",
        host="127.0.0.1",
        port=24242,
        headers=True,
        max_payload=1_048_576,
        nonce="T2ZjkxsR6fX_fB8",
        cluster="c1",
        connect_urls=("127.0.0.1:24222",),
        lnoc=True,
    )


def test_the_info_of_a_real_server_is_written_as_it_writes_it() -> None:
    found = info.parse_info(ROUTE_INFO)
    assert found is not None
    assert info.write_info(found) == b"INFO " + ROUTE_INFO + b"\r\n"
    assert info.write_info(found, gossip=True) == b"INFO " + ROUTE_INFO.rstrip() + b"\r\n"


def test_what_is_not_said_is_left_out() -> None:
    assert json.loads(info.write_info(ServerInfo())[5:]) == {
        **dict.fromkeys(("server_id", "server_name", "version", "go", "host"), ""),
        **dict.fromkeys(("proto", "port", "max_payload"), 0),
        "headers": False,
    }


texts = st.text(max_size=5)
permissions = st.none() | st.builds(Permissions, st.lists(texts, max_size=2).map(tuple), st.lists(texts, max_size=2).map(tuple))
VALUES = {
    "str": texts,
    "bool": st.booleans(),
    "int": st.integers(0, 255),
    "tuple[str, ...]": st.lists(texts, max_size=3).map(tuple),
    "Permissions | None": permissions,
}
infos = st.builds(ServerInfo, **{each.name: VALUES[str(each.type)] for each in fields(ServerInfo)})


@given(infos, st.booleans())
def test_what_is_written_is_read(given_: ServerInfo, gossip: bool) -> None:
    written = info.write_info(given_, gossip=gossip)
    assert written.startswith(b"INFO {")
    assert written.index(b"\r\n") == len(written) - 2
    assert info.parse_info(written[5:-2]) == given_


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"[]",
        b'{"port":"x"}',
        b'{"port":1.5}',
        b'{"max_payload":2147483648}',
        b'{"client_id":-1}',
        b'{"gossip_mode":256}',
        b'{"headers":1}',
        b'{"connect_urls":"x"}',
        b'{"connect_urls":[1]}',
        b'{"import":5}',
        b'{"import":{"allow":5}}',
        b'{"server_id":null',
        b"{} x",
    ],
)
def test_an_info_that_go_would_not_read(body: bytes) -> None:
    assert info.parse_info(body) is None


def test_an_info_as_go_reads_it() -> None:
    found = info.parse_info(b'{"SERVER_ID":"a","server_id":"b","port":null,"unknown":[{}],"import":{"deny":["a.\\u003e"]},"export":{}}')
    assert found == ServerInfo(server_id="b", permissions_import=Permissions((), ("a.>",)), permissions_export=Permissions())


# --- CONNECT ----------------------------------------------------------------------------------------------------------


def test_the_connect_of_a_real_client() -> None:
    assert info.parse_connect(NATS_PY) == ClientConnect(
        verbose=False, pedantic=False, lang="python3", version="2.16.0", protocol=1, headers=True, no_responders=True, echo=True
    )


def test_what_a_client_does_not_say() -> None:
    found = info.parse_connect(b"{}")
    assert found == info.FIRST_CONNECT
    assert (found.verbose, found.pedantic, found.echo) == (True, True, True)
    assert (found.headers, found.no_responders, found.protocol) == (False, False, 0)


def test_a_second_connect_changes_what_it_says() -> None:
    first = info.parse_connect(b'{"verbose":false,"user":"u","pass":"p"}')
    assert first is not None
    assert info.parse_connect(b'{"echo":false,"user":null}', first) == replace(first, echo=False)


def test_all_kinds_of_logins() -> None:
    found = info.parse_connect(b'{"user":"u","pass":"p","auth_token":"t","jwt":"j","nkey":"UA","sig":"s"}')
    assert found == ClientConnect(user="u", password="p", auth_token="t", jwt="j", nkey="UA", signature="s")
    shown = repr(ClientConnect(password="hidden", auth_token="hidden", jwt="hidden", signature="hidden")) + repr(
        RouteConnect(password="hidden")
    )
    assert "hidden" not in shown


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"verbose":"x"}', b'{"protocol":1.0}', b'{"jwt":5}', b'{"export":[]}', b"{} x"])
def test_a_connect_that_go_would_not_read(body: bytes) -> None:
    assert info.parse_connect(body) is None


def test_what_is_wrong_with_a_connect() -> None:
    auth = (problems.AUTH_VIOLATION, CloseReason.AUTH_VIOLATION)
    protocol = (problems.BAD_CLIENT_PROTOCOL, CloseReason.BAD_CLIENT_PROTOCOL)
    responders = (problems.NO_RESPONDERS_WITHOUT_HEADERS, CloseReason.NO_RESPONDERS_WITHOUT_HEADERS)
    assert info.connect_problem(ClientConnect()) is None
    assert info.connect_problem(ClientConnect(protocol=1, no_responders=True, headers=True)) is None
    assert info.connect_problem(ClientConnect(account="a", protocol=2)) == auth
    assert info.connect_problem(ClientConnect(new_account=True)) == auth
    assert info.connect_problem(ClientConnect(protocol=2, no_responders=True)) == protocol
    assert info.connect_problem(ClientConnect(protocol=-1)) == protocol
    assert info.connect_problem(ClientConnect(no_responders=True)) == responders


def test_the_connect_of_a_real_server() -> None:
    body = b'{"echo":true,"verbose":false,"pedantic":false,"user":"u","pass":"p","tls_required":false,"headers":true,"name":"NA","cluster":"c1","lnoc":true}'
    found = info.parse_route_connect(body)
    assert found == RouteConnect(headers=True, name="NA", cluster="c1", user="u", password="p")
    assert info.route_connect_problem(found) is None
    assert info.write_connect(found) == b"CONNECT " + body.replace(b',"lnoc":true', b"") + b"\r\n"
    assert info.parse_route_connect(b'{"cluster":5}') is None
    assert info.parse_route_connect(b'{"lnoc":5}') is None


def test_a_connect_that_is_written_is_read() -> None:
    connect = RouteConnect(headers=True, name="NA", cluster="c1", cluster_dynamic=True, tls_required=True)
    written = info.write_connect(connect)
    assert b"user" not in written
    assert info.parse_route_connect(written[8:]) == connect


def test_who_is_wrong_on_the_route_port() -> None:
    assert info.route_connect_problem(RouteConnect(lang="go", gateway="G")) == (problems.CLIENT_ON_ROUTE_PORT, CloseReason.WRONG_PORT)
    assert info.route_connect_problem(RouteConnect(gateway="G")) == (problems.wrong_gateway(b"G"), CloseReason.WRONG_GATEWAY)
    assert info.route_connect_problem(RouteConnect(account="a", lang="go")) == (problems.AUTH_VIOLATION, CloseReason.AUTH_VIOLATION)
    assert info.route_connect_problem(RouteConnect(new_account=True)) == (problems.AUTH_VIOLATION, CloseReason.AUTH_VIOLATION)
