"""Throttled replication: who is throttled, and how much may go by."""

from __future__ import annotations

from minikafka.core.replication_quota import ReplicationQuota, throttled_partitions


def test_replicas_are_named_by_partition_and_broker_or_all_at_once() -> None:
    assert throttled_partitions(["0:1", "1:2", "2:1", "nonsense"], 1) == {0, 2}
    assert throttled_partitions(["0:1", "*"], 1) is None
    quota = ReplicationQuota()
    assert not quota.applies_to("t", 0)
    quota.configure(1000, {"t": frozenset({0}), "all": None})
    assert (quota.applies_to("t", 0), quota.applies_to("t", 1), quota.applies_to("all", 7)) == (True, False, True)
    quota.configure(None, {"t": None})
    assert not quota.applies_to("t", 0)
    assert not quota.is_active


def test_a_second_is_worth_its_rate_whatever_the_size_of_the_pieces() -> None:
    quota = ReplicationQuota()
    quota.configure(1000, {"t": None})
    now, sent = 10_000, 0
    while now < 20_000:
        wait = quota.wait_ms(now)
        if wait:
            now += wait
            continue
        quota.record(700, now)
        sent += 700
    assert 10_000 <= sent <= 11_500


def test_unused_quota_does_not_accumulate() -> None:
    quota = ReplicationQuota()
    quota.configure(1000, {"t": None})
    assert quota.wait_ms(1_000_000) == 0
    quota.record(3000, 1_000_000)
    assert quota.wait_ms(1_000_000) == 2001
    assert quota.wait_ms(1_002_001) == 0
