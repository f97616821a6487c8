"""Subscriptions to clients' metrics. The refusals and ids are those of Apache Kafka 4.3.0 and 4.4.0, which were asked the same."""

from __future__ import annotations

import time
from uuid import UUID

import pytest
from helpers.coverage_pause import without_coverage
from helpers.work_unit import unit_s

from minikafka.core.client_metrics import subscriptions as rules
from minikafka.core.client_metrics.subscriptions import Subscription, Subscriptions, check_subscription
from minikafka.wire.errors import ApiError, ErrorCode

INVALID_CONFIG, INVALID_REQUEST = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST
BETWEEN = "interval must be between 100 and 3600000 (1 hour)"


@pytest.mark.parametrize(
    ("values", "code", "message"),
    [
        ({"interval.ms": "99"}, INVALID_REQUEST, "Invalid value 99 for interval.ms, " + BETWEEN),
        ({"interval.ms": "3600001"}, INVALID_REQUEST, "Invalid value 3600001 for interval.ms, " + BETWEEN),
        ({"interval.ms": "abc"}, INVALID_CONFIG, "Invalid value abc for configuration interval.ms: Not a number of type INT"),
        ({"interval.ms": ""}, INVALID_CONFIG, "Invalid value  for configuration interval.ms: Not a number of type INT"),
        ({"match": "client_id=x=y"}, INVALID_CONFIG, "Illegal client matching pattern: client_id=x=y"),
        ({"match": "client_id"}, INVALID_CONFIG, "Illegal client matching pattern: client_id"),
        ({"match": "foo=bar"}, INVALID_CONFIG, "Illegal client matching pattern: foo=bar"),
        ({"match": "client_id=["}, INVALID_CONFIG, "Illegal client matching pattern: client_id=["),
        ({"match": "client_id="}, INVALID_CONFIG, "Illegal client matching pattern: client_id="),
        ({"match": "client_id=a,,client_id=b"}, INVALID_CONFIG, "Configuration 'match' values must not be empty."),
        ({"metrics": "a, b ,,c"}, INVALID_CONFIG, "Configuration 'metrics' values must not be empty."),
        ({"bogus": "1", "interval.ms": "1"}, INVALID_REQUEST, "Unknown client metrics configuration: bogus"),
    ],
)  # fmt: skip
def test_subscriptions_that_kafka_refuses_are_refused_in_its_words(values: dict[str, str], code: ErrorCode, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        Subscription.of("s", values)
    assert (refused.value.code, refused.value.message) == (code, message)


@pytest.mark.parametrize(
    "values",
    [{"metrics": ""}, {"match": ""}, {"metrics": "a,a"}, {"match": " client_id = a "}, {"interval.ms": " 200 "}, {"match": "client_id=a="}],
)
def test_subscriptions_that_kafka_accepts_are_accepted(values: dict[str, str]) -> None:
    Subscription.of("s", values)


def attributes(**given: str) -> dict[str, str | None]:
    return {**dict.fromkeys(rules.ATTRIBUTES), **given}


def test_a_client_matches_by_whole_attributes_all_of_them() -> None:
    found = Subscription.of("s", {"match": "client_id=prod.*, client_software_name=librdkafka", "metrics": "a."})
    assert found.matches(attributes(client_id="producer-1", client_software_name="librdkafka"))
    assert not found.matches(attributes(client_id="my-producer", client_software_name="librdkafka"))
    assert not found.matches(attributes(client_id="producer-1", client_software_name="librdkafka2"))
    assert not found.matches(attributes(client_id="producer-1"))
    assert Subscription.of("s", {"metrics": "a."}).matches(attributes())


def test_the_last_pattern_of_an_attribute_counts() -> None:
    found = Subscription.of("s", {"match": "client_id=a,client_id=b"})
    assert [found.matches(attributes(client_id=name)) for name in "ab"] == [False, True]


def test_a_client_is_asked_for_what_all_its_subscriptions_name_as_often_as_the_most_eager_one() -> None:
    subscriptions = Subscriptions()
    subscriptions.put("s1", {"metrics": "org.apache.kafka.producer.,a", "interval.ms": "600", "match": "client_id=probe"})
    subscriptions.put("s2", {"metrics": "org.apache.kafka.consumer.,a"})
    subscriptions.put("s3", {"metrics": "*", "interval.ms": "100", "match": "client_id=all"})
    found = subscriptions.requested_metrics(bytes(16), attributes(client_id="probe"))
    assert (sorted(found.metrics), found.interval_ms) == (["a", "org.apache.kafka.consumer.", "org.apache.kafka.producer."], 600)
    found = subscriptions.requested_metrics(bytes(16), attributes(client_id="all"))
    assert (found.metrics, found.interval_ms) == (("*",), 100)
    subscriptions.put("s2", {})
    found = subscriptions.requested_metrics(bytes(16), attributes(client_id="other"))
    assert (found.metrics, found.interval_ms) == ((), 300_000)
    assert (len(subscriptions), subscriptions.version) == (2, 4)


@pytest.mark.parametrize(
    ("instance", "values", "subscription_id"),
    [
        ("12345678-1234-5678-1234-567812345678", {"metrics": "org.apache.kafka.consumer.,org.apache.kafka.a"}, 1053328325),
        ("12345678-1234-5678-1234-567812345670", {"metrics": "*", "interval.ms": "100"}, 899611817),
    ],
)
def test_a_subscription_has_the_id_that_kafka_gives_it(instance: str, values: dict[str, str], subscription_id: int) -> None:
    subscriptions = Subscriptions()
    subscriptions.put("s", values)
    assert subscriptions.requested_metrics(UUID(instance).bytes, attributes()).subscription_id == subscription_id


def test_a_subscription_that_cannot_be_served_replaces_the_old_one_with_none() -> None:
    subscriptions = Subscriptions()
    subscriptions.put("s", {"metrics": "a"})
    with pytest.raises(ApiError):
        subscriptions.put("s", {"match": r"client_id=(?<!a)b"})
    assert len(subscriptions) == 0 and subscriptions.version == 2


def test_bounds() -> None:
    others: list[dict[str, str]] = [{"metrics": "a"}] * (rules.SUBSCRIPTIONS_MAX - 1)
    check_subscription("s", {"metrics": "b"}, others)
    with pytest.raises(ApiError, match="no more than 100 subscriptions"):
        check_subscription("s", {"metrics": "b"}, [*others, {"metrics": "a"}])
    many = ",".join(f"m{number}" for number in range(rules.METRICS_MAX))
    check_subscription("s", {"metrics": many}, [])
    with pytest.raises(ApiError, match="no more than 1000 metrics"):
        check_subscription("s", {"metrics": many}, [{"metrics": "a"}])
    with pytest.raises(ApiError, match="no more than 256 characters"):
        Subscription.of("s", {"metrics": "m" * (rules.METRIC_CHARACTERS_MAX + 1)})
    long = "client_id=" + "a" * rules.PATTERN_CHARACTERS_MAX
    assert Subscription.of("s", {"match": long}).matches(attributes(client_id="a" * 256))
    assert not Subscription.of("s", {"match": "client_id=a*"}).matches(attributes(client_id="a" * 257))
    for bad in (long + "a", r"client_id=\pL", "client_id=(" + "a{100}" * 40 + "){1000}"):
        with pytest.raises(ApiError, match="Illegal client matching pattern"):
            Subscription.of("s", {"match": bad})
    with pytest.raises(ApiError, match="no more than 1000 characters"):
        Subscription.of("s", {"match": ",".join([long] * 4)})


def test_as_much_as_there_may_be_is_matched_within_a_turn() -> None:
    subscriptions = Subscriptions()
    match = ",".join(f"{name}=a*b*[a-z]*" for name in sorted(rules.ATTRIBUTES))
    for number in range(rules.SUBSCRIPTIONS_MAX):
        subscriptions.put(str(number), {"match": match, "metrics": ",".join(f"{number}.metric.{m}" for m in range(10))})
    took_s = []
    with without_coverage():
        for number in range(3):
            started_s = time.thread_time()
            found = subscriptions.requested_metrics(bytes([number] * 16), dict.fromkeys(rules.ATTRIBUTES, "a" * 256))
            took_s.append(time.thread_time() - started_s)
        units = min(took_s) / unit_s()
    assert len(found.metrics) == rules.METRICS_MAX
    assert units < 20
