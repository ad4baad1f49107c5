"""TLS and compression, word by word as nsqd 1.3.0: what is agreed, in which order, and what happens to those who do it wrong."""

from __future__ import annotations

import contextlib
import json
import ssl
import struct
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.dialogue import (
    Case,
    Cases,
    Dialogue,
    Playing,
    Stage,
    Transcripts,
    dpub,
    identify,
    judge,
    mpub,
    played,
    pub,
    sized,
    trusting,
)
from tests.interop.servers import KINDS, running
from tests.unit.wire.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = Cases()
case = CASES.case


@pytest.fixture(scope="module")
def transcripts(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Transcripts:
    identity = str(authority.issue("localhost"))
    tls = {"tls_cert": identity, "tls_key": identity, "tls_root_ca_file": str(authority.certificate)}
    settings: dict[str, dict[str, str]] = {
        "plain": {},
        "off": {"snappy": "false", "deflate": "false"},
        "tls": tls,
        "required": tls | {"tls_required": "tcp-https"},
        "any certificate": tls | {"tls_client_auth_policy": "require", "tls_required": "tcp-https"},
        "known certificate": tls | {"tls_client_auth_policy": "require-verify", "tls_required": "tcp-https"},
        "newest": tls | {"tls_min_version": "tls1.3"},
    }

    @contextlib.contextmanager
    def playing() -> Iterator[Playing]:
        with contextlib.ExitStack() as stack:
            servers = {
                name: {kind: stack.enter_context(running(kind, tmp_path_factory.mktemp(f"{kind}"), options=options)) for kind in KINDS}
                for name, options in settings.items()
            }
            folder = tmp_path_factory.mktemp("clients")
            certificates = {
                "known": authority.issue("known"),
                "expired": authority.issue("old", days=-1),
                "stranger": Authority(folder, "stranger").issue("unknown"),
            }
            yield servers, {"certificates": certificates}

    return played(CASES, playing)


@pytest.mark.parametrize("each", CASES.all, ids=lambda each: each.name)
def test_both_say_the_same(each: Case, transcripts: Transcripts) -> None:
    judge(each, transcripts)


def agreed(stage: Stage, **fields: object) -> Dialogue:
    """Agree, and build up what was agreed on."""
    client = stage.connect()
    granted = client.settings(**fields)
    if granted.get("tls_v1"):
        client.tls()
        client.hear_one("inside TLS")
    if granted.get("snappy"):
        client.snappy()
        client.hear_one("inside snappy")
    if granted.get("deflate"):
        client.deflate()
        client.hear_one("inside deflate")
    return client


def talk(stage: Stage, topic: str, **fields: object) -> None:
    """Agree on something, and use it."""
    client = agreed(stage, **fields)
    client.say("PUB, MPUB, DPUB", pub(topic), mpub(topic, b"a", b"b"), dpub(topic, 0))
    client.say("SUB", f"SUB {topic} c\n".encode())
    client.say("RDY", b"RDY 10\n")
    for each in sorted(client.ids):
        client.send(b"FIN " + each + b"\n")
    client.say("FIN again", b"FIN " + client.ids[0] + b"\n" if client.ids else b"NOP\n")
    if not client.closed:
        statistics(stage, topic)
    client.say("CLS, NOP", b"CLS\n", b"NOP\n")
    client.say("nonsense", b"nonsense\n")


def statistics(stage: Stage, topic: str) -> None:
    """Write down what /stats says of the only consumer, and how the connection is made."""
    status, body = stage.server.request("GET", f"/stats?format=json&topic={topic}")
    assert status == 200
    for found in json.loads(body)["topics"] or []:
        for channel in found["channels"]:
            for client in channel["clients"]:
                shown = {name: value for name, value in client.items() if name not in {"remote_address", "connect_ts", "tls_cipher_suite"}}
                stage.note(f"statistics: {shown}")


def agreements() -> Iterator[dict[str, Any]]:
    yield {}
    for layer in ("tls_v1", "snappy", "deflate"):
        yield {layer: True}
        yield {layer: False}
        yield {layer: None}
        yield {layer: "true"}
        yield {layer: 1}
        yield {layer: True, "feature_negotiation": False}
    yield {"tls_v1": True, "snappy": True}
    yield {"tls_v1": True, "deflate": True}
    yield {"snappy": True, "deflate": True}
    yield {"tls_v1": True, "snappy": True, "deflate": True}
    for level in (-2, -1, 0, 1, 3, 6, 7, 9, 10, 1000, 3.5, "6", None):
        yield {"deflate": True, "deflate_level": level}
        yield {"deflate_level": level}
    yield {"tls_v1": True, "deflate": True, "deflate_level": 9, "sample_rate": 0, "msg_timeout": 5000, "heartbeat_interval": 20000}
    yield {"snappy": True, "output_buffer_size": -1}
    yield {"snappy": True, "output_buffer_size": 64, "output_buffer_timeout": 25}
    yield {"tls_v1": True, "heartbeat_interval": -1}
    yield {"TLS_V1": True, "Snappy": True}


def add_agreements() -> None:
    for server in ("plain", "off", "tls", "required"):
        for number, fields in enumerate(agreements()):

            def play(stage: Stage, number: int = number, fields: dict[str, Any] = fields) -> None:
                talk(stage, f"topic{number}", **fields)

            play.__name__ = f"{server}_{json.dumps(fields).replace(' ', '')}"
            case(server)(play)


add_agreements()


@case("tls")
def identify_again_inside_tls(stage: Stage) -> None:
    client = agreed(stage, tls_v1=True)
    client.say("again, without", identify())
    client.say("again, numbers", identify(msg_timeout=2000, sample_rate=5))
    client.say("wrong", identify(msg_timeout=1))


@case("tls")
def identify_again_with_the_same_compression(stage: Stage) -> None:
    client = agreed(stage, snappy=True)
    client.say("again, without", identify())
    client.say("PUB", pub("again"))


@case("tls")
def tls_in_a_second_identify(stage: Stage) -> None:
    client = stage.connect()
    client.settings()
    client.settings(tls_v1=True)
    client.tls()
    client.hear("inside TLS")
    client.settings(snappy=True)
    client.snappy()
    client.hear("inside snappy in TLS")
    client.say("PUB", pub("second"))


@case("tls")
def compression_in_a_second_identify(stage: Stage) -> None:
    client = stage.connect()
    client.settings(heartbeat_interval=2000)
    client.settings(deflate=True, deflate_level=2)
    client.deflate()
    client.hear("inside deflate")
    client.say("PUB", pub("second"))


@case("tls")
def text_instead_of_a_handshake(stage: Stage) -> None:
    for text in (b"NOP\nNOP\n", b"GET / HTTP/1.1\r\n\r\n", b"{" * 100):
        client = stage.connect()
        client.send(identify(tls_v1=True))
        client.hear("agreed")
        client.say(repr(text), text)


@case("tls")
def the_end_instead_of_a_handshake(stage: Stage) -> None:
    for text in (b"", b"\x16", b"\x16\x03\x01\x00\x05hel"):
        client = stage.connect()
        client.send(identify(tls_v1=True))
        client.hear("agreed")
        client.send(text)
        client.finish()
        client.hear(f"the end after {text!r}")


@case("tls")
def a_client_that_does_not_trust(stage: Stage) -> None:
    client = stage.connect()
    client.settings(tls_v1=True)
    client.tls(ssl.create_default_context())


def old(version: ssl.TLSVersion) -> ssl.SSLContext:
    context = trusting()
    context.maximum_version = version
    return context


@case("tls")
def version_12(stage: Stage) -> None:
    client = stage.connect()
    client.settings(tls_v1=True)
    client.tls(old(ssl.TLSVersion.TLSv1_2))
    client.hear("inside TLS")
    client.send(b"SUB version12 c\n")
    client.hear("SUB")
    statistics(stage, "version12")


@case("newest")
def version_12_where_13_is_wanted(stage: Stage) -> None:
    client = stage.connect()
    client.settings(tls_v1=True)
    client.tls(old(ssl.TLSVersion.TLSv1_2))


@case("newest")
def version_13_where_13_is_wanted(stage: Stage) -> None:
    agreed(stage, tls_v1=True)


@case("tls")
def another_protocol_is_asked_for(stage: Stage) -> None:
    context = trusting()
    context.set_alpn_protocols(["h2", "http/1.1"])
    client = stage.connect()
    client.settings(tls_v1=True)
    client.tls(context)
    client.hear("inside TLS")


@case("tls")
def a_certificate_that_nobody_asked_for(stage: Stage) -> None:
    context = trusting()
    context.load_cert_chain(stage.more["certificates"]["stranger"])
    client = stage.connect()
    client.settings(tls_v1=True)
    client.tls(context)
    client.hear("inside TLS")


def add_certificates() -> None:
    for server in ("any certificate", "known certificate"):
        for name in ("none", "known", "stranger", "expired"):
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):

                def play(stage: Stage, name: str = name, version: ssl.TLSVersion = version) -> None:
                    context = old(version)
                    if name != "none":
                        context.load_cert_chain(stage.more["certificates"][name])
                    client = stage.connect()
                    client.settings(tls_v1=True)
                    if client.tls(context):
                        client.hear("inside TLS")
                        client.say("PUB", pub("certificates"))

                play.__name__ = f"{server.replace(' ', '_')}_{name}_{version.name}"
                case(server)(play)


