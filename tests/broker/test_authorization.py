"""What authorization does beyond a yes or no: what is left out of answers, the fast paths, sessions, forged envelopes, the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from helpers.acl_node import USERS, acl_node, allow, channel_of, error_codes, on_cluster, set_acls
from helpers.live_node import controller_port, live_node

from minikafka.broker.front.forwarding import address_bytes, principal_bytes
from minikafka.broker.node import Node
from minikafka.broker.security.authorization.table import guarding, on_controllers
from minikafka.client.acls import AclAdmin
from minikafka.client.errors import BrokerError
from minikafka.core.authorizer.acl import OPERATIONS, Acl, AclFilter, Operation, PatternType, Permission, ResourceType, operation_bits
from minikafka.net.channel import Channel, ConnectionLost
from minikafka.net.server import SocketNetwork
from minikafka.security.client import ClientSecurity
from minikafka.wire.batch import build_batch
from minikafka.wire.errors import ErrorCode
from minikafka.wire.frame import encode_request
from minikafka.wire.messages.alter_configs import AlterConfigsRequest
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.create_topics import CreateTopicsRequest
from minikafka.wire.messages.delete_acls import DeleteAclsRequest
from minikafka.wire.messages.delete_topics import DeleteTopicsRequest
from minikafka.wire.messages.describe_cluster import DescribeClusterRequest
from minikafka.wire.messages.describe_groups import DescribeGroupsRequest
from minikafka.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest
from minikafka.wire.messages.envelope import EnvelopeRequest
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from minikafka.wire.messages.init_producer_id import InitProducerIdRequest
from minikafka.wire.messages.list_groups import ListGroupsRequest
from minikafka.wire.messages.list_transactions import ListTransactionsRequest
from minikafka.wire.messages.metadata import MetadataRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.offset_fetch import OffsetFetchRequest
from minikafka.wire.messages.produce import ProduceRequest

Op, R = Operation, ResourceType
TOPIC_DENIED, CLUSTER_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TOPICS = ("open", "secret")


@contextlib.asynccontextmanager
async def node_with_topics(directory: Path, **more: str) -> AsyncIterator[tuple[Node, Channel, Channel]]:
    """(node, admin's channel, alice's channel), with the topics `open` and `secret`."""
    async with acl_node(directory, **more) as node:
        admin, alice = await channel_of(node, "admin"), await channel_of(node, "alice")
        made = [CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in TOPICS]
        response: Any = await admin.request(CreateTopicsRequest(topics=made, timeout_ms=5000))
        assert [topic.error_code for topic in response.topics] == [0, 0]
        try:
            yield node, admin, alice
        finally:
            admin.close()
            alice.close()


def topic(operation: Op, name: str = "open") -> Acl:
    return allow(R.TOPIC, name, operation)


def produce(name: str, topic_id: bytes, *, acks: int = 1, transactional: bool = False) -> ProduceRequest:
    ids = {"producer_id": 4711, "producer_epoch": 0, "base_sequence": 0} if transactional else {}
    records = build_batch([(0, 0, None, b"v")], is_transactional=transactional, **ids)  # type: ignore[arg-type]
    data = ProduceRequest.PartitionProduceData(index=0, records=memoryview(records))
    topics = [ProduceRequest.TopicProduceData(name=name, topic_id=topic_id, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def fetch(topic_id: bytes, *, session_id: int = 0, epoch: int = -1, names: bool = True) -> FetchRequest:
    wanted = FetchRequest.FetchTopic(
        topic_id=topic_id, partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    )
    return FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1000, topics=[wanted] if names else [], session_id=session_id, session_epoch=epoch
    )


def id_of(node: Node, name: str) -> bytes:
    return node.metadata.image.topics_by_name[name].topic_id


def names(*wanted: str) -> list[MetadataRequest.MetadataRequestTopic]:
    return [MetadataRequest.MetadataRequestTopic(name=name) for name in wanted]


# -- what may not be seen ------------------------------------------------------------------------------------------


async def test_topics_that_may_not_be_described_look_as_if_they_did_not_exist(tmp_path: Path) -> None:
    async with node_with_topics(tmp_path) as (node, admin, alice):
        set_acls(node, [topic(Op.READ)])
        everything: Any = await alice.request(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        assert [found.name for found in everything.topics] == ["open"]
        for version in (0, 1, 8, 12, 13):
            response: Any = await alice.request(MetadataRequest(topics=names("secret", "nowhere")), version)
            shown = [(t.error_code, t.topic_id, t.partitions, t.is_internal) for t in response.topics]
            assert {t.name for t in response.topics} == {"secret", "nowhere"} and shown[0] == shown[1]
            assert shown[0][0] == TOPIC_DENIED
        nobody: Any = await (await channel_of(node, "bob")).request(MetadataRequest(topics=[]), 0)
        assert not nobody.topics and nobody.brokers
        assert {t.name for t in (await admin.request(MetadataRequest(topics=None))).topics} == set(TOPICS)  # type: ignore[attr-defined]


async def test_an_allowed_name_beside_an_id_opens_nothing(tmp_path: Path) -> None:
    async with node_with_topics(tmp_path) as (node, _, alice):
        set_acls(node, [topic(Op.DESCRIBE)])
        for name in ("open", "", None):
            asked = [MetadataRequest.MetadataRequestTopic(name=name, topic_id=id_of(node, "secret"))]
            response: Any = await alice.request(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
            assert [(t.error_code, t.name, t.partitions) for t in response.topics] == [(TOPIC_DENIED, None, [])]


async def test_pages_of_topics_do_not_end_at_one_that_may_not_be_seen(tmp_path: Path) -> None:
    async with node_with_topics(tmp_path) as (node, _, alice):
        set_acls(node, [topic(Op.DESCRIBE)])
        response: Any = await alice.request(DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2))
        assert [found.name for found in response.topics] == ["open"] and response.next_cursor is None
        assert response.topics[0].topic_authorized_operations == operation_bits([Op.DESCRIBE])
        set_acls(node, [])
        response = await alice.request(DescribeTopicPartitionsRequest(topics=[], response_partition_limit=2))
        assert response.topics == [] and response.next_cursor is None


async def test_a_topic_is_auto_created_for_authorized_clients(tmp_path: Path) -> None:
    async with node_with_topics(tmp_path) as (node, _, alice):
        set_acls(node, [topic(Op.DESCRIBE, "fresh")])
        response: Any = await alice.request(MetadataRequest(topics=names("fresh"), allow_auto_topic_creation=True))
        assert [found.error_code for found in response.topics] == [TOPIC_DENIED]
        set_acls(node, [topic(Op.DESCRIBE, "fresh"), topic(Op.CREATE, "fresh")])
        await alice.request(MetadataRequest(topics=names("fresh"), allow_auto_topic_creation=True))
        assert await node.metadata.wait_until(lambda image: "fresh" in image.topics_by_name, 5_000)


async def test_authorized_operations_are_listed_on_request(tmp_path: Path) -> None:
    async with node_with_topics(tmp_path) as (node, admin, alice):
        asked = MetadataRequest(topics=names("open"), include_topic_authorized_operations=True, include_cluster_authorized_operations=True)
        set_acls(node, [topic(Op.WRITE)])
        mine: Any = await alice.request(asked, 8)
        assert mine.topics[0].topic_authorized_operations == operation_bits([Op.WRITE, Op.DESCRIBE])
        assert mine.cluster_authorized_operations == 0
        all_of_it: Any = await admin.request(asked, 8)
        assert all_of_it.topics[0].topic_authorized_operations == operation_bits(OPERATIONS[R.TOPIC])
        assert all_of_it.cluster_authorized_operations == operation_bits(OPERATIONS[R.CLUSTER])
        set_acls(node, [on_cluster(Op.ALTER), allow(R.GROUP, "g", Op.READ)])
        cluster: Any = await alice.request(DescribeClusterRequest(include_cluster_authorized_operations=True))
        assert cluster.cluster_authorized_operations == operation_bits([Op.ALTER, Op.DESCRIBE])
        assert node.broker is not None
        await node.broker.groups.ensure_topic()
        asked_groups = DescribeGroupsRequest(groups=["g", "h"], include_authorized_operations=True)
        while {14, 15, 16} & set(error_codes(groups := await alice.request(asked_groups, 5))):
            await asyncio.sleep(0.02)  # the coordinator is not ready
        assert [(g.group_id, g.error_code) for g in groups.groups] == [("h", ErrorCode.GROUP_AUTHORIZATION_FAILED), ("g", 0)]
        assert groups.groups[1].authorized_operations == operation_bits([Op.READ, Op.DESCRIBE])


async def commit(channel: Channel, group_id: str, *topic_ids: bytes) -> Any:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition]) for topic_id in topic_ids]
    while True:
        response: Any = await channel.request(OffsetCommitRequest(group_id=group_id, topics=topics))
        if not {14, 15, 16} & set(error_codes(response)):  # the coordinator is not ready
            return response
        await asyncio.sleep(0.02)


async def test_lists_leave_out_what_may_not_be_described(tmp_path: Path) -> None:
    async with node_with_topics(tmp_path) as (node, admin, alice):
        assert node.broker is not None
        await node.broker.groups.ensure_topic()
        ids = [id_of(node, name) for name in TOPICS]
        for group_id in ("mine", "other"):
            assert error_codes(await commit(admin, group_id, *ids)) == [0, 0]
        set_acls(node, [allow(R.GROUP, "mine", Op.READ), topic(Op.READ)])
        listed: Any = await alice.request(ListGroupsRequest())
        assert [group.group_id for group in listed.groups] == ["mine"]
        response = await commit(alice, "mine", *ids)
        assert sorted((t.topic_id, error_codes(t)) for t in response.topics) == sorted(zip(ids, [[0], [TOPIC_DENIED]], strict=True))
        group = OffsetFetchRequest.OffsetFetchRequestGroup(group_id="mine", topics=None, member_id=None)
        fetched: Any = await alice.request(OffsetFetchRequest(groups=[group]), 9)
        assert [t.name for t in fetched.groups[0].topics] == ["open"]
        set_acls(node, [on_cluster(Op.DESCRIBE)])
        listed = await alice.request(ListGroupsRequest())
        assert sorted(group.group_id for group in listed.groups) == ["mine", "other"]


async def test_transactions_are_listed_to_clients_that_may_describe_them(tmp_path: Path) -> None:
    async with node_with_topics(tmp_path) as (node, admin, alice):
        assert node.broker is not None
        await node.broker.transactions.topic.ensure()
        for name in ("mine", "other"):
            while True:
                made: Any = await admin.request(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000))
                if made.error_code == 0:
                    break
                await asyncio.sleep(0.02)
        set_acls(node, [allow(R.TRANSACTIONAL_ID, "mine", Op.DESCRIBE)])
        listed: Any = await alice.request(ListTransactionsRequest())
        assert [state.transactional_id for state in listed.transaction_states] == ["mine"]


async def test_a_client_that_knows_a_deleted_topics_id_does_not_learn_its_name(tmp_path: Path) -> None:
    async with node_with_topics(tmp_path) as (node, _, alice):
        topic_id = id_of(node, "secret")
        asked = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=1000)
        set_acls(node, [])
        response: Any = await alice.request(asked)
        assert [(r.name, r.topic_id, r.error_code) for r in response.responses] == [(None, topic_id, TOPIC_DENIED)]
        set_acls(node, [topic(Op.DESCRIBE, "secret")])
        response = await alice.request(asked)
        assert [(r.name, r.error_code) for r in response.responses] == [("secret", TOPIC_DENIED)]
        assert "secret" in node.metadata.image.topics_by_name


async def test_a_topic_that_is_missing_is_unknown_to_whoever_may_describe_it(tmp_path: Path) -> None:
    """Whether it may be deleted is asked of a topic that there is."""
    async with node_with_topics(tmp_path) as (node, _, alice):
        for acls, code in (([], TOPIC_DENIED), ([topic(Op.DESCRIBE, "missing")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
            set_acls(node, acls)
            by_name = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="missing")], timeout_ms=1000)
            assert error_codes(await alice.request(by_name)) == [code]
            assert error_codes(await alice.request(DeleteTopicsRequest(topic_names=["missing"], timeout_ms=1000), 5)) == [code]


@pytest.mark.parametrize("version", [4, 12])
async def test_the_topic_without_a_name_needs_an_acl_as_any_other(tmp_path: Path, version: int) -> None:
    async with node_with_topics(tmp_path) as (node, _, alice):
        kind = FetchRequest
        topics = [kind.FetchTopic(topic="", partitions=[kind.FetchPartition(partition=0, partition_max_bytes=100)])]
        request = kind(replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=100, session_id=0, session_epoch=-1, topics=topics)
        for acls, code in (([], TOPIC_DENIED), ([topic(Op.READ, "*")], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
            set_acls(node, acls)
            response: Any = await alice.request(request, version)
            assert response.responses[0].partitions[0].error_code == code


async def test_a_new_topics_configuration_is_returned_to_clients_that_may_describe_it(tmp_path: Path) -> None:
    async with node_with_topics(tmp_path) as (node, _, alice):
        asked = CreateTopicsRequest(
            topics=[CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "b", "c")],
            validate_only=True,
        )
        set_acls(node, [topic(Op.CREATE, "a"), topic(Op.CREATE, "b"), topic(Op.DESCRIBE_CONFIGS, "b")])
        response: Any = await alice.request(asked)
        found = {t.name: (t.error_code, t.topic_config_error_code, t.num_partitions, bool(t.configs)) for t in response.topics}
        assert found == {"a": (0, TOPIC_DENIED, -1, False), "b": (0, 0, 1, True), "c": (TOPIC_DENIED, 0, -1, False)}


# -- the data plane ------------------------------------------------------------------------------------------------


async def test_the_short_way_of_produce_ends_when_an_acl_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node_with_topics(tmp_path) as (node, _, alice):
        assert node.broker is not None
        ordinary = []
        serve = node.broker.produce._begin
        monkeypatch.setattr(node.broker.produce, "_begin", lambda *given: ordinary.append(1) or serve(*given))
        request = produce("open", id_of(node, "open"))

        async def codes(times: int) -> list[int]:
            return [code for _ in range(times) for code in error_codes(await alice.request(request, 12))]

        set_acls(node, [topic(Op.WRITE)])
        assert await codes(10) == [0] * 10 and len(ordinary) == 1
        set_acls(node, [topic(Op.READ)])
        assert await codes(3) == [TOPIC_DENIED] * 3
        set_acls(node, [topic(Op.WRITE), topic(Op.READ)])
        ordinary.clear()
        assert await codes(10) == [0] * 10 and len(ordinary) == 1
        deny = allow(R.TOPIC, "open", Op.WRITE, permission=Permission.DENY)
        set_acls(node, [topic(Op.WRITE), deny])
        assert await codes(2) == [TOPIC_DENIED] * 2


async def test_no_transactional_batch_takes_the_short_way_without_its_transactional_id(tmp_path: Path) -> None:
    """CVE-2018-17196: all bytes before the records are those of requests that were allowed."""
    async with node_with_topics(tmp_path) as (node, _, alice):
        set_acls(node, [topic(Op.WRITE)])
        topic_id = id_of(node, "open")
        for _ in range(3):
            assert error_codes(await alice.request(produce("open", topic_id))) == [0]
        refused = error_codes(await alice.request(produce("open", topic_id, transactional=True)))
        assert refused == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        assert error_codes(await alice.request(produce("open", topic_id))) == [0]


async def test_the_short_way_of_fetch_ends_when_an_acl_changes(tmp_path: Path) -> None:
    async with node_with_topics(tmp_path) as (node, admin, alice):
        topic_id = id_of(node, "open")
        await admin.request(produce("open", topic_id))
        set_acls(node, [topic(Op.READ)])
        for _ in range(5):
            response: Any = await alice.request(fetch(topic_id))
            data = response.responses[0].partitions[0]
            assert data.error_code == 0 and len(data.records) > 60
        set_acls(node, [topic(Op.WRITE)])
        for _ in range(3):
            response = await alice.request(fetch(topic_id))
            data = response.responses[0].partitions[0]
            assert (data.error_code, bytes(data.records or b"")) == (TOPIC_DENIED, b"")


async def test_every_fetch_of_a_session_is_judged(tmp_path: Path) -> None:
    async with node_with_topics(tmp_path) as (node, admin, alice):
        topic_id = id_of(node, "open")
        await admin.request(produce("open", topic_id))
        set_acls(node, [topic(Op.READ)])
        first: Any = await alice.request(fetch(topic_id, epoch=0))
        assert first.session_id and len(first.responses[0].partitions[0].records) > 60
        set_acls(node, [])
        again: Any = await alice.request(fetch(topic_id, session_id=first.session_id, epoch=1, names=False))
        data = again.responses[0].partitions[0]
        assert (data.error_code, bytes(data.records or b"")) == (TOPIC_DENIED, b"")


async def test_a_refusal_without_an_answer_closes_the_connection(tmp_path: Path) -> None:
    async with node_with_topics(tmp_path) as (node, _, alice):
        set_acls(node, [topic(Op.WRITE)])
        alice.send_unanswered(produce("open", id_of(node, "open"), acks=0), None)
        response: Any = await alice.request(MetadataRequest(topics=names("open")))
        assert response.topics[0].error_code == 0
        alice.send_unanswered(produce("secret", id_of(node, "secret"), acks=0), None)
        with pytest.raises(ConnectionLost):
            await alice.request(MetadataRequest(topics=[]), timeout_ms=5000)


async def test_hosts_count(tmp_path: Path) -> None:
    async with node_with_topics(tmp_path) as (node, _, alice):
        for host, codes in (("10.0.0.1", [TOPIC_DENIED]), ("127.0.0.1", [0])):
            set_acls(node, [allow(R.TOPIC, "open", Op.WRITE, host=host)])
            assert error_codes(await alice.request(produce("open", id_of(node, "open")))) == codes


# -- controllers ---------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def on_controller(directory: Path) -> AsyncIterator[tuple[Node, dict[str, Channel]]]:
    """A node whose controller's listener knows its users, and their channels to it."""
    users = " ".join(f'user_{name}="{name}"' for name in USERS)
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin" {users};'
    async with acl_node(
        directory,
        **{
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": jaas,
            "super.users": "User:admin",
        },
    ) as node:
        channels = {}
        for user in ("admin", "alice"):
            login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{user}";'
            properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}
            channels[user] = await Channel.open(
                SocketNetwork(asyncio.get_running_loop()), "127.0.0.1", controller_port(node), client_id="test",
                security=ClientSecurity.from_properties(properties),
            )  # fmt: skip
        try:
            yield node, channels
        finally:
            for channel in channels.values():
                channel.close()


