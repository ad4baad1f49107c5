from __future__ import annotations

from polymq.limits import PENDING_INPUT_SIZE_BYTES_MAX
from polymq.protocols.nats.settings import NatsSettings


def test_the_defaults_are_nats_servers() -> None:
    settings = NatsSettings()
    assert settings.payload_size_bytes_max == 1_048_576
    assert settings.line_size_bytes_max == 4096
    assert settings.connections_max == 65_536
    assert (settings.subscriptions_max, settings.subscription_tokens_max) == (0, 0)
    assert settings.pending_size_bytes_max == 67_108_864
    assert settings.write_deadline_ns == 10_000_000_000
    assert (settings.ping_interval_ns, settings.pings_unanswered_max) == (120_000_000_000, 2)
    assert (settings.auth_timeout_ns, settings.tls_timeout_ns) == (2_000_000_000, 2_000_000_000)
    assert (settings.lame_duck_duration_ns, settings.lame_duck_grace_period_ns) == (120_000_000_000, 10_000_000_000)


def test_a_line_of_a_route_may_be_sixteen_times_longer() -> None:
    assert NatsSettings().route_line_size_bytes_max == 65_536
    assert NatsSettings(line_size_bytes_max=100).route_line_size_bytes_max == 1600


def test_the_largest_command_counts_both_kinds_of_peers() -> None:
    small = NatsSettings(payload_size_bytes_max=10, routed_payload_size_bytes_max=20, line_size_bytes_max=1)
    assert small.command_size_bytes_max == 20 + 16 + 16
    assert NatsSettings(payload_size_bytes_max=10**7).command_size_bytes_max == 10**7 + 4096 + 16
    assert NatsSettings().command_size_bytes_max <= PENDING_INPUT_SIZE_BYTES_MAX
