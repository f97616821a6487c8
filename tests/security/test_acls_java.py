"""Apache Kafka's own kafka-acls and clients against our authorizer, and its nodes in one cluster with ours under the same ACLs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.acl_node import PROPERTIES, acl_node, channel_to, error_codes, login_of
from helpers.acl_rows import prepare, rows
from helpers.apache_kafka import KafkaBroker, run_tool
from helpers.java_clients import fails, secured, written
from helpers.live_node import broker_port
from helpers.mixed_cluster import BOTH, KAFKA, MINI, MixedCluster

from minikafka.client.acls import AclAdmin
from minikafka.client.errors import BrokerError
from minikafka.client.producer import Producer
from minikafka.core.authorizer.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from minikafka.testing import EmbeddedBroker, Security
from minikafka.testing.security import SecuredCluster
from minikafka.wire.errors import ErrorCode

pytestmark = [pytest.mark.java, pytest.mark.security, pytest.mark.timeout(240)]
USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
ACLS, TOPICS = "org.apache.kafka.tools.AclCommand", "org.apache.kafka.tools.TopicCommand"
#: Allowed, and yet not the same: a broker that waits for its first producer ids, and a coordinator that is not implemented here.
NOT_ABOUT_ACLS = {"InitProducerId without None", "FindCoordinator of a share group without None"}
WRITE = Acl(ResourceType.TOPIC, "t", PatternType.LITERAL, "User:alice", "*", Operation.WRITE, Permission.ALLOW)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(security=Security("SASL_PLAINTEXT", users=USERS, acls=True), topics={"orders": 1, "payments": 1}) as made:
        yield made


def login(broker: EmbeddedBroker, directory: Path, user: str) -> tuple[str, str]:
    return "--command-config", written(directory / f"{user}.properties", secured(broker).client_properties(user))  # type: ignore[arg-type]


def test_kafka_acls(broker: EmbeddedBroker, tmp_path: Path) -> None:
    server = ("--bootstrap-server", broker.bootstrap_servers)
    admin, alice = (*server, *login(broker, tmp_path, "admin")), (*server, *login(broker, tmp_path, "alice"))
    said = fails(TOPICS, *alice, "--create", "--topic", "mine")
    assert "TopicAuthorizationException" in said
    added = run_tool(ACLS, *admin, "--add", "--allow-principal", "User:alice", "--operation", "Create", "--operation", "Describe",
                     "--topic", "mi", "--resource-pattern-type", "prefixed")  # fmt: skip
    assert "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=mi, patternType=PREFIXED)`" in added
    assert "Created topic mine." in run_tool(TOPICS, *alice, "--create", "--topic", "mine", "--partitions", "1")
    assert run_tool(TOPICS, *alice, "--list").split() == ["mine"]
    run_tool(ACLS, *admin, "--add", "--allow-principal", "User:bob", "--consumer", "--topic", "orders", "--group", "g")
    listed = run_tool(ACLS, *admin, "--list")
    for line in (
        "(principal=User:alice, host=*, operation=CREATE, permissionType=ALLOW)",
        "(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)",
        "resourceType=GROUP, name=g, patternType=LITERAL",
    ):
        assert line in listed
    assert "mine" not in run_tool(ACLS, *admin, "--list", "--topic", "orders", "--resource-pattern-type", "match")
    run_tool(ACLS, *admin, "--remove", "--force", "--topic", "mi", "--resource-pattern-type", "prefixed")
    assert "name=mi," not in run_tool(ACLS, *admin, "--list")
    assert "ClusterAuthorizationException" in fails(ACLS, *alice, "--list")


def test_errors_that_java_clients_see(broker: EmbeddedBroker, tmp_path: Path) -> None:
    admin = AclAdmin(broker.bootstrap_servers, security=secured(broker).client_properties())  # type: ignore[arg-type]

    def perf(user: str, topic: str) -> tuple[str, ...]:
        config = login(broker, tmp_path, user)[1]
        return (
            "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", "100", "--record-size", "100",
            "--throughput", "-1", "--command-config", config, "--command-property", f"bootstrap.servers={broker.bootstrap_servers}",
        )  # fmt: skip

    async def grant(*acls: Acl) -> None:
        async with admin:
            await admin.create_acls(acls)

    orders = WRITE._replace(resource_name="orders")
    asyncio.run(grant(orders))
    assert "100 records sent" in run_tool(*perf("alice", "orders"))
    config = login(broker, tmp_path, "bob")[1]
    said = fails("org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", broker.bootstrap_servers, "--command-config", config,
                 "--topic", "orders", "--num-records", "1", "--group", "mine", "--timeout", "8000")  # fmt: skip
    assert "AuthorizationException" in said


async def test_apache_kafka_refuses_the_same_in_the_same_places(tmp_path: Path) -> None:
    """Every row of the matrix, with each ACL missing in turn and with all: the codes of the whole answer, in order."""
    single = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
    kafka = KafkaBroker(tmp_path / "kafka", PROPERTIES | single)
    kafka.format()
    found: list[dict[str, list[int]]] = []

    async def answers(port: int) -> dict[str, list[int]]:
        admin, alice = await channel_to(port, "admin"), await channel_to(port, "alice")
        acls = AclAdmin(f"127.0.0.1:{port}", security=login_of("admin"))
        topic_id = await prepare(admin)
        reported = {}

        async def hold(wanted: list[Acl]) -> None:
            """Apache Kafka answers before its broker knows."""
            await acls.delete_acls([AclFilter()])
            if wanted:
                await acls.create_acls(wanted)
            while sorted(await acls.describe_acls()) != sorted(wanted):
                await asyncio.sleep(0.01)

        async with acls:
            for name, row in rows().items():
                takes = [acl for acl, _ in row.takes]
                for missing in (*takes, None):
                    await hold([acl for acl in takes if acl != missing])
                    reported[f"{name} without {missing}"] = error_codes(await alice.request(row.make(topic_id), row.version))
        admin.close()
        alice.close()
        return reported

    with kafka.running():
        found.append(await answers(int(kafka.bootstrap.rpartition(":")[2])))
    async with acl_node(tmp_path / "ours") as node:
        found.append(await answers(broker_port(node)))
    theirs, ours = found
    assert {name: (codes, ours[name]) for name, codes in theirs.items() if codes != ours[name] and name not in NOT_ABOUT_ACLS} == {}


async def test_nodes_of_both_kinds_hold_the_same_acls(tmp_path: Path) -> None:
    """Whichever kind the active controller is: ACLs that one kind writes hold on brokers of the other, and after a change of office."""
    made = SecuredCluster(Security("SASL_PLAINTEXT", users=USERS, acls=True), tmp_path)
    # Controllers in plain text, so that the helper can ask them who leads.
    properties = made.broker_properties("PLAINTEXT", "CONTROLLER") | {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    admin_login, alice_login = made.client_properties(), made.client_properties("alice")
    nodes = [(1, KAFKA, BOTH), (2, MINI, BOTH), (3, MINI, BOTH)]
    with MixedCluster(tmp_path / "cluster", nodes, properties=properties, security=admin_login) as cluster:
        cluster.format()
        cluster.start()
        addresses = [node.address for node in cluster.nodes.values()]

        async def described() -> list[list[Acl]]:
            found = []
            for address in addresses:
                async with AclAdmin(address, security=admin_login) as admin:
                    found.append(sorted(await admin.describe_acls()))
            return found

        async def agreed(count: int) -> None:
            while True:
                found = await described()
                if all(len(acls) == count and acls == found[0] for acls in found):
                    return
                await asyncio.sleep(0.1)

        for number, kind in enumerate((KAFKA, MINI)):
            while cluster.nodes[(office := cluster.wait_for_leader())[1]].kind != kind:
                cluster.stop(office[1])
                cluster.wait_for_leader(office[0])
                cluster.start(office[1])
            acl = WRITE._replace(resource_name=f"t-{number}")
            async with AclAdmin(addresses[number], security=admin_login) as admin:
                await admin.create_topic(f"t-{number}", partitions=3, replication_factor=3)
                await admin.create_acls([acl, acl._replace(host="10.0.0.1", permission=Permission.DENY)])
            await agreed(2 * (number + 1))
            async with Producer(cluster.bootstrap, security=alice_login) as producer:
                for partition in range(3):  # each of them led by another node
                    await producer.send(f"t-{number}", b"x", partition=partition)
                with pytest.raises(BrokerError) as caught:
                    await producer.send(f"t-{number + 1}", b"x")
                assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        async with AclAdmin(addresses[0], security=admin_login) as admin:
            removed = await admin.delete_acls([AclFilter(permission=Permission.DENY)])
        assert len(removed) == 2
        await agreed(2)
        cluster.check_errors()