async def test_a_controller_serves_nodes_and_administrators_only(tmp_path: Path) -> None:
    async with on_controller(tmp_path) as (node, channels):
        guards = on_controllers(lambda: node.metadata.image)
        tokens = {f"{verb}DelegationToken" for verb in ("Create", "Renew", "Expire", "Describe")}
        open_to_all = {"ApiVersions", "SaslHandshake", "SaslAuthenticate", *tokens}
        by_resource = {"CreateTopics", "DeleteTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs", "DescribeConfigs"}
        by_element = {"CreateAcls", "DeleteAcls", "AlterUserScramCredentials", "AlterClientQuotas"}
        answered = {}
        for request_class in guards:
            name = request_class.__name__.removesuffix("Request")
            if name not in open_to_all | by_resource | by_element:
                answered[name] = error_codes(await channels["alice"].request(request_class()))[:1]
        assert answered == {name: [CLUSTER_DENIED] for name in answered} and len(answered) > 20
        assert node.controller_dispatcher is not None
        served = {entry.name for entry in node.controller_dispatcher.entries}
        assert served == set(answered) | open_to_all | by_resource | by_element
        elected: Any = await channels["alice"].request(
            ElectLeadersRequest(topic_partitions=[ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])])
        )
        assert error_codes(elected) == [CLUSTER_DENIED, CLUSTER_DENIED]
        described: Any = await channels["admin"].request(DescribeClusterRequest(endpoint_type=2))
        assert described.error_code == 0


