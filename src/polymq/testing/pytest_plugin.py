"""Fixtures of pytest with a polymq in them; pytest finds this file by its entry point. The only one that imports pytest.

    def test_my_client(polymq_server):            # one per test; polymq_session_server: one for all of them
        client = connect(polymq_server.nsq)

    @pytest.mark.polymq(set={"nsq.msg_timeout": "1s"})
    def test_a_timeout(polymq_server): ...

Read next: `server.py`, which is what the fixtures give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.testing.server import PolymqServer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

__all__ = ["polymq_server", "polymq_session_server", "pytest_configure", "pytest_runtest_makereport"]


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", "polymq(set): settings of polymq_server for this test, for example {'nsq.msg_timeout': '1s'}")


def _settings(request: pytest.FixtureRequest) -> Mapping[str, object]:
    """Read the markers of a test, those near it win; raises UsageError for what the marker does not have."""
    found: dict[str, object] = {}
    for marker in reversed(list(request.node.iter_markers("polymq"))):
        if marker.args or set(marker.kwargs) - {"set"}:
            raise pytest.UsageError("the marker polymq is written polymq(set={'section.key': value})")
        found.update(marker.kwargs.get("set", {}))
    return found


@pytest.fixture
def polymq_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolymqServer]:
    """A polymq for this test alone, on free ports and an empty folder."""
    with PolymqServer(tmp_path_factory.mktemp("polymq"), _settings(request)) as server:
        yield server


@pytest.fixture(scope="session")
def polymq_session_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolymqServer]:
    """A polymq for all tests of the session: quicker, if each of them has topics of its own."""
    with PolymqServer(tmp_path_factory.mktemp("polymq-session")) as server:
        yield server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the log of the servers that a failed test has used."""
    report = yield
    if report.failed and report.when == "call":
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, PolymqServer):
                report.sections.append((f"log of {name}", value.log()))
    return report
