"""The active controller over its log: answers after the commit, loss of office, bootstrap, creation on demand."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from helpers import metadata_logs
from helpers.control_plane import ControlPlane, FakeConnection, ask, codes, join, registration

from minikafka.broker.admin.metadata import FENCED_NAMED_MS
from minikafka.broker.front.forwarding import principal_bytes
from minikafka.core.metadata.versions import NEWEST, versioned
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from minikafka.wire.messages.api_versions import ApiVersionsRequest
from minikafka.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.describe_cluster import DescribeClusterRequest
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest
from minikafka.wire.messages.envelope import EnvelopeRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.records.frame import encode_metadata_record

DIRECTORY = b"d" * 16


def creation(*names: str, **options: Any) -> CreateTopicsRequest:
    topics = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, **options)


async def test_the_first_records_are_kafkas() -> None:
    """Offsets 3 to 11 of the golden log."""
    plane = ControlPlane()
    ours = [encode_metadata_record(*versioned(record, NEWEST)) for record in plane.raft.records]
    path = metadata_logs.directory("kraft-standalone/stopped") / "00000000000000000000.log"
    kafkas = [value for offset, value, _, _ in metadata_logs.records(path) if offset <= 11]
    assert ours == kafkas
    assert plane.metadata.image.features["metadata.version"] == 30


async def test_a_second_term_of_office_writes_no_bootstrap() -> None:
    plane = ControlPlane()
    count = len(plane.raft.records)
    plane.raft.resign()
    plane.raft.lead()
    assert len(plane.raft.records) == count
    assert plane.controller.is_active


async def test_listeners_are_called_only_after_the_commit() -> None:
    plane = ControlPlane()
    await join(plane)
    plane.raft.is_holding = True
    connection = FakeConnection()
    frame = b"".join(encode_request(creation("t"), 7, 7, "test"))[4:]
    plane.controller_dispatcher.dispatch(connection, "CONTROLLER", memoryview(frame))
    second = b"".join(encode_request(creation("t"), 7, 8, "test"))[4:]
    plane.controller_dispatcher.dispatch(connection, "CONTROLLER", memoryview(second))
    assert plane.controller.core is not None
    assert "t" in plane.controller.core.image.topics_by_name
    assert "t" not in plane.metadata.image.topics_by_name
    assert not any(answer.done() for answer in connection.answers)

    plane.raft.commit()
    assert all(answer.done() for answer in connection.answers)
    assert "t" in plane.metadata.image.topics_by_name
    assert b"already exists" in connection.answers[1].result()


async def test_losing_office_forgets_what_was_not_committed() -> None:
    plane = ControlPlane()
    await join(plane)
    plane.raft.is_holding = True
    asked = asyncio.ensure_future(plane.controller.ask(creation("t"), 7))
    await asyncio.sleep(0)
    plane.raft.resign(leader_id=2)
    with pytest.raises(ApiError) as caught:
        await asked
    assert caught.value.code is ErrorCode.NOT_CONTROLLER

    response = await plane.to_controller(creation("t"))
    assert codes(response) == [ErrorCode.NOT_CONTROLLER]
    plane.raft.is_holding = False
    plane.raft.lead()
    assert codes(await plane.to_controller(creation("t"))) == [ErrorCode.NONE]


async def test_a_standby_answers_not_controller_to_everything() -> None:
    plane = ControlPlane(lead=False)
    assert (await plane.to_controller(registration())).error_code == ErrorCode.NOT_CONTROLLER
    assert (await plane.to_controller(BrokerHeartbeatRequest(broker_id=1))).error_code == ErrorCode.NOT_CONTROLLER
    answer: AlterPartitionResponse = await plane.to_controller(AlterPartitionRequest(broker_id=1))
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert (await plane.to_controller(EnvelopeRequest(request_principal=None))).error_code == ErrorCode.NOT_CONTROLLER


async def test_an_envelope_whose_controller_lost_office_sends_the_broker_to_the_next() -> None:
    plane = ControlPlane()
    await join(plane)
    plane.raft.is_holding = True
    inner = b"".join(encode_request(creation("t"), 7, 3, "client"))[4:]
    envelope = EnvelopeRequest(request_data=inner, request_principal=principal_bytes("User:x"), client_host_address=b"\x7f\0\0\1")
    asked = asyncio.ensure_future(plane.to_controller(envelope))
    await asyncio.sleep(0)
    plane.raft.resign(leader_id=2)
    answer = await asked
    assert (answer.error_code, answer.response_data) == (ErrorCode.NOT_CONTROLLER, None)


@pytest.mark.parametrize("data", [b"", b"\0\x13", b"\0\x13\0\x07\0\0\0\x01\xff\xff\0\x7f", b"\0\x00\0\x09\0\0\0\x01\xff\xff\0\0\0\0"])
async def test_envelopes_with_nonsense(data: bytes) -> None:
    plane = ControlPlane()
    answer = await plane.to_controller(EnvelopeRequest(request_data=data, request_principal=b"", client_host_address=b"\x7f\0\0\1"))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.response_data is None


async def test_a_restarted_broker_registers_at_once_when_its_old_connection_is_closed() -> None:
    plane = ControlPlane()
    old = FakeConnection()
    epoch = (await plane.to_controller(registration())).broker_epoch
    frame = b"".join(encode_request(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=epoch), 2, 1, "b"))[4:]
    await ask(plane.controller_dispatcher, "CONTROLLER", frame, old)
    assert (await plane.to_controller(registration(incarnation=2))).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    old.closed = True
    assert (await plane.to_controller(registration(incarnation=2))).error_code == ErrorCode.NONE


async def test_a_dead_broker_is_fenced_by_the_timer() -> None:
    plane = ControlPlane(properties={"broker.session.timeout.ms": "40", "broker.heartbeat.interval.ms": "10"})
    await join(plane)
    assert plane.metadata.image.is_alive(1)
    plane.clock.now += 41
    assert await plane.metadata.wait_until(lambda image: not image.is_alive(1), 5_000)


# -- a broker's answers --------------------------------------------------------------------------------------------


def asked_to_create(plane: ControlPlane) -> list[CreateTopicsRequest]:
    """What the broker asks the controller to create from now on."""
    found, ask_controller = [], plane.forwarder.ask

    async def ask_and_note(request: Any, *rest: Any) -> Any:
        found.append(request)
        return await ask_controller(request, *rest)

    plane.forwarder.ask = ask_and_note  # type: ignore[method-assign]
    return found


async def test_topics_are_created_when_a_client_asks_for_them() -> None:
    """The answer does not wait, as Apache Kafka's (DefaultAutoTopicCreationManager): who asks for other topics too is not kept waiting."""
    plane = ControlPlane(properties={"num.partitions": "3"})
    await join(plane)
    created = asked_to_create(plane)
    wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in ("new", "new", "..", "__transaction_state")]
    first = await plane.request(MetadataRequest(topics=wanted))
    assert {topic.name: topic.error_code for topic in first.topics} == {"new": 3, "..": 17, "__transaction_state": 3}
    assert first.controller_id == 1
    await plane.request(MetadataRequest(topics=wanted[:1]))
    assert await plane.metadata.wait_until(lambda image: "new" in image.topics_by_name, 5_000)
    [again] = (await plane.request(MetadataRequest(topics=wanted[:1]))).topics
    assert (again.error_code, [partition.leader_id for partition in again.partitions]) == (0, [1, 1, 1])
    [request] = created
    assert [(topic.name, topic.num_partitions, topic.replication_factor) for topic in request.topics] == [("new", 3, 1)], "the broker's own"