async def test_an_envelope_is_a_brokers_and_what_is_in_it_its_principals(tmp_path: Path) -> None:
    resource = AlterConfigsRequest.AlterConfigsResource(resource_type=4, resource_name="", configs=[])
    inner = AlterConfigsRequest(resources=[resource], validate_only=True)
    data = b"".join(bytes(piece) for piece in encode_request(inner, 2, 1, "x"))[4:]  # type: ignore[arg-type]

    def envelope(principal: bytes | None) -> EnvelopeRequest:
        return EnvelopeRequest(request_data=data, request_principal=principal, client_host_address=address_bytes("127.0.0.1"))

    async with on_controller(tmp_path) as (_, channels):
        forged: Any = await channels["alice"].request(envelope(principal_bytes("User:admin")))
        assert (forged.error_code, forged.response_data) == (CLUSTER_DENIED, None)
        for principal, refused in (("User:admin", False), ("User:alice", True)):
            answer: Any = await channels["admin"].request(envelope(principal_bytes(principal)))
            assert answer.error_code == 0
            assert (CLUSTER_DENIED.to_bytes(2, "big") in bytes(answer.response_data)[4:12]) == refused
        for broken in (None, b"", b"\0", b"\0\1abc", b"\0\0\x20User", b"\0\0\x05User\xff\xff\xff\xff\xff\xff"):
            answer = await channels["admin"].request(envelope(broken))
            assert answer.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


