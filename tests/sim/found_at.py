"""Where each planted bug was found the last time: a test that begins there need not search. Nothing depends on it but time.

Print the table anew, when many have moved: `python -m tests.sim.found_at`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from polymq.testing.simulate import simulate
from tests.sim import planted, planted_management, planted_protocols
from tests.sim.planting import BUGS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sim.planting import Bug

__all__ = ["FOUND_AT", "SEEDS_MAX", "search"]

assert planted
assert planted_management
assert planted_protocols
SEEDS_MAX: Final = 1000
FOUND_AT: Final[dict[str, int]] = {
    "acknowledge_before_append": 0,
    "answer_does_not_wait_for_its_commit": 34,
    "missing_sync_before_an_fsync_answer": 34,
    "missing_sync_of_the_journal": 1,
    "readers_see_what_is_not_synced": 44,
    "failed_sync_is_taken_for_a_good_one": 6,
    "off_by_one_at_a_segment_roll": 0,
    "stale_batch_behind_a_cut_tail": 111,
    "multi_publish_is_split": 0,
    "damaged_batch_is_accepted": 0,
    "lost_journal_entry": 0,
    "torn_journal_frame_is_accepted": 4,
    "settle_is_not_journaled": 0,
    "snapshot_forgets_what_is_out": 0,
    "lease_is_granted_twice": 0,
    "lease_ends_early": 0,
    "timeouts_are_ignored": 0,
    "credit_off_by_one": 0,
    "foreign_settle_is_accepted": 0,
    "attempts_are_not_counted": 0,
    "requeue_is_lost": 0,
    "requeue_forgets_its_delay_in_a_crash": 47,
    "deferred_is_released_twice": 4,
    "release_that_the_journal_lost_is_forgotten": 26,
    "deferred_is_lost_in_a_crash": 16,
    "deferred_comes_early": 0,
    "pause_of_a_channel_is_not_kept": 98,
    "paused_channel_delivers_now_and_then": 0,
    "pause_of_a_topic_is_not_kept": 0,
    "emptied_messages_come_back": 10,
    "emptied_messages_come_back_when_they_are_due": 0,
    "ephemeral_channel_outlives_its_process": 7,
    "ephemeral_topic_outlives_its_process": 6,
    "order_is_broken_now_and_then": 33,
    "messages_follow_close_wait": 3,
    "deferred_comes_late": 0,
    "retention_drops_what_a_group_needs": 10,
    "retention_is_impatient": 0,
    "epoch_is_not_written_down": 1,
    "log_port_skips_a_record": 0,
    "log_port_repeats_a_batch": 1,
    "journal_goes_on_after_a_failed_sync": 7,
    "start_that_fails_does_not_say_why": 7,
    "failed_sync_is_kept_to_itself": 6,
    "emptying_a_topic_takes_from_its_channels": 0,
    "deleted_topic_keeps_its_messages": 8,
    "deleted_channel_comes_back": 347,
    "emptying_forgets_what_is_being_synced": 964,
    "send_is_answered_before_it_is_written": 1_000_017,
    "commit_is_not_journaled": 1_000_001,
    "pull_steps_over_a_message": 1_000_001,
    "given_back_is_lost": 1_000_004,
    "given_back_comes_at_once": 1_000_002,
    "put_back_loses_the_copy": 1_000_001,
    "put_back_is_shown_twice": 1_000_001,
    "put_back_hides_a_message": 1_000_001,
    "lifetime_is_forgotten_when_put_back": 1_000_001,
}


def search(bug: Bug) -> int | None:
    """Find a seed that fails with a bug, first where it was the last time; None if there is none."""
    with bug.plant():
        return next((seed for seed in _seeds(bug) if simulate(seed).failure), None)


def _seeds(bug: Bug) -> Iterator[int]:
    if bug.name in FOUND_AT:
        yield FOUND_AT[bug.name]
    yield from range(bug.first, bug.first + SEEDS_MAX)


if __name__ == "__main__":
    for each in BUGS:
        sys.stdout.write(f'    "{each.name}": {search(each)},\n')
