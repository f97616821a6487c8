"""Steps from image to image: copy on write, and what is said to have changed."""

from __future__ import annotations

import pytest

from minikafka.core.metadata.delta import STEP_RECORDS, MetadataDelta, MetadataError
from minikafka.core.metadata.image import (
    DIRECTORY_UNASSIGNED,
    BrokerRegistration,
    ControllerRegistration,
    MetadataImage,
    PartitionRegistration,
    empty_image,
)
from minikafka.core.metadata.records import image_records
from minikafka.steps import at_once
from minikafka.wire.records.metadata_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)

A, B = b"a" * 16, b"b" * 16
DIRECTORY = b"d" * 16


def topic_records(topic_id: bytes, name: str, partitions: int = 2) -> list[object]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=[1, 2],
                isr=[1, 2],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
                directories=[DIRECTORY, DIRECTORY],
            )
            for index in range(partitions)
        ),
    ]


def image_of(*records: object) -> MetadataImage:
    delta = MetadataDelta(empty_image())
    delta.apply_all(records, 0)
    return delta.image()


def test_a_new_topic_is_one_change_with_its_partitions() -> None:
    delta = MetadataDelta(empty_image())
    delta.apply_all(topic_records(A, "t"), 0)

    assert delta.changed_topics[A].is_new
    assert list(delta.changed_topics[A].changed) == [0, 1]
    assert delta.image().offset == 2
    assert delta.image().topics_by_name["t"] is delta.image().topics_by_id[A]


def test_the_base_stays_as_it_was() -> None:
    base = image_of(*topic_records(A, "t"), *topic_records(B, "u"))
    before = base.topics_by_id[A].partitions[0]
    delta = MetadataDelta(base)
    delta.apply(PartitionChangeRecord(partition_id=0, topic_id=A, isr=[1], leader=1), 10)
    after = delta.image()

    assert base.topics_by_id[A].partitions[0] is before
    assert after.topics_by_id[A].partitions[0].isr == (1,)
    assert after.topics_by_id[A].partitions[0].leader_epoch == 1
    assert after.topics_by_id[A].partitions[1] is base.topics_by_id[A].partitions[1]
    assert after.topics_by_id[B] is base.topics_by_id[B]
    assert delta.changed_topics[A].previous == {0: before}
    assert list(delta.changed_topics) == [A]


def test_two_changes_of_a_partition_are_one_step() -> None:
    base = image_of(*topic_records(A, "t"))
    delta = MetadataDelta(base)
    delta.apply(PartitionChangeRecord(partition_id=0, topic_id=A, isr=[2], leader=2))
    delta.apply(PartitionChangeRecord(partition_id=0, topic_id=A, isr=[2, 1]))

    change = delta.changed_topics[A]
    assert change.previous[0].partition_epoch == 0
    assert (change.changed[0].partition_epoch, change.changed[0].leader_epoch, change.changed[0].isr) == (2, 1, (2, 1))