# -- administration and the log ------------------------------------------------------------------------------------


async def test_acls_hold_when_their_creation_is_answered_and_after_a_restart(tmp_path: Path) -> None:
    mine = [
        Acl(R.TOPIC, "op", PatternType.PREFIXED, "User:alice", "*", Op.WRITE, Permission.ALLOW),
        Acl(R.TOPIC, "secret", PatternType.LITERAL, "User:*", "*", Op.ALL, Permission.DENY),
    ]
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"

    def admin_of(node: Node, user: str) -> AclAdmin:
        security = login | {"sasl.jaas.config": f'{module} username="{user}" password="{user}";'}
        return AclAdmin(f"127.0.0.1:{node.listeners['PLAINTEXT'].port}", security=security)

    async with node_with_topics(tmp_path) as (node, _, alice):
        async with admin_of(node, "admin") as admin:
            await admin.create_acls(mine)
            assert error_codes(await alice.request(produce("open", id_of(node, "open")))) == [0]
            assert await admin.describe_acls(AclFilter(R.TOPIC, "open", PatternType.MATCH)) == mine[:1]
            with pytest.raises(BrokerError, match="The only valid name for the CLUSTER resource is kafka-cluster"):
                await admin.create_acls([allow(R.CLUSTER, "other", Op.ALTER)])
        async with admin_of(node, "alice") as other:
            with pytest.raises(BrokerError) as caught:
                await other.create_acls(mine)
            assert caught.value.code is CLUSTER_DENIED
    async with acl_node(tmp_path) as node, admin_of(node, "admin") as admin:
        assert sorted(await admin.describe_acls()) == sorted(mine)
        assert await admin.delete_acls([AclFilter(principal="User:alice")]) == mine[:1]
        alice = await channel_of(node, "alice")
        assert error_codes(await alice.request(produce("open", id_of(node, "open")))) == [TOPIC_DENIED]
        alice.close()


