"""When clients may ask and push. Every story was told to Apache Kafka 4.3.0 and 4.4.0 first, with a telemetry plug-in, and ended alike."""

from __future__ import annotations

import random
from itertools import chain

import pytest

from minikafka.core.client_metrics import instances as rules
from minikafka.core.client_metrics.instances import Instance, Instances
from minikafka.core.client_metrics.subscriptions import ATTRIBUTE_CHARACTERS_MAX, Subscriptions
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.push_telemetry import PushTelemetryRequest

INTERVAL_MS = 600
THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class Story:
    """One broker with one subscription, and a clock."""

    def __init__(self, telemetry_max_bytes: int = 1_048_576) -> None:
        self.subscriptions = Subscriptions()
        self.subscriptions.put("s", {"metrics": "a.", "interval.ms": str(INTERVAL_MS)})
        self.instances = Instances(self.subscriptions, telemetry_max_bytes, random.Random(7).randbytes)
        self.now_ms = 5

    def ask(self, instance_id: bytes = bytes(16), connection: object = "c") -> Instance:
        return self.instances.ask(instance_id, {"client_id": "probe"}, connection, self.now_ms)

    def asks(self, instance_id: bytes) -> ErrorCode:
        try:
            self.ask(instance_id)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    def pushes(self, to: Instance | bytes, *, later_ms: int = 0, **fields: object) -> ErrorCode:
        self.now_ms += later_ms
        instance_id = to if isinstance(to, bytes) else to.instance_id
        subscription_id = 5 if isinstance(to, bytes) else to.requested.subscription_id
        given = {"client_instance_id": instance_id, "subscription_id": subscription_id, "metrics": b"x", **fields}
        try:
            self.instances.push(PushTelemetryRequest(**given), {"client_id": "probe"}, "c", self.now_ms)  # type: ignore[arg-type]
        except ApiError as error:
            return error.code
        return ErrorCode.NONE


def test_a_client_asks_once_an_interval_and_pushes_at_once_after_asking() -> None:
    story = Story()
    client = story.ask()
    assert story.asks(client.instance_id) is THROTTLED
    assert [story.pushes(client), story.pushes(client), story.pushes(client, later_ms=INTERVAL_MS - 1)] == [0, THROTTLED, THROTTLED]
    assert story.pushes(client, later_ms=1) == 0
    assert story.asks(client.instance_id) is THROTTLED
    story.now_ms += INTERVAL_MS
    assert [story.asks(client.instance_id), story.pushes(client), story.instances.throttled] == [0, 0, 4]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 9}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_a_client_whose_push_was_refused_may_ask_again_at_once(fields: dict[str, int], code: ErrorCode) -> None:
    story = Story()
    client = story.ask()
    assert story.pushes(client, **fields) is code
    assert [story.asks(client.instance_id), story.pushes(client)] == [0, THROTTLED]
    assert story.pushes(client, later_ms=INTERVAL_MS) == 0


def test_a_push_may_have_so_many_bytes_and_no_more() -> None:
    story = Story(telemetry_max_bytes=10)
    client = story.ask()
    assert story.pushes(client, metrics=bytes(10)) == 0
    assert story.pushes(client, metrics=bytes(11), later_ms=INTERVAL_MS) is ErrorCode.TELEMETRY_TOO_LARGE


def test_a_terminating_push_may_come_early_and_is_the_last_one() -> None:
    story = Story()
    client = story.ask()
    assert [story.pushes(client), story.pushes(client, terminating=True)] == [0, 0]
    assert story.pushes(client, terminating=True) is ErrorCode.INVALID_REQUEST
    assert story.pushes(client) is ErrorCode.INVALID_REQUEST
    # As in Kafka the refused push, which did not terminate, takes the word back.
    assert [story.pushes(client), story.pushes(client, later_ms=INTERVAL_MS)] == [THROTTLED, 0]


@pytest.mark.parametrize("instance_id", sorted(rules.RESERVED_IDS))
def test_a_reserved_id_pushes_nothing(instance_id: bytes) -> None:
    assert Story().pushes(instance_id) is ErrorCode.INVALID_REQUEST