add_certificates()


@case("tls")
def nonsense_inside_tls(stage: Stage) -> None:
    client = agreed(stage, tls_v1=True)
    client.say("nonsense", b"nonsense\n")


@case("tls")
def the_end_inside_tls(stage: Stage) -> None:
    client = agreed(stage, tls_v1=True)
    client.send(b"PUB end\n" + struct.pack(">i", 10) + b"half")
    client.finish()
    client.hear("the end")


@case("tls")
def nonsense_instead_of_snappy(stage: Stage) -> None:
    stream = b"\xff\x06\x00\x00sNaPpY"
    for name, data in {
        "plain text": b"NOP\nNOP\nNOP\n",
        "no identifier": b"\x01\x08\x00\x00\x00\x00\x00\x00NOP\n",
        "another identifier": b"\xff\x06\x00\x00sNaPpX",
        "a wrong sum": stream + b"\x01\x08\x00\x00\x00\x00\x00\x00NOP\n",
        "a reserved chunk": stream + b"\x02\x01\x00\x00x",
        "a chunk to be skipped": stream + b"\x80\x01\x00\x00x",
        "padding": stream + b"\xfe\x03\x00\x00xyz",
        "an empty chunk": stream + b"\x01\x04\x00\x00" + bytes.fromhex("d8ea82a2"),
        "a chunk that is too short": stream + b"\x00\x02\x00\x00xx",
        "a broken chunk": stream + b"\x00\x0a\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff",
    }.items():
        client = agreed(stage, snappy=True)
        client.plain()
        client.say(name, data)


