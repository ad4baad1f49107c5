"""Fixtures: a server of each kind for the whole session, fresh topics, a client of each library."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

import pytest
from bench.harness.generator import Generator as LoadGenerator

from tests.interop.client_table import Outcomes, Row, page
from tests.interop.dialogue import PLAYED_AGAIN
from tests.interop.jobs import CLIENTS, Client
from tests.interop.servers import KINDS, ROOT, Running, running
from tests.unit.wire.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

NUMBERS = itertools.count()
# What tests have measured and no test judges: their property, and what it is.
MEASURED = {
    "gap": "after kill -9 of the second of three NATS servers",
    "twice": "messages that came twice while members of a RocketMQ group came and went",
    "wait": "while a NATS server does not read its route",
}
# Servers and clients are processes of their own; they run the source beside these tests, installed or not.
os.environ["PYTHONPATH"] = str(ROOT / "src")
# A server is no directory as well unless a test asks for one.
os.environ["POLYMQ_NSQ_LOOKUP_TCP"] = os.environ["POLYMQ_NSQ_LOOKUP_HTTP"] = "off"


def chosen_kinds() -> list[str]:
    """Both servers, unless POLYMQ_INTEROP_SERVERS names some (a tool for development; CI runs both)."""
    named = os.environ.get("POLYMQ_INTEROP_SERVERS", "")
    return [kind for kind in KINDS if not named or kind in named.split(",")]


@pytest.fixture(scope="session", params=chosen_kinds())
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server; tests keep apart by their topics."""
    with running(request.param, tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture(scope="session", params=chosen_kinds())
def impatient(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that takes a message back after a second, for what would otherwise last a minute."""
    with running(request.param, tmp_path_factory.mktemp(f"impatient-{request.param}"), message_timeout_ms=1000) as started:
        yield started


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Who vouches for the servers that have TLS, and for their clients."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session", params=chosen_kinds())
def secure(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Running]:
    """A server that offers TLS."""
    certificate = str(authority.issue("localhost"))
    options = {"tls_cert": certificate, "tls_key": certificate, "tls_root_ca_file": str(authority.certificate)}
    with running(request.param, tmp_path_factory.mktemp(f"secure-{request.param}"), options=options) as started:
        yield started


@pytest.fixture(scope="session")
def generator(tmp_path_factory: pytest.TempPathFactory) -> LoadGenerator:
    """The load generator of the bench."""
    return LoadGenerator(tmp_path_factory.mktemp("loadgen"))


@pytest.fixture
def topic() -> str:
    """A topic that no other test uses."""
    return f"interop-{os.getpid()}-{next(NUMBERS)}"


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    """A client library."""
    found: Client = request.param
    return found


# The table of client libraries: tests marked `cell` speak for a mode (their argument, or the parameter `mode`) of a client (a
# parameter of that type, or the mark's keyword). Only what polymq takes part in counts; nsqd is there as the control.
TABLE = ROOT / "docs" / "CLIENTS.md"
OWN = "polymq.clients.nsq"
ROWS = [*(Row.of(client) for client in CLIENTS), Row(OWN, f"`{OWN}`")]
OUTCOMES = Outcomes()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cell(column, client): speaks for a cell of docs/CLIENTS.md")


# What these prove has to hold at any time: they are tried once.
NATS_ONCE = ("archive", "gaps", "mesh", "routes", "route_abuse", "route_imports", "second_step", "shares")
TRIED_ONCE = {
    *(f"test_nats_{name}" for name in NATS_ONCE),
    "test_rocketmq_groups",
    "test_matrix",
    "test_matrix_groups",
    "test_spark_cluster",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the other tests be tried again: real servers and clients have races of their own; whatever needed it is in the summary."""
    for item in items:
        if item.path.stem not in TRIED_ONCE:
            # Where the server is not ours, the test is a control: what races there is not ours to mend.
            item.add_marker(pytest.mark.flaky(reruns=2 if is_control(item) else 1))


def is_control(item: pytest.Item) -> bool:
    """Whether a test has a server of somebody else's alone."""
    server = item.callspec.params.get("server") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    return isinstance(server, str) and not server.startswith("polymq")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what a test says of its cell."""
    report = yield
    mark = item.get_closest_marker("cell")
    parameters: dict[str, Any] = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    kinds = [kind for value in parameters.values() for kind in (value if isinstance(value, tuple) else (value,))]
    if mark is not None and "polymq" in kinds and (report.when == "call" or report.failed):
        column = mark.args[0] if mark.args else parameters["mode"]
        names = [mark.kwargs["client"]] if mark.kwargs else [value.name for value in parameters.values() if isinstance(value, Client)]
        for name in names:
            OUTCOMES.note(name, column, item.nodeid, passed=report.passed)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the table, or compare it, if the run is one that has to (`make interop`)."""
    wanted = os.environ.get("POLYMQ_CLIENTS_TABLE", "")
    if not wanted:
        return
    assert wanted in {"write", "compare"}, wanted
    missing = OUTCOMES.missing(ROWS)
    found = "" if missing else page(ROWS, OUTCOMES)
    if found and found == TABLE.read_text(encoding="utf-8"):
        said = "is what this run found"
    elif wanted == "write":
        said = f"is left alone: not tried in this run: {', '.join(missing)}" if missing else "is written again: look at the difference"
        if found:
            TABLE.write_text(found, encoding="utf-8")
    else:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        said = f"cannot be compared: not tried: {', '.join(missing)}" if missing else f"is not what this run found, which is\n\n{found}"
    print(f"\n{TABLE.relative_to(ROOT)} {said}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why tests were tried again, and what was measured and is not judged: how long something was felt (MEASURED)."""
    for each in terminalreporter.stats.get("rerun", []):
        terminalreporter.section(f"tried again: {each.nodeid}")
        terminalreporter.write_line(each.longreprtext[-4000:])
    if PLAYED_AGAIN:
        terminalreporter.section("dialogues that were played again, alone, because servers differed")
        terminalreporter.write_line("; ".join(PLAYED_AGAIN))
    for name, title in MEASURED.items():
        found = [text for each in terminalreporter.stats.get("passed", []) for known, text in each.user_properties if known == name]
        if found:
            terminalreporter.section(title)
            for line in sorted(found):
                terminalreporter.write_line(line)
