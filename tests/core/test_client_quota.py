"""Client quotas in virtual time: whose quota counts, and for how long a client pauses."""

from __future__ import annotations

import pytest

from minikafka.core.client_quota import FETCH, KEYS, MUTATION, PAUSE_MS_MAX, PRODUCE, REQUEST, ClientQuotas, MutationBudget
from minikafka.wire.errors import ApiError, ErrorCode

ALICE, ANY_USER = ("user", "alice"), ("user", None)
LOADER, ANY_CLIENT = ("client-id", "loader"), ("client-id", None)
#: By precedence (KIP-55): the entity, and with whom alice's loader shares it.
ORDER = [
    ((LOADER, ALICE), ("alice", "loader")),
    ((ANY_CLIENT, ALICE), ("alice", "loader")),
    ((ALICE,), ("alice", "")),
    ((LOADER, ANY_USER), ("alice", "loader")),
    ((ANY_CLIENT, ANY_USER), ("alice", "loader")),
    ((ANY_USER,), ("alice", "")),
    ((LOADER,), ("", "loader")),
    ((ANY_CLIENT,), ("", "loader")),
]


def quotas(values: dict[object, dict[str, float]]) -> ClientQuotas:
    made = ClientQuotas(11, 1000, 11, 1000)
    made.configure(values)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("number", range(len(ORDER)))
def test_the_nearest_quota_counts(number: int) -> None:
    given = {entity: {PRODUCE: 100.0 + place} for place, (entity, _) in enumerate(ORDER) if place >= number}
    limits = quotas(given).of("alice", "loader", 0)
    assert limits is not None and limits.produce is not None
    assert (limits.produce.limit, limits.produce.share) == (100.0 + number, ORDER[number][1])
    assert (limits.fetch, limits.request, limits.mutation) == (None, None, None)


def test_each_kind_of_quota_is_looked_for_on_its_own() -> None:
    made = quotas({(ALICE,): {PRODUCE: 1.0}, (LOADER,): {FETCH: 2.0}, (ANY_USER,): {REQUEST: 3.0}})
    limits = made.of("alice", "loader", 0)
    assert limits is not None and limits.produce and limits.fetch and limits.request
    assert (limits.produce.limit, limits.fetch.limit, limits.request.limit) == (1.0, 2.0, 3.0)
    assert made.of("bob", "other", 0).fetch is None  # type: ignore[union-attr]
    assert quotas({}).of("alice", "loader", 0) is None


def test_which_clients_share_a_quota() -> None:
    made = quotas({(ALICE,): {PRODUCE: 1.0}, (ANY_CLIENT,): {PRODUCE: 5.0}})
    assert made.of("alice", "a", 0).produce is made.of("alice", "b", 0).produce  # type: ignore[union-attr]
    assert made.of("bob", "a", 0).produce is made.of("carol", "a", 0).produce  # type: ignore[union-attr]
    assert made.of("bob", "a", 0).produce is not made.of("bob", "b", 0).produce  # type: ignore[union-attr]


def test_a_producer_that_obeys_the_throttle_time_is_at_its_rate() -> None:
    made = quotas({(LOADER,): {PRODUCE: 1000.0}})
    now_ms, sent = 5_000, 0
    while now_ms < 65_000:
        meter = made.of("x", "loader", now_ms).produce  # type: ignore[union-attr]
        assert meter is not None
        now_ms += meter.charge(700, now_ms) + 1
        sent += 700
    assert 60_000 <= sent <= 70_700, "a minute at 1,000 bytes a second, and at first ten seconds' worth at once"


def test_a_burst_within_ten_seconds_worth_is_free_and_what_is_beyond_is_paid_for() -> None:
    """(rate - quota) / quota * window: QuotaUtils.throttleTime."""
    meter = quotas({(LOADER,): {PRODUCE: 100.0}}).of("x", "loader", 0).produce  # type: ignore[union-attr]
    assert meter is not None
    assert meter.charge(1000, 20_000) == 0
    assert meter.charge(500, 20_000) == 5_000
    assert meter.pause_ms(25_000) == 5_000, "the rate is of the ten seconds that were taken for granted"
    assert meter.pause_ms(31_000) == 0, "they have gone by"


