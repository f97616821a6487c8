"""Mutations that break rules of consumer, streams and share groups.

Tests that play random lives of groups with members of both protocols catch them, or scenarios of cases that are too rare.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from minikafka.sim.replacements import constant, nothing, take_what_others_own

CONSUMER, STREAMS = "minikafka.core.group.consumer", "minikafka.core.group.streams"
LIVES = ("tests/core/group/consumer/test_mixed_lives.py",)
MIGRATION = ("tests/core/group/consumer/test_migration.py",)
LARGE = ("tests/core/group/consumer/test_large_groups.py",)
STREAMS_LIVES = ("tests/core/group/streams/test_property.py",)
STREAMS_SCENARIOS = ("tests/core/group/streams/test_scenarios.py",)


def _new_partitions_at_the_end(original: Any) -> Any:
    def initialize(self: Any, group: Any, updated: Any, epoch: int, plan: Any, asked: Any) -> None:
        original(self, group, updated, epoch, plan, asked)
        plan.initialize = {topic_id: [(partition, -1) for partition, _ in wanted] for topic_id, wanted in plan.initialize.items()}

    return initialize


def _guarded_in_any_case(original: Any) -> Any:
    return lambda is_served, guarded, handler: guarded


def _give_up_unasked(original: Any) -> Any:
    """What a member has to give up counts as given up at once."""

    def still_owns(self: Any, pending: Any) -> bool:
        return False

    return still_owns


def _forget_the_other_epochs(original: Any) -> Any:
    def check(group: Any, member_id: str, instance_id: Any, epoch: int, version: Any) -> Any:
        member = group.members.get(member_id)
        return original(group, member_id, instance_id, epoch if member is None else min(epoch, member.member_epoch), version)

    return check


def _commit_of_anybody(original: Any) -> Any:
    def checked(group: Any, member_id: str) -> Any:
        return next(iter(group.members.values()), None) or original(group, member_id)

    return checked


def _release_nothing(original: Any) -> Any:
    def put(self: Any, member: Any) -> None:
        released, self.owners = self.owners, {topic_id: dict(owned) for topic_id, owned in self.owners.items()}
        original(self, member)
        for topic_id, owned in released.items():
            for partition, owner in owned.items():
                self.owners.setdefault(topic_id, {}).setdefault(partition, owner)

    return put


def _remember_the_shutdown(original: Any) -> Any:
    def remove(self: Any, member: Any) -> None:
        asked = self.shutdown_by
        original(self, member)
        self.shutdown_by = asked

    return remove


def _without_the_first_target(original: Any) -> Any:
    def changes(group: Any, targets: Any) -> Any:
        return original(group, targets)[1:]

    return changes


def _without_targets(original: Any) -> Any:
    """The classic members' partitions are not theirs when the group becomes a consumer group."""

    def target(member: Any) -> Any:
        return {}

    return target


def _upgraded_without_owners(original: Any) -> Any:
    def member_of(group: Any, member: Any, topics: Any) -> Any:
        return replace(original(group, member, topics), assigned={})

    return member_of


def _keep_the_old_tombstone(original: Any) -> Any:
    """The classic group does not end when the consumer group begins."""

    def records(*arguments: Any) -> Any:
        return original(*arguments)[1:]

    return records


def _downgrade_in_a_new_generation(original: Any) -> Any:
    def downgraded(group: Any, *arguments: Any) -> Any:
        classic = original(group, *arguments)
        classic.generation_id = 0
        return classic

    return downgraded


def _adopt_without_a_rebalance(original: Any) -> Any:
    def adopt(self: Any, group: Any, now_ms: int, *, is_rebalanced: bool) -> None:
        original(self, group, now_ms, is_rebalanced=False)

    return adopt


def _busy_never(original: Any) -> Any:
    """Serve every request at once, whatever is under way."""

    def run(self: Any, group_id: str, work: Any, refuse: Any, now_ms: int) -> None:
        work(now_ms)

    return run