async def test_without_an_authorizer_there_are_no_acls(tmp_path: Path) -> None:
    async with live_node(tmp_path) as node, AclAdmin(f"127.0.0.1:{node.listeners['PLAINTEXT'].port}") as admin:
        for attempt in (admin.describe_acls(), admin.create_acls([topic(Op.READ)]), admin.delete_acls([AclFilter()])):
            with pytest.raises(BrokerError, match="No Authorizer is configured") as caught:
                await attempt
            assert caught.value.code is ErrorCode.SECURITY_DISABLED


async def test_a_denial_is_one_readable_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with node_with_topics(tmp_path) as (node, _, alice):
        caplog.set_level(logging.INFO, "minikafka.authorizer")
        deny = allow(R.TOPIC, "secret", Op.WRITE, permission=Permission.DENY)
        set_acls(node, [deny])
        for _ in range(5):
            await alice.request(produce("secret", id_of(node, "secret")))
        await alice.request(MetadataRequest(topics=names("no\nwhere")))
        lines = [record.getMessage() for record in caplog.records if record.name == "minikafka.authorizer"]
        assert lines == [
            "User:alice from 127.0.0.1 is denied Write on Topic 'secret' (Produce): "
            "DENY Write on Topic LITERAL 'secret' for User:alice from *",
            "User:alice from 127.0.0.1 is denied Describe on Topic 'no\\nwhere' (Metadata): no ACL allows it",
        ]
        assert node.authority is not None and node.authority.denied == 6