async def test_so_many_topics_are_created_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minikafka.broker.admin.metadata.CREATIONS_MAX", 3)
    plane = ControlPlane()
    await join(plane)
    created = asked_to_create(plane)
    wanted = [MetadataRequest.MetadataRequestTopic(name=f"t-{number}") for number in range(4)]
    for _ in range(2):
        await plane.request(MetadataRequest(topics=wanted))
    assert await plane.metadata.wait_until(lambda image: len(image.topics_by_name) == 3, 5_000)
    await plane.request(MetadataRequest(topics=wanted))
    assert await plane.metadata.wait_until(lambda image: len(image.topics_by_name) == len(wanted), 5_000)
    assert [len(request.topics) for request in created] == [3, 1]


async def test_an_id_counts_more_than_a_name_beside_it() -> None:
    """Kafka's Admin asks for topics by id with empty names (KafkaApis.handleTopicMetadataRequest)."""
    plane = ControlPlane()
    await join(plane)
    one = MetadataRequest.MetadataRequestTopic
    await plane.request(MetadataRequest(topics=[one(name="t")]))
    assert await plane.metadata.wait_until(lambda image: "t" in image.topics_by_name, 5_000)
    [created] = (await plane.request(MetadataRequest(topics=[one(name="t")]))).topics
    for name in ("", None, "other"):
        asked = MetadataRequest(topics=[one(name=name, topic_id=created.topic_id), one(name="other")])
        [found] = (await plane.request(asked)).topics
        assert (found.error_code, found.name, found.topic_id) == (0, "t", created.topic_id)
    [missing] = (await plane.request(MetadataRequest(topics=[one(name="", topic_id=b"?" * 16)]))).topics
    assert (missing.error_code, missing.name, missing.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, b"?" * 16)
    assert "other" not in plane.metadata.image.topics_by_name


