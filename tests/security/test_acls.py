"""ACLs as clients meet them: what librdkafka says of a denial, what it does when it is allowed, and the command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from minikafka.cli.main import cli
from minikafka.client.consumer import Consumer
from minikafka.client.errors import BrokerError
from minikafka.client.producer import Producer
from minikafka.testing import EmbeddedBroker, Security

pytestmark = pytest.mark.timeout(60)
USERS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
ANY = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)  # fmt: skip


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    security = Security("SASL_PLAINTEXT", users=USERS, acls=True)
    with EmbeddedBroker(security=security, topics={"orders": 1, "payments": 1}) as made:
        yield made


@pytest.fixture
def admin(broker: EmbeddedBroker) -> Iterator[AdminClient]:
    """The administrator's; afterwards there are no ACLs."""
    made = AdminClient(broker.client_config("confluent"))
    yield made
    for future in made.delete_acls([ANY]).values():
        future.result(20)


def config(broker: EmbeddedBroker, user: str, **more: Any) -> dict[str, Any]:
    assert broker.secured is not None
    return {"bootstrap.servers": broker.bootstrap_servers, **broker.secured.client_config("confluent", user), **more}


def acl(kind: ResourceType, name: str, operation: AclOperation, user: str, pattern: Any = ResourcePatternType.LITERAL) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def create(admin: AdminClient, *acls: AclBinding) -> None:
    for future in admin.create_acls(list(acls)).values():
        future.result(20)


def delivered(producer: confluent_kafka.Producer, topic: str) -> KafkaError | None:
    """The error with which a record came back."""
    reported: list[KafkaError | None] = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: reported.append(error))
    assert producer.flush(20) == 0
    return reported[0]


def test_a_producer_writes_where_it_may(broker: EmbeddedBroker, admin: AdminClient) -> None:
    create(admin, acl(ResourceType.TOPIC, "ord", AclOperation.WRITE, "alice", ResourcePatternType.PREFIXED))
    producer = confluent_kafka.Producer(config(broker, "alice", **{"enable.idempotence": True}))
    assert delivered(producer, "orders") is None
    refused = delivered(producer, "payments")
    assert refused is not None and refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert set(AdminClient(config(broker, "alice")).list_topics(timeout=20).topics) == {"orders"}


def test_a_consumer_needs_its_group_too(broker: EmbeddedBroker, admin: AdminClient) -> None:
    create(admin, acl(ResourceType.TOPIC, "orders", AclOperation.READ, "bob"))
    assert delivered(confluent_kafka.Producer(broker.client_config("confluent")), "orders") is None
    settings = config(broker, "bob", **{"group.id": "g", "auto.offset.reset": "earliest"})
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["orders"])
    message = consumer.poll(20)
    assert message is not None and message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()
    create(admin, acl(ResourceType.GROUP, "g", AclOperation.READ, "bob"))
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["orders"])
    message = consumer.poll(20)
    assert message is not None and message.error() is None
    consumer.commit(message=message, asynchronous=False)
    consumer.close()


def test_administration_needs_permission(broker: EmbeddedBroker, admin: AdminClient) -> None:
    alice = AdminClient(config(broker, "alice"))
    with pytest.raises(KafkaException) as caught:
        alice.create_topics([NewTopic("mine", 1, 1)])["mine"].result(20)
    assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as caught:
        create(alice, acl(ResourceType.TOPIC, "mine", AclOperation.CREATE, "alice"))
    assert caught.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    create(admin, acl(ResourceType.TOPIC, "mine", AclOperation.CREATE, "alice"))
    alice.create_topics([NewTopic("mine", 1, 1)])["mine"].result(20)
    created = acl(ResourceType.TOPIC, "mine", AclOperation.CREATE, "alice")
    assert admin.describe_acls(ANY).result(20) == [created]
    assert list(admin.delete_acls([ANY])[ANY].result(20)) == [created]


def test_the_bundled_client_says_what_is_denied(broker: EmbeddedBroker) -> None:
    assert broker.secured is not None
    security = broker.secured.client_properties("alice")

    async def produce() -> None:
        async with Producer(broker.bootstrap_servers, security=security) as producer:
            await producer.send("orders", b"x")

    async def consume() -> None:
        async with Consumer(broker.bootstrap_servers, group_id="g", security=security) as consumer:
            await consumer.subscribe(["orders"])
            await consumer.poll(timeout_ms=10_000)

    for attempt in (produce, consume):
        with pytest.raises(BrokerError) as caught:
            asyncio.run(attempt())
        assert caught.value.code.name.endswith("AUTHORIZATION_FAILED")