async def test_acls_that_come_and_go_are_lines_of_the_controller(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with node_with_topics(tmp_path) as (_, admin, _):
        caplog.set_level(logging.INFO)
        creation = CreateAclsRequest.AclCreation(
            resource_type=2, resource_name="t", principal="User:a\nb", host="*", operation=3, permission_type=3
        )
        assert error_codes(await admin.request(CreateAclsRequest(creations=[creation, creation]))) == [0, 0]
        wanted = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None, host_filter=None,
            operation=1, permission_type=1,
        )  # fmt: skip
        await admin.request(DeleteAclsRequest(filters=[wanted]))
        lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("ACL ")]
        assert lines == [f"ACL {word}: ALLOW Read on Topic LITERAL 't' for User:a\\nb from *" for word in ("created", "removed")]


def test_an_api_without_a_rule_is_not_served() -> None:
    def handler(context: Any, request: Any) -> None:
        """Of no interest."""

    with pytest.raises(AssertionError, match="CreateTopicsRequest is served without an authorization rule"):
        guarding(cast(Any, object()), {})(CreateTopicsRequest, handler)
    assert guarding(None, {})(CreateTopicsRequest, handler) is handler


async def test_loggers_of_a_broker_need_alter_configs_of_the_cluster(tmp_path: Path) -> None:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name="minikafka.node", config_operation=0, value="INFO")
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=8, resource_name="1", configs=[change])
    async with acl_node(tmp_path) as node:
        alice = await channel_of(node, "alice")
        denied: Any = await alice.request(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True))
        set_acls(node, [on_cluster(Operation.ALTER_CONFIGS)])
        allowed: Any = await alice.request(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True))
        assert [error_codes(answer) for answer in (denied, allowed)] == [[CLUSTER_DENIED], [0]]
        alice.close()