def _batches_without_an_end(original: Any) -> Any:
    def settled(self: Any, is_written: bool, now_ms: int) -> None:
        original(self, True, now_ms)

    return settled


def _targets_of_all(original: Any) -> Any:
    def present(group: Any, targets: Any, instances: Any) -> Any:
        return targets

    return present


GROUP_MUTATIONS: list[dict[str, Any]] = [
    {"name": "takes-owned-partitions", "breaks": "a member takes partitions that others still own",
     "patches": ((f"{CONSUMER}.reconciliation:Reconciliation._take", take_what_others_own),), "tests": LIVES},
    {"name": "revoked-unasked", "breaks": "a partition is reassigned before the member that must give it up confirms",
     "patches": ((f"{CONSUMER}.reconciliation:Reconciliation._still_owns", _give_up_unasked),), "tests": LIVES},
    {"name": "commits-from-the-future", "breaks": "a member commits in an epoch that it is not in",
     "patches": (("minikafka.core.group.coordinator:check_commit", _forget_the_other_epochs),), "tests": LIVES},
    {"name": "commits-of-strangers", "breaks": "a former member can commit",
     "patches": ((f"{CONSUMER}.checks:existing_member", _commit_of_anybody),), "tests": LIVES},
    {"name": "owners-never-released", "breaks": "a partition that a member gives up stays reserved for it",
     "patches": ((f"{CONSUMER}.group:ConsumerGroup._put", _release_nothing),), "tests": LIVES},
    {"name": "leaver-keeps-partitions", "breaks": "the partitions of a departed member stay reserved for it",
     "patches": ((f"{CONSUMER}.group:ConsumerGroup._release", nothing),), "tests": LIVES},
    {"name": "a-target-unwritten", "breaks": "one member's target is not written",
     "patches": ((f"{CONSUMER}.plans:target_changes", _without_the_first_target),), "tests": LIVES},
    {"name": "silent-members-stay", "breaks": "an expired session has no consequence",
     "patches": ((f"{CONSUMER}.sessions:Sessions.take_overdue", constant(value=False)),), "tests": LIVES},
    {"name": "epochs-unchecked", "breaks": "a heartbeat with the wrong member epoch counts",
     "patches": ((f"{CONSUMER}.heartbeat:check_epoch", nothing),), "tests": LIVES},
    {"name": "group-served-while-it-changes", "breaks": "a plan is based on uncommitted state",
     "patches": ((f"{CONSUMER}.turns:Turns.run", _busy_never),), "tests": LIVES},
    {"name": "upgrade-forgets-owners", "breaks": "classic members own nothing when their group becomes a consumer group",
     "patches": ((f"{CONSUMER}.migration:_consumer_member", _upgraded_without_owners),), "tests": LIVES},
    {"name": "upgrade-forgets-targets", "breaks": "classic members have no targets when their group becomes a consumer group",
     "patches": ((f"{CONSUMER}.migration:_target", _without_targets),), "tests": MIGRATION},
    {"name": "upgrade-keeps-the-classic-group", "breaks": "the classic group survives the upgrade",
     "patches": ((f"{CONSUMER}.coordinator:upgrade_records", _keep_the_old_tombstone),), "tests": MIGRATION},
    {"name": "upgrade-unfrozen", "breaks": "a classic group goes on while it becomes a consumer group",
     "patches": (("minikafka.core.group.migrating:MigratingRebalancer.freeze", nothing),), "tests": MIGRATION},
    {"name": "downgrade-begins-anew", "breaks": "the generation decreases when a group becomes classic again",
     "patches": ((f"{CONSUMER}.plans:downgraded_group", _downgrade_in_a_new_generation),), "tests": MIGRATION},
    {"name": "downgrade-without-rebalance", "breaks": "the last consumer's partitions are taken over by nobody",
     "patches": (("minikafka.core.group.migrating:MigratingRebalancer.adopt", _adopt_without_a_rebalance),), "tests": MIGRATION},
    {"name": "classic-members-not-told", "breaks": "a classic member is not told to rejoin",
     "patches": ((f"{CONSUMER}.classic_requests:must_join", constant(value=False)),), "tests": LIVES},
    {"name": "classic-sync-of-old-epochs", "breaks": "a classic member's request with the wrong generation counts",
     "patches": ((f"{CONSUMER}.classic_requests:must_join_before_sync", constant(value=False)),), "tests": MIGRATION},
    {"name": "classic-never-assigned", "breaks": "a consumer group with only classic members gets no new targets",
     "patches": ((f"{CONSUMER}.coordinator:ConsumerGroups.assign_if_due", nothing),), "tests": MIGRATION},
    {"name": "half-written-targets-count", "breaks": "targets that were only partly written count as complete",
     "patches": ((f"{CONSUMER}.assignment:_Writing._settled", _batches_without_an_end),), "tests": LARGE},
    {"name": "targets-of-those-who-left", "breaks": "targets are written for members that have left in the meantime",
     "patches": ((f"{CONSUMER}.assignment:_of_present", _targets_of_all),), "tests": LARGE},
    # -- streams groups
    {"name": "tasks-run-elsewhere", "breaks": "an active task is assigned while another member still runs it",
     "patches": ((f"{STREAMS}.reconciliation:Reconciliation._is_active_taken", constant(value=False)),), "tests": STREAMS_LIVES},
    {"name": "tasks-given-up-unasked", "breaks": "a task is reassigned before the member that must give it up confirms",
     "patches": ((f"{STREAMS}.reconciliation:Reconciliation._has_still", constant(value=False)),), "tests": STREAMS_LIVES},
    {"name": "standby-twice-in-a-process", "breaks": "two members of one process are standbys for the same task",
     "patches": ((f"{STREAMS}.reconciliation:Reconciliation._is_standby_taken", constant(value=False)),), "tests": STREAMS_LIVES},
    {"name": "tasks-never-released", "breaks": "a task that was given up stays reserved",
     "patches": ((f"{STREAMS}.owners:TaskOwners.remove", nothing),), "tests": STREAMS_LIVES},
    {"name": "topics-unnoticed", "breaks": "a streams group does not notice that its topics have changed",
     "patches": ((f"{STREAMS}.coordinator:StreamsGroups.topics_changed", nothing),), "tests": STREAMS_LIVES},
    {"name": "streams-epochs-unchecked", "breaks": "a member's heartbeat with the wrong epoch counts",
     "patches": ((f"{STREAMS}.heartbeat:check_epoch", nothing),), "tests": STREAMS_SCENARIOS},
    {"name": "streams-target-unwritten", "breaks": "one member's target is not written",
     "patches": ((f"{STREAMS}.heartbeat:target_changes", _without_the_first_target),), "tests": STREAMS_LIVES},
    {"name": "streams-commits-of-strangers", "breaks": "a former member can commit",
     "patches": ((f"{STREAMS}.checks:existing_member", _commit_of_anybody),), "tests": STREAMS_LIVES},
    {"name": "first-assignment-never", "breaks": "a new streams group that waited for members gets no assignment",
     "patches": ((f"{STREAMS}.coordinator:StreamsGroups._assign_delayed", nothing),), "tests": STREAMS_SCENARIOS},
    {"name": "shutdown-forever", "breaks": "an application's shutdown request outlives its members",
     "patches": ((f"{STREAMS}.group:StreamsGroup._remove", _remember_the_shutdown),), "tests": STREAMS_SCENARIOS},
    # -- share groups, and protocols that are disabled
    {"name": "new-partitions-at-the-end", "breaks": "a share group skips what is in a topic's new partition before its first fetch",
     "patches": (("minikafka.core.group.share.heartbeat:SharePlanner._initialize", _new_partitions_at_the_end),),
     "tests": ("tests/core/share/test_share_groups.py",)},
    {"name": "authorized-before-disabled", "breaks": "a disabled protocol is authorized before it is refused",
     "patches": (("minikafka.broker.front.dispatch:guarded_while_served", _guarded_in_any_case),),
     "tests": ("tests/broker/test_disabled_protocols.py",)},
]  # fmt: skip