def test_request_time_is_paid_for_a_window_at_most() -> None:
    meter = quotas({(LOADER,): {REQUEST: 1.0}}).of("x", "loader", 0).request  # type: ignore[union-attr]
    assert meter is not None
    assert meter.charge(100 * 60.0, 0) == 1_000


def test_a_fetch_that_is_not_answered_with_records_is_taken_back() -> None:
    meter = quotas({(LOADER,): {FETCH: 100.0}}).of("x", "loader", 0).fetch  # type: ignore[union-attr]
    assert meter is not None and meter.window_bytes == 1000
    assert meter.charge(1000, 0) == 0
    pause_ms = meter.charge(1000, 10)
    assert pause_ms == 9_990, "of 2,000 bytes in 10.01 s"
    meter.take_back(1000, 10)
    assert meter.pause_ms(10) == 0


def test_changes_of_topics_may_run_into_debt_once() -> None:
    """KIP-599: a bucket of eleven seconds' worth."""
    meter = quotas({(ALICE,): {MUTATION: 2.0}}).of("alice", "x", 0).mutation  # type: ignore[union-attr]
    assert meter is not None
    budget = MutationBudget(meter, 0, is_strict=True)
    for _ in range(3):
        budget.spend(10)
    assert budget.pause_ms == 0
    with pytest.raises(ApiError) as refused:
        budget.spend(1)
    assert (refused.value.code, budget.pause_ms) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 4_000)
    MutationBudget(meter, 4_000, is_strict=True).spend(1)
    old = MutationBudget(meter, 4_000, is_strict=False)
    old.spend(3)
    assert old.pause_ms == 2_000, "a client that knows no such error is obeyed, and pauses"


def test_a_changed_limit_remembers_what_was_spent() -> None:
    made = quotas({(LOADER,): {PRODUCE: 1000.0}})
    made.of("x", "loader", 0).produce.charge(9_000, 0)  # type: ignore[union-attr]
    made.configure({(LOADER,): {PRODUCE: 100.0}})
    meter = made.of("x", "loader", 0).produce  # type: ignore[union-attr]
    assert meter is not None and meter.pause_ms(0) == 80_000
    made.configure({})
    assert made.of("x", "loader", 0) is None and not made.is_active


def test_an_unused_quota_is_forgotten_after_an_hour() -> None:
    made = quotas({(ANY_CLIENT,): {PRODUCE: 10.0}})
    for number in range(50):
        made.of("x", f"client-{number}", 0)
    made.of("x", "client-0", 3_000_000).produce.charge(1, 3_000_000)  # type: ignore[union-attr]
    assert made.sweep(4_000_000) and [meter.share for meter in made.meters()] == [("", "client-0")]
    assert not made.sweep(4_000_001)


def test_connections_of_an_address() -> None:
    made = quotas({(("ip", "10.0.0.1"),): {"connection_creation_rate": 1.0}, (("ip", None),): {"connection_creation_rate": 100.0}})
    assert made.limits_connections and not made.is_active
    taken = sum(made.connection_pause_ms("10.0.0.1", 50 * number) == 0 for number in range(100))
    assert taken == 10, "ten in five seconds: the first ten seconds' worth"
    assert 0 < made.connection_pause_ms("10.0.0.1", 5_000) <= 11_000
    assert made.connection_pause_ms("10.0.0.2", 5_000) == 0


@pytest.mark.parametrize("limit", [5e-324, 1e-320, 1e-9, 1e-3])
@pytest.mark.parametrize("key", KEYS)
def test_the_pause_of_a_tiny_quota_fits_into_a_response(key: str, limit: float) -> None:
    meters = quotas({(LOADER,): {key: limit}}).of("x", "loader", 0)
    assert meters is not None
    meter = next(one for one in (meters.produce, meters.fetch, meters.request, meters.mutation) if one is not None)
    assert 0 < meter.charge(100_000_000, 0) <= PAUSE_MS_MAX < 1 << 31
    budget = MutationBudget(meter, 1, is_strict=True)
    with pytest.raises(ApiError):
        budget.spend(1)
    assert 0 < budget.reported_pause_ms() <= PAUSE_MS_MAX


def test_the_pause_of_a_connection_with_a_tiny_quota_is_bounded() -> None:
    made = quotas({(("ip", None),): {"connection_creation_rate": 5e-324}})
    assert 0 < made.connection_pause_ms("10.0.0.1", 0) <= 11_000
