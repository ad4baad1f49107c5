from __future__ import annotations

from polymq.protocols.nsq.settings import NsqSettings


def test_the_largest_count_is_what_the_largest_body_can_hold() -> None:
    assert NsqSettings().multi_publish_count_max == 1_048_575
    assert NsqSettings(body_size_bytes_max=3).multi_publish_count_max == 0
    assert NsqSettings(body_size_bytes_max=9).multi_publish_count_max == 1


def test_the_largest_command_is_an_mpub_with_a_size_that_left_out_its_inner_sizes() -> None:
    settings = NsqSettings(body_size_bytes_max=104)
    assert settings.command_size_bytes_max == 16 * 1024 + 4 + 4 + 20 * 4 + 104