def test_the_command(broker: EmbeddedBroker, admin: AdminClient) -> None:
    assert broker.secured is not None
    login = [part for name, value in broker.secured.client_properties().items() for part in ("-X", f"{name}={value}")]

    def acls(*arguments: str, typed: str | None = None, status: int = 0) -> str:
        result = CliRunner().invoke(cli, ["acls", "-b", broker.bootstrap_servers, *login, *arguments], input=typed)
        assert result.exit_code == status, result.output
        return result.output

    added = acls("--add", "--allow-principal", "User:bob", "--consumer", "--topic", "orders", "--group", "g")
    assert added == (
        "Adding ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`: \n"
        " \t(principal=User:bob, host=*, operation=READ, permissionType=ALLOW)\n"
        "\t(principal=User:bob, host=*, operation=DESCRIBE, permissionType=ALLOW) \n\n"
        "Adding ACLs for resource `ResourcePattern(resourceType=GROUP, name=g, patternType=LITERAL)`: \n"
        " \t(principal=User:bob, host=*, operation=READ, permissionType=ALLOW) \n\n"
    )
    acls("--add", "--deny-principal", "User:alice", "--deny-host", "10.0.0.1", "--operation", "Write", "--topic", "ord",
         "--resource-pattern-type", "prefixed")  # fmt: skip
    acls("--add", "--allow-principal", "User:alice", "--producer", "--idempotent", "--topic", "orders", "--transactional-id", "x")
    listed = acls("--list", "--topic", "orders", "--resource-pattern-type", "match", "--principal", "User:alice")
    assert listed == (
        "ACLs for principal `User:alice`\n"
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=ord, patternType=PREFIXED)`: \n"
        " \t(principal=User:alice, host=10.0.0.1, operation=WRITE, permissionType=DENY) \n\n"
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`: \n"
        " \t(principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW)\n"
        "\t(principal=User:alice, host=*, operation=CREATE, permissionType=ALLOW)\n"
        "\t(principal=User:alice, host=*, operation=DESCRIBE, permissionType=ALLOW) \n\n"
    )
    rows = json.loads(acls("--list", "--cluster", "-o", "json"))
    assert [(row["principal"], row["operation"], row["permission"]) for row in rows] == [("User:alice", "IDEMPOTENT_WRITE", "ALLOW")]
    assert "Are you sure you want to delete all ACLs" in acls("--remove", "--cluster", typed="n\n", status=1)
    assert len(json.loads(acls("--list", "--cluster", "-o", "json"))) == 1
    removed = json.loads(acls("--remove", "--cluster", "--force", "-o", "json"))
    assert removed == rows
    acls("--remove", "--topic", "orders", "--allow-principal", "User:bob", "--operation", "Read", typed="y\n")
    left = {(row["principal"], row["operation"]) for row in json.loads(acls("--list", "--topic", "orders", "-o", "json"))}
    assert left == {("User:bob", "DESCRIBE"), *(("User:alice", name) for name in ("WRITE", "DESCRIBE", "CREATE"))}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--list, --add or --remove"),
        (["--add", "--topic", "t"], "--allow-principal, --deny-principal"),
        (["--add", "--allow-principal", "User:a"], "at least one resource"),
        (["--add", "--allow-principal", "alice", "--topic", "t"], "is not TYPE:NAME"),
        (["--add", "--allow-principal", "User:a", "--topic", "t", "--resource-pattern-type", "match"], "not valid when adding acls"),
        (["--add", "--allow-principal", "User:a", "--group", "g", "--operation", "Write"], "only supports operations All, Read"),
        (["--add", "--allow-principal", "User:a", "--topic", "t", "--operation", "Frob"], "must be one of All, Read"),
        (["--add", "--allow-principal", "User:a", "--topic", "t", "--consumer"], "--topic and a --group"),
        (["--add", "--allow-principal", "User:a", "--topic", "t", "--producer", "--operation", "Read"], "do not give --operation"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, ["acls", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
