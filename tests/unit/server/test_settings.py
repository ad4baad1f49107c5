from __future__ import annotations

from polymq.server.settings import PumpSettings, ShellSettings


def test_a_peer_gets_longer_while_it_is_served_than_when_it_is_closed() -> None:
    settings = PumpSettings()
    assert settings.linger_timeout_ns <= settings.close_timeout_ns < settings.write_timeout_ns


def test_stopping_gives_connections_time_to_close() -> None:
    assert ShellSettings().stop_timeout_ns >= PumpSettings().close_timeout_ns


def test_spinning_does_not_outlast_the_event_loops_share() -> None:
    settings = ShellSettings()
    assert settings.spin.spin_ns < settings.busy_ns
