"""Topics: Kafka's checks and words, placement, configuration."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import pytest
from helpers.controller_core import ControllerDriver

from minikafka.core.client_quota import MUTATION, Meter, MutationBudget
from minikafka.core.controller.forwarded import TRIES_MAX, Forwarded, SeenTopic
from minikafka.core.controller.placement import UsableBroker, place_replicas
from minikafka.core.controller.topics import TopicControl
from minikafka.core.topic_name import topic_name_fault
from minikafka.steps import at_once
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from minikafka.wire.messages.alter_configs import AlterConfigsRequest
from minikafka.wire.messages.create_partitions import CreatePartitionsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest
from minikafka.wire.messages.update_features import UpdateFeaturesRequest


@pytest.fixture
def driver() -> ControllerDriver:
    driver = ControllerDriver()
    driver.start(1, 2, 3)
    return driver


def test_a_topic_with_everything_left_to_defaults(driver: ControllerDriver) -> None:
    result = driver.create("t")
    assert (result.error_code, result.error_message, result.num_partitions, result.replication_factor) == (0, None, 1, 1)
    assert driver.image.topics_by_id[result.topic_id].name == "t"
    assert result.topic_id[6] >> 4 == 4


@pytest.mark.parametrize(
    ("name", "options", "code", "message"),
    [
        ("old", {}, ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'old' already exists."),
        ("", {}, ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        ("..", {}, ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '..' is not allowed"),
        (
            "bad/name",
            {},
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'bad/name' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        ("a_b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'a_b' collides with existing topic: a.b"),
        ("t", {"partitions": 0}, ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
        (
            "t",
            {"factor": 0},
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            "t",
            {"factor": 5},
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 5 time(s): The target replication factor of 5 cannot be reached because only 3 broker(s) "
            "are registered or some brokers have all their log directories cordoned.",
        ),
        (
            "t",
            {"assignments": [[1]], "factor": 1},
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
        (
            "t",
            {"assignments": [[9]]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            "t",
            {"assignments": [[1, 1]]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            "t",
            {"assignments": [[1, 2], [1]]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 1 replica(s), but this is not consistent with previous partitions, "
            "which have 2 replica(s).",
        ),
        (
            "t",
            {"assignments": [[]]},
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        ("t", {"configs": {"no.such": "1"}}, ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
        (
            "t",
            {"configs": {"retention.ms": "x"}},
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            "t",
            {"configs": {"retention.ms": None}},
            ErrorCode.INVALID_CONFIG,
            "Null value not supported for topic configs: retention.ms",
        ),
        ("__cluster_metadata", {}, ErrorCode.INVALID_REQUEST, "Creation of internal topic __cluster_metadata is prohibited."),
    ],
)
def test_topics_that_are_refused(driver: ControllerDriver, name: str, options: dict, code: ErrorCode, message: str) -> None:
    driver.create("old")
    driver.create("a.b")
    result = driver.create(name, **options)
    assert (ErrorCode(result.error_code), result.error_message) == (code, message)
    assert driver.last_records == []


def test_one_bad_topic_does_not_hold_up_the_others(driver: ControllerDriver) -> None:
    topics = [
        CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=factor)
        for name, factor in (("good", 3), ("bad", 9), ("twice", 1), ("twice", 1), ("a.b", 1), ("a_b", 1))
    ]
    response = driver.do(CreateTopicsRequest(topics=topics))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("good", 0), ("bad", 38), ("twice", 42), ("a.b", 0), ("a_b", 0),
    ]  # fmt: skip
    assert sorted(driver.image.topics_by_name) == ["a.b", "a_b", "good"]


def test_partitions_beyond_reason_are_refused_whole(driver: ControllerDriver) -> None:
    with pytest.raises(ApiError, match="Excessively large number of partitions per request") as caught:
        driver.create("t", partitions=2**31 - 1, factor=1)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_assignments_must_be_consecutive(driver: ControllerDriver) -> None:
    assignment = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=1, broker_ids=[1])
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment])
    result = driver.do(CreateTopicsRequest(topics=[topic])).topics[0]
    assert result.error_message == "partitions should be a consecutive 0-based integer sequence"


def test_validate_only_creates_nothing(driver: ControllerDriver) -> None:
    assert driver.create("t", validate_only=True).error_code == 0
    assert "t" not in driver.image.topics_by_name


def test_records_of_a_topic_come_in_kafkas_order(driver: ControllerDriver) -> None:
    driver.create("t", partitions=2, factor=1, configs={"min.insync.replicas": "2"})
    kinds = [type(record).__name__ for record in driver.last_records]
    assert kinds == ["TopicRecord", "ConfigRecord", "ClearElrRecord", "PartitionRecord", "PartitionRecord"]


def test_a_fenced_broker_is_no_member_of_a_new_isr(driver: ControllerDriver) -> None:
    driver.fence(2)
    result = driver.create("t", [[2, 1, 3]])
    assert result.error_code == 0
    assert (driver.partition("t").leader, driver.partition("t").isr) == (1, (1, 3))
    refused = driver.create("u", [[2]])
    assert refused.error_message == (
        "All brokers specified in the manual partition assignment for partition 0 are fenced or in controlled shutdown."
    )


def test_more_partitions(driver: ControllerDriver) -> None:
    driver.create("t", [[1, 2]])

    def grow(name: str, count: int, assignments: list[list[int]] | None = None) -> tuple[int, str | None]:
        given = None
        if assignments is not None:
            given = [CreatePartitionsRequest.CreatePartitionsAssignment(broker_ids=replicas) for replicas in assignments]
        topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=given)
        result = driver.do(CreatePartitionsRequest(topics=[topic])).results[0]
        return result.error_code, result.error_message

    assert grow("t", 1) == (ErrorCode.INVALID_PARTITIONS, "Topic already has 1 partition(s).")
    assert grow("t", 0)[1] == "The topic t currently has 1 partition(s); 0 would not be an increase."
    assert grow("missing", 2) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    assert grow("t", 3, [[1, 2]])[1] == "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."
    many = (ErrorCode.POLICY_VIOLATION, "Excessively large number of additional partitions per request.")
    assert grow("t", 1_000_000) == grow("t", 1_000_000, [[1, 2]]) == many
    assert grow("t", 3) == (0, None)
    assert len(driver.image.topics_by_name["t"].partitions) == 3
    assert len(driver.partition("t", 2).replicas) == 2
    assert grow("t", 4, [[3, 1]]) == (0, None)
    assert driver.partition("t", 3).replicas == (3, 1)


def test_deleting(driver: ControllerDriver) -> None:
    driver.create("t")
    kept = driver.create("u").topic_id

    def delete(*states: tuple[str | None, bytes]) -> list[tuple[str | None, int, str | None]]:
        topics = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]
        return [(r.name, r.error_code, r.error_message) for r in driver.do(DeleteTopicsRequest(topics=topics)).responses]

    assert delete(("missing", bytes(16))) == [("missing", 3, "This server does not host this topic-partition.")]
    assert delete((None, b"x" * 16)) == [(None, 100, "This server does not host this topic ID.")]
    assert delete((None, bytes(16))) == [(None, 42, "Neither topic name nor id were specified.")]
    assert delete(("t", bytes(16)), ("t", bytes(16))) == [("t", 42, "Duplicate topic name.")]
    assert delete(("t", bytes(16))) == [("t", 0, None)]
    assert delete((None, kept)) == [("u", 0, None)]
    assert not driver.image.topics_by_name
    old = driver.create("t").topic_id
    assert driver.do(DeleteTopicsRequest(topic_names=["t"]), 5).responses[0].error_code == 0
    assert driver.create("t").topic_id != old


def test_topic_names() -> None:
    assert topic_name_fault("ok-1._") is None
    assert topic_name_fault("x" * 249) is None
    assert "longer than the max allowed length 249" in (topic_name_fault("x" * 250) or "")
    assert topic_name_fault("\u00fc") is not None
    assert topic_name_fault("a\n") is not None


# -- placement -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_placement_spreads_leaders_and_racks(seed: int) -> None:
    brokers = [UsableBroker(index, f"rack-{index % 3}", False) for index in range(6)]
    placed = place_replicas(brokers, 60, 3, random.Random(seed))
    leaders = Counter(replicas[0] for replicas in placed)

    assert all(len(set(replicas)) == 3 for replicas in placed)
    assert all(len({broker % 3 for broker in replicas}) == 3 for replicas in placed)
    assert set(leaders.values()) == {10}
    holds = Counter(broker for replicas in placed for broker in replicas)
    assert max(holds.values()) - min(holds.values()) <= 12


@pytest.mark.parametrize("seed", range(10))
def test_placement_on_two_racks_of_two(seed: int) -> None:
    brokers = [UsableBroker(index, f"rack-{index % 2}", False) for index in range(4)]
    placed = place_replicas(brokers, 40, 2, random.Random(seed))
    assert Counter(replicas[0] for replicas in placed) == {0: 10, 1: 10, 2: 10, 3: 10}
    assert all({broker % 2 for broker in replicas} == {0, 1} for replicas in placed)


def test_fenced_brokers_never_lead_and_come_last() -> None:
    brokers = [UsableBroker(1, None, False), UsableBroker(2, None, True), UsableBroker(3, None, False), UsableBroker(4, None, True)]
    placed = place_replicas(brokers, 30, 3, random.Random(3))
    assert {replicas[0] for replicas in placed} == {1, 3}
    assert all(set(replicas[:2]) == {1, 3} for replicas in placed)
    with pytest.raises(ApiError, match="All brokers are currently fenced"):
        place_replicas([UsableBroker(1, None, True)], 1, 1, random.Random(0))


def test_placement_with_uneven_racks_terminates() -> None:
    brokers = [UsableBroker(1, "a", True), UsableBroker(2, "b", False), UsableBroker(3, "b", False), UsableBroker(4, None, False)]
    for factor in (1, 2, 3, 4):
        placed = place_replicas(brokers, 50, factor, random.Random(factor))
        assert all(len(set(replicas)) == factor for replicas in placed)
        assert all(replicas[0] != 1 for replicas in placed)


# -- configuration -------------------------------------------------------------------------------------------------


def test_incremental_changes(driver: ControllerDriver) -> None:
    driver.create("t")
    assert driver.configure(2, "t", "retention.ms", "5") == (ErrorCode.NONE, None)
    assert driver.configure(2, "t", "retention.ms", "5") == (ErrorCode.NONE, None)
    assert driver.last_records == []
    assert driver.configure(2, "t", "cleanup.policy", "compact", 2) == (ErrorCode.NONE, None)
    assert driver.image.config(2, "t") == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert driver.configure(2, "t", "cleanup.policy", "delete", 3)[0] is ErrorCode.NONE
    assert driver.image.config(2, "t")["cleanup.policy"] == "compact"
    assert driver.configure(2, "t", "retention.ms", None, 1)[0] is ErrorCode.NONE
    assert "retention.ms" not in driver.image.config(2, "t")
    assert driver.configure(2, "t", "retention.ms", "1", 2)[0] is ErrorCode.INVALID_CONFIG
    assert driver.configure(2, "t", "retention.ms", "1", 9)[0] is ErrorCode.INVALID_REQUEST
    assert driver.configure(2, "t", "no.such", "1") == (ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such")
    assert driver.configure(2, "missing", "retention.ms", "1") == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "The topic 'missing' does not exist.",
    )
    assert driver.configure(4, "77", "x", "1")[0] is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert driver.configure(4, "one", "x", "1")[0] is ErrorCode.INVALID_REQUEST
    assert driver.configure(99, "t", "x", "1")[0] is ErrorCode.INVALID_REQUEST


def test_the_older_api_replaces_everything(driver: ControllerDriver) -> None:
    driver.create("t", configs={"retention.ms": "5", "segment.bytes": "9"})
    entry = AlterConfigsRequest.AlterableConfig(name="retention.ms", value="7")
    resource = AlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="t", configs=[entry])
    driver.do(AlterConfigsRequest(resources=[resource]))
    assert driver.image.config(2, "t") == {"retention.ms": "7"}


def test_min_isr_of_the_cluster_is_one_when_replicas_may_be_eligible(driver: ControllerDriver) -> None:
    driver.create("t", [[1, 2, 3]])
    driver.configure(4, "", "min.insync.replicas", "2")
    driver.alter_isr("t", [1])
    assert driver.partition("t").elr == (2, 3)
    assert driver.configure(4, "1", "min.insync.replicas", "1")[0] is ErrorCode.INVALID_CONFIG
    assert driver.configure(4, "", "min.insync.replicas", "1")[0] is ErrorCode.NONE
    assert driver.partition("t").elr == ()


def test_quotas(driver: ControllerDriver) -> None:
    def alter(entity: list[tuple[str, str | None]], key: str, value: float = 0.0, remove: bool = False) -> int:
        entry = AlterClientQuotasRequest.EntryData(
            entity=[AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[AlterClientQuotasRequest.OpData(key=key, value=value, remove=remove)],
        )
        return driver.do(AlterClientQuotasRequest(entries=[entry])).entries[0].error_code

    assert alter([("client-id", "slow")], "producer_byte_rate", 1048576.0) == 0
    assert driver.image.client_quotas == {(("client-id", "slow"),): {"producer_byte_rate": 1048576.0}}
    assert alter([("client-id", "slow")], "producer_byte_rate", -1) == ErrorCode.INVALID_REQUEST
    assert alter([("client-id", "slow")], "no.such", 1) == ErrorCode.INVALID_REQUEST
    assert alter([], "producer_byte_rate", 1) == ErrorCode.INVALID_REQUEST
    assert alter([("ip", "1.2.3.4"), ("user", "u")], "connection_creation_rate", 1) == ErrorCode.INVALID_REQUEST
    assert alter([("user", None), ("client-id", None)], "request_percentage", 50.5) == 0
    assert alter([("client-id", "slow")], "producer_byte_rate", remove=True) == 0
    assert list(driver.image.client_quotas) == [(("client-id", None), ("user", None))]


def test_features(driver: ControllerDriver) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="no.such", max_version_level=1)
    with pytest.raises(ApiError) as caught:
        driver.do(UpdateFeaturesRequest(feature_updates=[update]))
    assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert caught.value.message == (
        "The update failed for all features since the following feature had an error: Invalid update version 1 for feature no.such. "
        "Local controller 0 does not support this feature."
    )
    down = UpdateFeaturesRequest.FeatureUpdateKey(feature="transaction.version", max_version_level=0)
    with pytest.raises(ApiError, match="without setting the upgrade type"):
        driver.do(UpdateFeaturesRequest(feature_updates=[down]))
    down.upgrade_type = 2
    driver.do(UpdateFeaturesRequest(feature_updates=[down]))
    assert "transaction.version" not in driver.image.features


LOSS = (
    "Unsupported metadata.version downgrade from 33 to {}. "
    "Refusing to perform the requested downgrade because it might delete metadata information."
)


@pytest.mark.parametrize(
    ("now", "level", "kind", "fault"),
    [
        (30, 33, 1, None), (31, 33, 1, None), (33, 33, 1, None), (31, 31, 2, None), (31, 30, 2, None), (31, 30, 3, None),
        (33, 32, 1, "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."),
        (33, 32, 2, LOSS.format(32)), (33, 30, 2, LOSS.format(30)), (33, 7, 2, LOSS.format(7)),
        (33, 30, 3, "Unsupported metadata.version downgrade from 33 to 30. Unsafe metadata downgrade is not supported in this version."),
        (31, 32, 2, "Can't downgrade to a newer version."), (31, 29, 2, "downgrade from 31 to 29."),
        (33, 34, 1, "Local controller 0 only supports versions 7-33"), (33, 0, 2, "Local controller 0 only supports versions 7-33"),
    ],
)  # fmt: skip
def test_the_metadata_version_goes_up_and_down_as_in_kafka(now: int, level: int, kind: int, fault: str | None) -> None:
    """What Apache Kafka 4.4.0 answered, at 4.4-IV2 and at 4.4-IV0."""
    driver = ControllerDriver()
    key = UpdateFeaturesRequest.FeatureUpdateKey
    if now != driver.image.features["metadata.version"]:
        driver.do(UpdateFeaturesRequest(feature_updates=[key(feature="metadata.version", max_version_level=now)]))
    request = UpdateFeaturesRequest(feature_updates=[key(feature="metadata.version", max_version_level=level, upgrade_type=kind)])
    if fault is None:
        driver.do(request)
    else:
        with pytest.raises(ApiError, match=re.escape(fault)):
            driver.do(request)
    assert driver.image.features["metadata.version"] == (level if fault is None else now)


def test_a_thousand_partitions_are_one_batch(driver: ControllerDriver) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="big", num_partitions=1000, replication_factor=3)
    result = at_once(driver.core.handle(CreateTopicsRequest(topics=[topic]), 7, driver.now_ms))
    at_once(driver.core.replay(result.records, len(driver.log)))
    assert len(result.records) == 1001


def forward(driver: ControllerDriver, tries: int, *names: str, key: bytes = b"k" * 16) -> list[tuple[ErrorCode, bytes]]:
    topics = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=3) for name in names]
    answers = driver.do(CreateTopicsRequest(topics=topics), forwarded=Forwarded(key, tries)).topics
    return [(ErrorCode(answer.error_code), answer.topic_id) for answer in answers]


def test_a_topic_that_was_made_when_a_request_was_sent_before_is_made_and_not_there_already(driver: ControllerDriver) -> None:
    """The controller dies when it has written the topics; the broker, which had no answer, asks its successor."""
    first = forward(driver, 0, "a", "b")
    assert {code for code, _ in first} == {ErrorCode.NONE} and len({topic_id for _, topic_id in first}) == 2
    driver.fail_over()
    assert forward(driver, 1, "a", "b", "c")[:2] == first
    assert [record.name for record in driver.last_records if hasattr(record, "name")] == ["c"], "only what is new is written"
    answer = driver.do(
        CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="a")]), forwarded=Forwarded(b"k" * 16, 2)
    ).topics[0]
    assert (answer.num_partitions, answer.replication_factor) == (2, 3), "as it is, whatever is asked for now"
    assert forward(driver, 7, "c")[0][0] is ErrorCode.NONE, "whichever of the earlier sendings made it"


def test_a_topic_of_another_application_exists_already(driver: ControllerDriver) -> None:
    forward(driver, 0, "a")
    for tries, key in [(0, b"k" * 16), (0, b"o" * 16), (5, b"o" * 16), (TRIES_MAX, b"o" * 16)]:
        assert forward(driver, tries, "a", key=key)[0][0] is ErrorCode.TOPIC_ALREADY_EXISTS
    assert driver.create("a").error_code == ErrorCode.TOPIC_ALREADY_EXISTS, "from a broker that does not say how often it has asked"


def test_no_topic_id_is_used_twice(driver: ControllerDriver) -> None:
    """Between two sendings somebody deletes the topic: whoever has a replica of it must not take it for the new one's."""
    ids = set()
    for tries in range(4):
        ((code, topic_id),) = forward(driver, tries, "a")
        assert code is ErrorCode.NONE and topic_id[6] >> 4 == 4
        ids.add(topic_id)
        driver.do(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="a", topic_id=bytes(16))]))
    assert len(ids) == 4


