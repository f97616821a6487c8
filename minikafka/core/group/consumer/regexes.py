"""Subscriptions by pattern: when to resolve a group's patterns, and what a resolution changes.

The core only asks for a resolution; the host resolves the patterns outside the event loop and reports the result. Rules:
GroupMetadataManager.maybeUpdateRegularExpressions of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from minikafka.core.group.consumer.group import ConsumerGroup, ResolvedRegex
from minikafka.core.group.consumer.member import ConsumerMember
from minikafka.core.group.consumer.records import Records, epoch_record, regex_record, regex_tombstone
from minikafka.core.group.consumer.topics import TopicHashes
from minikafka.late_dataclass import dataclass

#: Shortest time between two resolutions of a group's patterns.
REFRESH_INTERVAL_MS_MIN = 10_000


class RegexChange(Enum):
    """How a heartbeat changes its member's pattern."""

    NONE = 0
    CHANGED = 1
    #: The new pattern is already resolved, or the member no longer has a pattern.
    CHANGED_AND_RESOLVED = 2


@dataclass(slots=True)
class RegexPlan:
    """The result of a heartbeat: records to write and patterns to resolve."""

    change: RegexChange = RegexChange.NONE
    records: Records = field(default_factory=list)
    to_resolve: tuple[str, ...] = ()


@dataclass(slots=True, frozen=True)
class RefreshRule:
    """`topics_version`: the metadata version that last created a topic. `interval_ms`: `group.consumer.regex.refresh.interval.ms`.
    `is_resolving`: a resolution of the group is in progress."""

    topics_version: int
    interval_ms: int
    is_resolving: bool
    wall_ms: int


def plan_regexes(group: ConsumerGroup, before: ConsumerMember, updated: ConsumerMember, rule: RefreshRule) -> RegexPlan:
    """The changes of the group's patterns when the member `before` becomes `updated`."""
    old, new = before.subscribed_topic_regex or None, updated.subscribed_topic_regex or None
    if old == new and not group.regexes and new is None:
        return RegexPlan()
    counts = group.subscribed_regexes()
    plan = RegexPlan()
    is_new = False
    if before.subscribed_topic_regex != updated.subscribed_topic_regex:
        plan.change = RegexChange.CHANGED
        if old is not None and counts.get(old, 0) == 1:
            plan.records.append(regex_tombstone(group.group_id, old))
        if new is None:
            if old is not None:
                plan.change = RegexChange.CHANGED_AND_RESOLVED
        elif new not in counts:
            is_new = True
        elif new in group.regexes:
            plan.change = RegexChange.CHANGED_AND_RESOLVED
        _move(counts, old, new)
    if counts and not rule.is_resolving and _is_due(group, rule, len(counts), is_new):
        plan.to_resolve = tuple(counts)
    return plan


def _move(counts: dict[str, int], old: str | None, new: str | None) -> None:
    if old is not None and old in counts:
        counts[old] -= 1
        if not counts[old]:
            del counts[old]
    if new is not None:
        counts[new] = counts.get(new, 0) + 1


def _is_due(group: ConsumerGroup, rule: RefreshRule, count: int, is_new: bool) -> bool:
    last = next(iter(group.regexes.values()), None)
    if last is None:
        return True
    # Below zero, the clock has been set back.
    age_ms = rule.wall_ms - last.wall_ms
    if 0 <= age_ms <= REFRESH_INTERVAL_MS_MIN:
        return False
    return is_new or count != len(group.regexes) or last.version < rule.topics_version or not 0 <= age_ms <= rule.interval_ms


def plan_resolution(group: ConsumerGroup, resolved: Mapping[str, ResolvedRegex], hashes: TopicHashes) -> Records:
    """Records of a resolution: the patterns that still have subscribers, and a new epoch if topics changed."""
    counts = group.subscribed_regexes()
    subscribed = {regex: found for regex, found in resolved.items() if regex in counts}
    records = [regex_record(group.group_id, regex, found) for regex, found in subscribed.items()]
    has_changed = any(group.resolved(regex) != found.topics for regex, found in subscribed.items())
    topics = group.topics_of(list(group.members.values()), {**group.regexes, **subscribed})
    metadata_hash = hashes.of(topics)
    if has_changed or metadata_hash != group.metadata_hash:
        records.append(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
    return records