def test_a_topic_deleted_and_created_again_is_two_topics() -> None:
    base = image_of(*topic_records(A, "t"), ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"))
    delta = MetadataDelta(base)
    delta.apply(RemoveTopicRecord(topic_id=A))
    delta.apply_all(topic_records(B, "t", 1))

    assert delta.deleted_topics == {A: base.topics_by_id[A]}
    assert list(delta.changed_topics) == [B]
    assert delta.image().topics_by_name["t"].topic_id == B
    assert delta.image().config(2, "t") == {}
    assert (2, "t") in delta.changed_configs


def test_a_topic_created_and_deleted_in_one_step_never_was() -> None:
    delta = MetadataDelta(empty_image())
    delta.apply_all([*topic_records(A, "t"), RemoveTopicRecord(topic_id=A)])

    assert not delta.changed_topics
    assert not delta.deleted_topics
    assert delta.is_empty


def test_directories_follow_replicas() -> None:
    partition = PartitionRegistration([1, 2], [1, 2], 1, directories=[b"1" * 16, b"2" * 16])
    moved = partition.merge(PartitionChangeRecord(partition_id=0, topic_id=A, replicas=[2, 3]))

    assert moved.directories == (b"2" * 16, DIRECTORY_UNASSIGNED)


def test_the_leader_epoch_moves_only_when_a_leader_is_named() -> None:
    partition = PartitionRegistration([1, 2], [1, 2], 1, leader_epoch=5, partition_epoch=9)

    assert partition.merge(PartitionChangeRecord(isr=[1])).leader_epoch == 5
    assert partition.merge(PartitionChangeRecord(isr=[1])).partition_epoch == 10
    assert partition.merge(PartitionChangeRecord(leader=1)).leader_epoch == 6
    assert partition.merge(PartitionChangeRecord(leader=-1)).leader_epoch == 6


def test_clearing_eligible_leaders_moves_the_partition_epoch_as_in_kafka() -> None:
    base = image_of(
        *topic_records(A, "t", 1),
        PartitionChangeRecord(partition_id=0, topic_id=A, isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1]),
    )
    delta = MetadataDelta(base)
    delta.apply(ClearElrRecord(topic_name=""))
    partition = delta.image().topics_by_id[A].partitions[0]

    assert (partition.elr, partition.last_known_elr, partition.partition_epoch, partition.leader_epoch) == ((), (), 2, 1)


def test_brokers_register_change_and_leave() -> None:
    register = RegisterBrokerRecord(
        broker_id=1,
        incarnation_id=A,
        broker_epoch=7,
        rack="r",
        log_dirs=[DIRECTORY],
        end_points=[RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="h", port=9, security_protocol=0)],
    )
    base = image_of(register)
    broker = base.brokers[1]
    assert (broker.fenced, broker.listeners, broker.unfence_offset) == (True, {"PLAINTEXT": ("h", 9, 0)}, 0)

    delta = MetadataDelta(base)
    delta.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=-1))
    delta.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, in_controlled_shutdown=1))
    changed = delta.image().brokers[1]
    assert (changed.fenced, changed.in_controlled_shutdown, changed.rack) == (False, True, "r")
    assert base.brokers[1].fenced

    gone = MetadataDelta(delta.image())
    gone.apply(UnregisterBrokerRecord(broker_id=1, broker_epoch=7))
    assert gone.changed_brokers == {1: None}
    with pytest.raises(MetadataError, match="not registered"):
        gone.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=1))


def test_records_that_contradict_the_image_are_refused() -> None:
    delta = MetadataDelta(image_of(*topic_records(A, "t")))
    with pytest.raises(MetadataError, match="twice"):
        delta.apply(TopicRecord(name="t", topic_id=B))
    with pytest.raises(MetadataError, match="t-9"):
        delta.apply(PartitionChangeRecord(partition_id=9, topic_id=A))
    with pytest.raises(MetadataError, match="does not exist"):
        delta.apply(RemoveTopicRecord(topic_id=B))
    with pytest.raises(MetadataError, match="not a metadata record"):
        delta.apply(object())


def test_a_snapshot_names_only_what_differs() -> None:
    base = image_of(*topic_records(A, "t"), *topic_records(B, "u"))
    newer = MetadataDelta(base)
    newer.apply(PartitionChangeRecord(partition_id=1, topic_id=A, isr=[2], leader=2))
    newer.apply(RemoveTopicRecord(topic_id=B))
    delta = MetadataDelta.from_snapshot(base, image_records(newer.image()), 40, 3)

    assert {topic_id: list(change.changed) for topic_id, change in delta.changed_topics.items()} == {A: [1]}
    assert list(delta.deleted_topics) == [B]
    assert delta.is_snapshot
    assert (delta.image().offset, delta.image().epoch) == (40, 3)
    delta.apply(PartitionChangeRecord(partition_id=0, topic_id=A, isr=[1]), 41)
    assert sorted(delta.changed_topics[A].changed) == [0, 1]