async def test_topics_are_not_created_when_client_or_configuration_forbid_it() -> None:
    plane = ControlPlane()
    await join(plane)
    wanted = [MetadataRequest.MetadataRequestTopic(name="new")]
    response = await plane.request(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
    assert codes(response) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    strict = ControlPlane(properties={"auto.create.topics.enable": "false"})
    assert codes(await strict.request(MetadataRequest(topics=wanted))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_topic_that_cannot_be_created_is_unknown_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    plane = ControlPlane(properties={"default.replication.factor": "3"})
    await join(plane)
    wanted = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name="new")])
    for _ in range(2):
        assert codes(await plane.request(wanted)) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    while "could not create topic new automatically: " not in caplog.text:
        await asyncio.sleep(0)


async def test_metadata_of_leaderless_partitions_and_dead_brokers() -> None:
    plane = ControlPlane(properties={"broker.session.timeout.ms": "40", "broker.heartbeat.interval.ms": "10"})
    await join(plane, 1)
    await join(plane, 2)
    assignment = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 1])
    alone = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=1, broker_ids=[2, 1])
    topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[assignment, alone])
    await plane.request(CreateTopicsRequest(topics=[topic]))
    plane.clock.now += 39
    epoch = plane.metadata.image.brokers[1].epoch
    await plane.to_controller(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=99))
    plane.clock.now += 2
    assert await plane.metadata.wait_until(lambda image: not image.is_alive(2), 5_000)
    response = await plane.request(MetadataRequest(topics=None))
    partition = response.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.isr_nodes, partition.offline_replicas) == (1, 1, [1], [2])
    assert [broker.node_id for broker in response.brokers] == [1, 2], "a client may still have to move partitions away from it"
    plane.clock.now += 50
    assert await plane.metadata.wait_until(lambda image: not image.is_alive(1), 5_000)
    response = await plane.request(MetadataRequest(topics=None))
    partition = response.topics[0].partitions[0]
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    plane.clock.now += FENCED_NAMED_MS
    response = await plane.request(MetadataRequest(topics=None))
    assert [broker.node_id for broker in response.brokers] == [1, 2], "a client that is told of nobody may never ask again"
    await plane.to_controller(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=99))
    assert await plane.metadata.wait_until(lambda image: image.is_alive(1), 5_000)
    assert [broker.node_id for broker in (await plane.request(MetadataRequest(topics=None))).brokers] == [1]
    assert response.controller_id == -1


async def test_configuration_round_trip() -> None:
    plane = ControlPlane()
    await join(plane)
    await plane.request(creation("t"))
    entry = IncrementalAlterConfigsRequest.AlterableConfig(name="retention.ms", value="77")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=2, resource_name="t", configs=[entry])
    answer = await plane.request(IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == 0
    wanted = DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
    described = (await plane.request(DescribeConfigsRequest(resources=[wanted], include_synonyms=True))).results[0].configs[0]
    assert (described.value, described.config_source) == ("77", 1)
    assert [(synonym.name, synonym.value, synonym.source) for synonym in described.synonyms] == [
        ("retention.ms", "77", 1), ("log.retention.ms", "-1", 4), ("log.retention.hours", "168", 5),
    ]  # fmt: skip


async def test_unset_properties_are_not_listed_as_synonyms() -> None:
    """Where only hours are set or nothing is, Apache Kafka 4.3 names no origin of retention.ms."""
    plane = ControlPlane()
    await join(plane)
    await plane.request(creation("t"))
    wanted = DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["segment.ms"])
    described = (await plane.request(DescribeConfigsRequest(resources=[wanted], include_synonyms=True))).results[0].configs[0]
    assert (described.value, described.config_source, described.synonyms) == ("604800000", 5, [])


async def test_dynamic_broker_configuration_is_inherited_by_topics() -> None:
    plane = ControlPlane()
    await join(plane)
    await plane.request(creation("t"))
    for resource_name, value in (("", "1000"), ("1", "2000")):
        entry = IncrementalAlterConfigsRequest.AlterableConfig(name="log.retention.ms", value=value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name=resource_name, configs=[entry])
        assert (await plane.request(IncrementalAlterConfigsRequest(resources=[resource]))).responses[0].error_code == 0
    wanted = DescribeConfigsRequest.DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=["retention.ms"])
    described = (await plane.request(DescribeConfigsRequest(resources=[wanted], include_synonyms=True))).results[0].configs[0]
    assert (described.value, described.config_source) == ("2000", 2)
    assert [synonym.source for synonym in described.synonyms] == [2, 3, 4, 5]
    static = IncrementalAlterConfigsRequest.AlterableConfig(name="node.id", value="9")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="1", configs=[static])
    refused = (await plane.request(IncrementalAlterConfigsRequest(resources=[resource]))).responses[0]
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: [node.id]")
    wanted = DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=["node.id", "broker.id"])
    described_all = (await plane.request(DescribeConfigsRequest(resources=[wanted]))).results[0].configs
    assert {(entry.name, entry.value, entry.config_source) for entry in described_all} == {("node.id", "1", 4), ("broker.id", "1", 4)}