@case("tls")
def nonsense_instead_of_deflate(stage: Stage) -> None:
    for name, data in {
        "plain text": b"NOP\nNOP\nNOP\n",
        "a reserved block": b"\x07\x00\x00",
        "the last block": b"\x03\x00",
        "an empty stored block": b"\x00\x00\x00\xff\xff",
        "a stored block of wrong length": b"\x00\x01\x00\x00\x00x",
    }.items():
        client = agreed(stage, deflate=True)
        client.plain()
        client.say(name, data)


@case("tls")
def large_messages_inside_everything(stage: Stage) -> None:
    body = b"".join(struct.pack(">i", number) for number in range(100_000))
    modes: list[dict[str, Any]] = [{"snappy": True}, {"deflate": True, "deflate_level": 1}]
    for number, fields in enumerate([*modes, *({"tls_v1": True, **mode} for mode in modes)]):
        client = agreed(stage, **fields)
        client.say("PUB", pub(f"large{number}", body))
        client.say("SUB, RDY", b"SUB large%d c\nRDY 1\n" % number)
        client.say("too large", b"PUB large%d\n" % number + struct.pack(">i", (1 << 20) + 1))


def commands() -> dict[str, bytes]:
    return {
        "NOP": b"NOP\n",
        "PUB": pub("t"),
        "PUB without a topic": b"PUB\n",
        "MPUB": mpub("t", b"x"),
        "DPUB": dpub("t", 0),
        "SUB": b"SUB t c\n",
        "SUB, wrong": b"SUB\n",
        "RDY": b"RDY 1\n",
        "FIN": b"FIN 0123456789abcdef\n",
        "REQ": b"REQ 0123456789abcdef 0\n",
        "TOUCH": b"TOUCH 0123456789abcdef\n",
        "CLS": b"CLS\n",
        "AUTH": b"AUTH\n" + sized(b"secret"),
        "unknown": b"HELLO world\n",
        "empty": b"\n",
        "lower case": b"identify\n",
        "IDENTIFY, wrong": b"IDENTIFY\n" + sized(b"["),
    }


def add_commands() -> None:
    for server in ("required", "known certificate"):
        for name, command in commands().items():

            def play(stage: Stage, command: bytes = command) -> None:
                first = stage.connect("at once")
                first.say("", command)
                agreed = stage.connect("after IDENTIFY")
                agreed.say("", identify(), command)
                plain = stage.connect("after IDENTIFY without negotiation")
                plain.say("", identify(feature_negotiation=False, tls_v1=True), command)

            play.__name__ = f"{server.replace(' ', '_')}_{name.replace(' ', '_')}"
            case(server)(play)


add_commands()


@case("required")
def tls_after_a_first_identify_without(stage: Stage) -> None:
    client = stage.connect()
    client.settings()
    client.settings(tls_v1=True)
    client.tls()
    client.hear("inside TLS")
    client.say("IDENTIFY again", identify())
    client.say("PUB", pub("later"))


@case("required")
def compression_without_tls(stage: Stage) -> None:
    client = agreed(stage, snappy=True)
    client.say("PUB", pub("without"))