def test_a_client_that_moves_here_must_fetch_its_subscription() -> None:
    story = Story()
    moved = bytes(range(16))
    assert story.pushes(moved) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert [story.asks(moved), story.instances.unknown_subscriptions] == [0, 1]


def test_a_changed_subscription_is_announced_before_the_interval_ends() -> None:
    story = Story()
    client = story.ask()
    story.subscriptions.put("s", {"metrics": "changed."})
    changed = story.ask(client.instance_id)
    assert changed.requested.metrics == ("changed.",)
    assert story.asks(client.instance_id) is THROTTLED
    assert story.pushes(client) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert story.pushes(changed, later_ms=300_000) == 0


def test_a_client_is_forgotten_with_its_connection() -> None:
    story = Story()
    client = story.ask()
    assert story.asks(client.instance_id) is THROTTLED
    assert [story.instances.connection_ended("c"), story.instances.connection_ended("c")] == [client.instance_id, None]
    assert story.asks(client.instance_id) == 0


def expired(story: Story, later_ms: int) -> list[bytes]:
    return [*chain.from_iterable(story.instances.expire(story.now_ms + later_ms))]


def test_a_client_that_says_nothing_is_forgotten() -> None:
    story = Story()
    client = story.ask()
    assert expired(story, rules.EXPIRY_MS_MIN - 1) == []
    assert expired(story, rules.EXPIRY_MS_MIN) == [client.instance_id]
    assert (story.instances.by_id, story.instances.connection_ended("c")) == ({}, None)
    story.subscriptions.put("s", {"metrics": "a.", "interval.ms": "100000"})
    story.ask()
    assert expired(story, 299_999) == [] and len(expired(story, 300_000)) == 1


def test_silent_clients_are_looked_for_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "STEP_INSTANCES", 2)
    story = Story()
    clients = [story.ask(connection=number) for number in range(5)]
    steps = story.instances.expire(story.now_ms + rules.EXPIRY_MS_MIN)
    assert next(steps) == [client.instance_id for client in clients[:2]]
    assert story.instances.connection_ended(2) == clients[2].instance_id
    late = story.ask(connection=5)
    late.heard_ms += rules.EXPIRY_MS_MIN
    assert [*steps][:2] == [[clients[3].instance_id], [clients[4].instance_id]]
    assert [*story.instances.by_id] == [late.instance_id] and [*story.instances._of_connection] == [5]


def test_of_too_many_clients_the_one_heard_of_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "INSTANCES_MAX", 3)
    story = Story()
    first, second, third = (story.ask(connection=number) for number in range(3))
    story.pushes(first)
    story.ask(connection=3)
    assert second.instance_id not in story.instances.by_id
    assert first.instance_id in story.instances.by_id and third.instance_id in story.instances.by_id
    assert len(story.instances.by_id) == 3 and story.instances.connection_ended(1) is None


def test_ids_that_are_given_are_random_and_read_as_no_flag() -> None:
    drawn = iter([bytes([0xFB] * 16), bytes([0xFB] * 16), bytes([7] * 16), bytes([7] * 16), bytes([9] * 16)])
    instances = Instances(Subscriptions(), 1, lambda count: next(drawn))
    ids = [instances.ask(bytes(16), {}, number, 0).instance_id for number in range(2)]
    assert [found.hex() for found in ids] == ["07070707070747078707070707070707", "09090909090949098909090909090909"]


def test_of_long_texts_no_more_is_kept_than_tells_that_they_are_too_long() -> None:
    subscriptions = Subscriptions()
    subscriptions.put("s", {"metrics": "a.", "match": "client_id=x*"})
    instances = Instances(subscriptions, 1000, random.Random(7).randbytes)
    long, short = (instances.ask(bytes(16), {"client_id": "x" * length}, "c", 5) for length in (30_000, ATTRIBUTE_CHARACTERS_MAX))
    assert not long.requested.metrics and short.requested.metrics == ("a.",)
    assert len(long.attributes["client_id"] or "") == ATTRIBUTE_CHARACTERS_MAX + 1
    subscriptions.put("s", {"metrics": "b.", "match": "client_id=x*"})
    again = instances.ask(long.instance_id, {}, "c", 10**9)
    assert not again.requested.metrics