def seen(driver: ControllerDriver, *names: str) -> tuple[SeenTopic, ...]:
    """What a broker knows."""
    topics = [driver.image.topics_by_name[name] for name in names]
    return tuple(SeenTopic(topic.name, topic.topic_id, len(topic.partitions)) for topic in topics)


def delete_again(
    driver: ControllerDriver, before: tuple[SeenTopic, ...], *topics: tuple[str | None, bytes], tries: int = 1
) -> list[ErrorCode]:
    states = [DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    answers = driver.do(DeleteTopicsRequest(topics=states), forwarded=Forwarded(b"k" * 16, tries, before)).responses
    return [ErrorCode(answer.error_code) for answer in answers]


def test_a_topic_that_was_deleted_when_a_request_was_sent_before_is_deleted_and_not_unknown(driver: ControllerDriver) -> None:
    for name in ("a", "b", "c"):
        driver.create(name)
    before = seen(driver, "a", "b", "c")
    topic_id = before[1].topic_id
    driver.do(DeleteTopicsRequest(topic_names=["a", "b"]), 5, Forwarded(b"k" * 16, 0))
    driver.fail_over()
    again = driver.do(DeleteTopicsRequest(topic_names=["a", "c", "d"]), 5, Forwarded(b"k" * 16, 1, before)).responses
    assert [(topic.name, topic.error_code) for topic in again] == [("a", 0), ("c", 0), ("d", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert again[0].topic_id == before[0].topic_id and len(driver.last_records) == 1, "only what is there is removed"
    assert delete_again(driver, before, (None, topic_id)) == [ErrorCode.NONE]
    unknown = [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert delete_again(driver, (), (None, topic_id), ("a", bytes(16))) == unknown
    assert delete_again(driver, before, ("a", bytes(16)), tries=0) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], "it was not sent before"


def test_a_topic_that_was_made_after_the_first_sending_is_not_deleted_by_the_second(driver: ControllerDriver) -> None:
    driver.create("a")
    before = seen(driver, "a")
    driver.do(DeleteTopicsRequest(topic_names=["a"]), 5)
    driver.create("a")
    assert delete_again(driver, before, ("a", bytes(16))) == [ErrorCode.NONE]
    assert "a" in driver.image.topics_by_name and not driver.last_records
    assert delete_again(driver, (), ("a", bytes(16))) == [ErrorCode.NONE], "a broker that knew nothing"
    assert "a" not in driver.image.topics_by_name


def grow_again(driver: ControllerDriver, before: tuple[SeenTopic, ...], count: int, replicas: list[list[int]] | None = None) -> ErrorCode:
    kind = CreatePartitionsRequest
    assignments = None if replicas is None else [kind.CreatePartitionsAssignment(broker_ids=ids) for ids in replicas]
    topic = kind.CreatePartitionsTopic(name="a", count=count, assignments=assignments)
    answer = driver.do(kind(topics=[topic]), forwarded=Forwarded(b"k" * 16, 1, before)).results[0]
    return ErrorCode(answer.error_code)


def test_partitions_that_were_made_when_a_request_was_sent_before_are_made(driver: ControllerDriver) -> None:
    driver.create("a")
    before = seen(driver, "a")
    count = before[0].partitions + 2
    assert grow_again(driver, before, count) is ErrorCode.NONE and len(driver.last_records) == 2
    driver.fail_over()
    assert grow_again(driver, before, count) is ErrorCode.NONE and not driver.last_records
    made = [list(driver.image.topics_by_name["a"].partitions[index].replicas) for index in (count - 2, count - 1)]
    assert grow_again(driver, before, count, made) is ErrorCode.NONE
    elsewhere = [made[0], [made[1][0] % 3 + 1, *made[1][1:]]]
    assert grow_again(driver, before, count, elsewhere) is not ErrorCode.NONE
    assert grow_again(driver, before, count - 1) is ErrorCode.INVALID_PARTITIONS
    assert grow_again(driver, seen(driver, "a"), count) is ErrorCode.INVALID_PARTITIONS, "it had as many before"
    assert grow_again(driver, (), count) is ErrorCode.INVALID_PARTITIONS
    other = (before[0]._replace(topic_id=b"o" * 16),)
    assert grow_again(driver, other, count) is ErrorCode.INVALID_PARTITIONS, "another topic of that name"


@pytest.mark.parametrize("manual", [False, True])
def test_what_a_client_in_debt_asks_is_not_placed(driver: ControllerDriver, monkeypatch: pytest.MonkeyPatch, manual: bool) -> None:
    """Checking costs clients nothing, and the controller much: Apache Kafka refuses only when all partitions have been placed."""
    driver.create("grows")
    meter = Meter(MUTATION, ("", ""), 11, 1000)
    meter.limit = 1.0
    placed: list[Any] = []
    new_partition = TopicControl._new_partition
    monkeypatch.setattr(TopicControl, "_new_partition", lambda topics, replicas: placed.append(replicas) or new_partition(topics, replicas))
    kind, grown = CreateTopicsRequest, CreatePartitionsRequest
    assignments = [[1, 2], [2, 3]] * 10 if manual else []
    topic = kind.CreatableTopic(
        name="t",
        num_partitions=-1 if manual else 20,
        replication_factor=-1 if manual else 2,
        assignments=[kind.CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in enumerate(assignments)],
    )
    added = [grown.CreatePartitionsAssignment(broker_ids=ids[:1]) for ids in assignments] if manual else None
    requests = [
        kind(topics=[topic], validate_only=True),
        kind(topics=[topic], validate_only=True),
        grown(topics=[grown.CreatePartitionsTopic(name="grows", count=21, assignments=added)], validate_only=True),
    ]
    answers = []
    for request in requests:
        spend = MutationBudget(meter, 0, is_strict=True).spend
        response = at_once(driver.core.handle(request, request.MAX_VERSION, driver.now_ms, spend)).response
        answers.append((response.topics if isinstance(request, kind) else response.results)[0].error_code)
    assert answers == [ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert len(placed) == 20, "of the first request"