async def test_fenced_brokers_are_described_when_asked_for() -> None:
    plane = ControlPlane()
    await plane.to_controller(registration())
    assert (await plane.request(DescribeClusterRequest())).brokers == []
    described = (await plane.request(DescribeClusterRequest(include_fenced_brokers=True))).brokers
    assert [(broker.broker_id, broker.is_fenced) for broker in described] == [(1, True)]


async def test_an_unreachable_controller_is_an_error_in_the_answer() -> None:
    plane = ControlPlane()

    async def lost(request: Any, timeout_ms: int = 0, **options: Any) -> Any:
        raise TimeoutError

    plane.channel.request = lost  # type: ignore[method-assign]
    response = await plane.request(creation("t", timeout_ms=10))
    assert codes(response) == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize(("software", "connect_ms"), [("minikafka", 250), ("apache-kafka-java", None), (None, None)])
async def test_the_heartbeat_connection_shows_how_fast_its_broker_reconnects(software: str | None, connect_ms: int | None) -> None:
    """Who comes back at once says so by its name; how long that takes is seen."""
    plane = ControlPlane()
    epoch = await join(plane)
    seen: list[int | None] = []
    core = plane.controller.core
    assert core is not None
    core.broker_disconnected = lambda broker_id, epoch, now_ms, connect_ms=0: seen.append(connect_ms)  # type: ignore[method-assign]
    heartbeat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=epoch)
    frames = [b"".join(map(bytes, encode_request(heartbeat, 1, 7, "test")))[4:]]
    if software is not None:
        names = ApiVersionsRequest(client_software_name=software, client_software_version="1.0")
        frames.insert(0, b"".join(map(bytes, encode_request(names, 4, 6, "test")))[4:])
    for _ in range(2):
        connection = FakeConnection()
        for frame in frames:
            plane.controller_dispatcher.dispatch(connection, "CONTROLLER", memoryview(frame))  # type: ignore[arg-type]
            plane.clock.now += 250
        connection.close("the network")
        plane.controller.connection_closed(connection)
        plane.clock.now += 250
    # The first was there for 250 ms before its heartbeat, if it had named itself; the second came 250 ms after the end of the first, and
    # took as long again.
    assert seen == [connect_ms, None if connect_ms is None else 2 * connect_ms]


async def test_the_commit_of_a_registration_is_no_part_of_the_time_to_connect() -> None:
    """It took 20 to 60 ms while three nodes started, so that a broker killed later was replaced that much (times four) later."""
    plane = ControlPlane()
    seen: list[int | None] = []
    names = ApiVersionsRequest(client_software_name="minikafka", client_software_version="1.0")
    connection = FakeConnection()

    def send(request: Any, version: int) -> None:
        frame = b"".join(map(bytes, encode_request(request, version, 6, "test")))[4:]
        plane.controller_dispatcher.dispatch(connection, "CONTROLLER", memoryview(frame))  # type: ignore[arg-type]

    await join(plane, 2)
    core = plane.controller.core
    assert core is not None
    core.broker_disconnected = lambda broker_id, epoch, now_ms, connect_ms=0: seen.append(connect_ms)  # type: ignore[method-assign]
    send(names, 4)
    plane.clock.now += 30
    send(registration(), 4)
    plane.clock.now += 500
    epoch = core.image.brokers[1].epoch
    send(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=epoch), 1)
    plane.controller.connection_closed(connection)
    assert seen == [30]


async def test_throttles_of_a_broker_are_shown_while_they_are_set() -> None:
    """As Apache Kafka's (PlaintextAdminIntegrationTest.testIncrementalAlterConfigsDeleteBrokerConfigs)."""
    plane, name = ControlPlane(), "leader.replication.throttled.rate"
    await join(plane)
    change = IncrementalAlterConfigsRequest.AlterableConfig
    asked = DescribeConfigsRequest(resources=[DescribeConfigsRequest.DescribeConfigsResource(resource_type=4, resource_name="1")])
    for operation, shown in ((None, []), (0, ["123"]), (1, [])):
        if operation is not None:
            configs = [change(name=name, config_operation=operation, value="123")]
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
            [altered] = (await plane.request(IncrementalAlterConfigsRequest(resources=[resource]))).responses
            assert altered.error_code == 0
            assert await plane.metadata.wait_until(lambda image, wanted=shown: bool(image.config(4, "1")) == bool(wanted), 5_000)
        [result] = (await plane.request(asked)).results
        assert [entry.value for entry in result.configs if entry.name == name] == shown
