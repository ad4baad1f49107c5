"""The defaults are those of nats-server; secrets do not show."""

from __future__ import annotations

from polymq.config_values import TcpAddress
from polymq.server.nats_settings import AuthorizationSettings, ClusterSettings, NatsServerSettings, RouteUrl, UserSettings


def test_defaults() -> None:
    settings = NatsServerSettings()
    assert settings.listen == TcpAddress("0.0.0.0", 4222)
    assert (settings.connections_max, settings.subscriptions_max) == (65536, None)
    assert (settings.control_line_size_bytes_max, settings.payload_size_bytes_max, settings.pending_size_bytes_max) == (
        4096,
        1 << 20,
        64 << 20,
    )
    assert (settings.ping_interval_ns, settings.ping_max, settings.write_deadline_ns) == (120 * 10**9, 2, 10 * 10**9)
    assert (settings.lame_duck_duration_ns, settings.lame_duck_grace_period_ns) == (120 * 10**9, 10 * 10**9)
    assert settings.authorization.timeout_ns == 2 * 10**9


def test_secrets_do_not_show() -> None:
    holders = [
        UserSettings("u", "planted"),
        AuthorizationSettings("u", "planted", "planted"),
        ClusterSettings(user="u", password="planted"),
        RouteUrl("h", 1, "u", "planted"),
    ]
    assert "planted" not in repr(holders)