FLAGS = ("features_changed", "quotas_changed", "scram_changed", "changed_acls", "tokens_changed", "producer_ids_changed")
_ENTITY = ClientQuotaRecord.EntityData(entity_type="user", entity_name="alice")
_ACL = {"id": A, "resource_type": 2, "resource_name": "t", "pattern_type": 3, "principal": "User:a", "host": "*", "operation": 3}


@pytest.mark.parametrize(
    ("flag", "record", "undo"),
    [
        ("features_changed", FeatureLevelRecord(name="metadata.version", feature_level=25), None),
        ("quotas_changed", ClientQuotaRecord(entity=[_ENTITY], key="producer_byte_rate", value=1.0), None),
        ("scram_changed", UserScramCredentialRecord(name="a", mechanism=1), RemoveUserScramCredentialRecord(name="a", mechanism=1)),
        ("changed_acls", AccessControlEntryRecord(**_ACL, permission_type=3), RemoveAccessControlEntryRecord(id=A)),
        ("tokens_changed", DelegationTokenRecord(token_id="x", owner="User:a"), RemoveDelegationTokenRecord(token_id="x")),
        ("producer_ids_changed", ProducerIdsRecord(next_producer_id=1000), None),
    ],
    ids=FLAGS,
)
def test_what_has_no_topic_and_no_broker_is_a_change_too(flag: str, record: object, undo: object) -> None:
    """A change without its flag is an empty delta, which nobody is told of: tokens had none."""
    for base, changes in ((image_of(), [record]), (image_of(record), [undo])):
        if changes == [None]:
            continue
        delta = MetadataDelta(base)
        delta.apply_all(changes, 0)
        assert [name for name in FLAGS if getattr(delta, name)] == [flag] and not delta.is_empty
        loaded = MetadataDelta.from_snapshot(base, image_records(delta.image()), 1, 1)
        assert [name for name in FLAGS if getattr(loaded, name)] == [flag]


def test_snapshots_list_features_as_kafka_does_in_whatever_order_they_were_registered() -> None:
    """The order of java.util.HashMap, as snapshots of Apache Kafka 4.3 have it; share.version and metadata.version share a place."""
    first, last = ["group.version", "kraft.version"], ["streams.version", "transaction.version", "eligible.leader.replicas.version"]
    for pair in (["share.version", "metadata.version"], ["metadata.version", "share.version"]):
        names = [*pair, *last, *first]
        broker = RegisterBrokerRecord(broker_id=1, features=[RegisterBrokerRecord.BrokerFeature(name=name) for name in names])
        controller = RegisterControllerRecord(
            controller_id=1, features=[RegisterControllerRecord.ControllerFeature(name=name) for name in names]
        )
        assert [f.name for f in BrokerRegistration.from_record(broker, 0).to_record().features] == [*first, *pair, *last]
        assert [f.name for f in ControllerRegistration.from_record(controller).to_record().features] == [*first, *pair, *last]


def test_images_are_compared_in_steps_whatever_is_in_them() -> None:
    """Ten thousand topics of one partition were one step, and so were all rules and configurations."""
    count = 4 * STEP_RECORDS
    topics = [record for number in range(count) for record in topic_records(number.to_bytes(16), f"t{number}", 1)]
    rules = [
        AccessControlEntryRecord(
            id=number.to_bytes(16), resource_type=2, resource_name="t", pattern_type=3, principal="User:u", host="*", operation=3,
            permission_type=3,
        )
        for number in range(count)
    ]  # fmt: skip
    configs = [ConfigRecord(resource_type=2, resource_name=f"t{number}", name="retention.ms", value="1") for number in range(count)]
    for records in (topics, rules, configs):
        assert sum(1 for _ in MetadataDelta.between(empty_image(), image_of(*records))) >= count // STEP_RECORDS
    delta = at_once(MetadataDelta.between(image_of(*topics, *rules, *configs), image_of(*topics[2:], *rules[1:], *configs[1:])))
    assert list(delta.deleted_topics) == [bytes(16)] and not delta.changed_topics
    assert delta.changed_acls == {bytes(16): None} and list(delta.changed_configs) == [(2, "t0")]
