"""SCRAM users of a running cluster: made, changed and taken away, by our tools and by others', and at the formatting of storage."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from click.testing import CliRunner, Result

from minikafka.cli.main import cli
from minikafka.client.errors import AuthenticationError
from minikafka.client.producer import Producer
from minikafka.security.client import ClientSecurity
from minikafka.testing import EmbeddedCluster, Security
from minikafka.testing.wait import wait_until

USERS = {"admin": "admin-secret", "alice": "alice-secret"}
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Three nodes whose only users are in the metadata, controllers among them."""
    security = Security("SASL_SSL", mechanism="SCRAM-SHA-512", users=USERS)
    config = {"sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256"}
    with EmbeddedCluster(brokers=3, security=security, config=config, topics={"t": 3}) as made:
        yield made


@pytest.fixture
def properties(cluster: EmbeddedCluster, tmp_path: Path) -> Path:
    assert cluster.secured is not None
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in cluster.secured.client_properties().items()))
    return path


def tool(cluster: EmbeddedCluster, properties: Path, *arguments: str, fails: bool = False, input: str | None = None) -> Result:
    command, *rest = arguments
    result = CliRunner().invoke(
        cli, [command, "-b", cluster.bootstrap_servers, "--command-config", str(properties), *rest], input=input
    )
    assert (result.exit_code != 0) is fails, result.output
    return result


async def write(cluster: EmbeddedCluster, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> None:
    assert cluster.secured is not None
    security = cluster.secured.client_properties(user, password) | {"sasl.mechanism": mechanism}
    async with Producer(cluster.bootstrap_servers, security=security) as producer:
        await producer.send("t", b"x")


async def heard(cluster: EmbeddedCluster) -> None:
    """Every broker knows what the active controller has committed; which may be after it has answered."""
    nodes = [broker.process._runner.node for broker in cluster.brokers]
    done = max(node.raft.quorum.high_watermark for node in nodes)
    await asyncio.to_thread(wait_until, lambda: all(node.metadata.offset + 1 >= done for node in nodes), "the metadata", 20)


async def test_a_user_comes_changes_the_password_and_goes(cluster: EmbeddedCluster, properties: Path) -> None:
    users = ("configs", "--entity-type", "users")

    def call(*rest: str, fails: bool = False) -> str:
        return tool(cluster, properties, *users, *rest, fails=fails).output

    async def run(*rest: str, fails: bool = False) -> str:
        said = await asyncio.to_thread(call, *rest, fails=fails)
        await heard(cluster)
        return said

    bob = ("--entity-name", "bob")
    one = "SCRAM-SHA-256=[iterations=8192,password=one]"
    assert "Completed updating config for user bob." in await run("--alter", *bob, "--add-config", one)
    shown = await run("--describe", *bob)
    assert shown.strip() == "SCRAM credential configs for user-principal 'bob' are SCRAM-SHA-256=iterations=8192"
    await write(cluster, "bob", "one")
    await run("--alter", *bob, "--add-config", "SCRAM-SHA-256=[password=two]")
    with pytest.raises(AuthenticationError, match="invalid credentials with SASL mechanism SCRAM-SHA-256"):
        await write(cluster, "bob", "one")
    await write(cluster, "bob", "two")
    await run("--alter", *bob, "--delete-config", "SCRAM-SHA-256")
    with pytest.raises(AuthenticationError):
        await write(cluster, "bob", "two")
    assert (await run("--describe", *bob)).strip() == "user bob has neither a password nor a quota"
    assert "Too few iterations" in await run("--alter", *bob, "--add-config", "SCRAM-SHA-256=[iterations=100,password=x]", fails=True)
    listed = await run("--describe", "-o", "json")
    assert '"alice"' in listed and '"bob"' not in listed


def test_another_administrators_client(cluster: EmbeddedCluster) -> None:
    admin = confluent_kafka.admin.AdminClient(cluster.client_config("confluent"))
    kind: Any = confluent_kafka.admin
    info = kind.ScramCredentialInfo(kind.ScramMechanism.SCRAM_SHA_512, 5000)
    changes = [kind.UserScramCredentialUpsertion("carol", info, b"carol-secret")]
    for future in admin.alter_user_scram_credentials(changes).values():
        future.result(20)
    # The broker that is asked may not have heard yet of what the controller has done.
    wait_until(lambda: "carol" in admin.describe_user_scram_credentials().result(20), "the new user", 20)
    found = admin.describe_user_scram_credentials(["carol"])["carol"].result(20)
    assert [(str(c.mechanism), c.iterations) for c in found.scram_credential_infos] == [("ScramMechanism.SCRAM_SHA_512", 5000)]
    assert cluster.secured is not None
    settings = cluster.client_config("confluent") | cluster.secured.client_config("confluent", "carol", "carol-secret")
    producer = confluent_kafka.Producer(settings)
    producer.produce("t", b"x")
    assert producer.flush(20) == 0
    with pytest.raises(confluent_kafka.KafkaException, match="does not exist"):
        for future in admin.alter_user_scram_credentials(
            [kind.UserScramCredentialDeletion("nobody", kind.ScramMechanism.SCRAM_SHA_512)]
        ).values():
            future.result(20)


def test_the_cluster_survives_its_controller(cluster: EmbeddedCluster) -> None:
    cluster.broker(cluster.controller).restart()
    cluster.wait_healthy()
    settings = cluster.client_config("confluent")
    producer = confluent_kafka.Producer(settings | {"acks": "all"})
    producer.produce("t", b"after")
    assert producer.flush(20) == 0
    cluster.audit()


def test_tools_with_a_properties_file(cluster: EmbeddedCluster, properties: Path) -> None:
    tool(cluster, properties, "topics", "--create", "--topic", "made", "--partitions", "2")
    assert "made" in tool(cluster, properties, "topics", "--list").output
    tool(cluster, properties, "produce", "made", input="a\nb\n")
    assert sorted(tool(cluster, properties, "consume", "made", "--from-beginning", "-e").stdout.split()) == ["a", "b"], "of two partitions"
    assert tool(cluster, properties, "health").output
    assert "error" not in tool(cluster, properties, "doctor").output


def test_audit_and_load_over_the_wire(cluster: EmbeddedCluster, properties: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("".join(f'{{"id": "{number}"}}\n' for number in range(500)))
    where = ["--bootstrap-server", cluster.bootstrap_servers, "--command-config", str(properties)]
    loaded = CliRunner().invoke(
        cli, ["load", str(tmp_path / "rows.jsonl"), "--topic", "loaded", "--partitions", "3", "--key", "id", "--engine", "local", *where]
    )
    assert loaded.exit_code == 0, loaded.output
    audited = CliRunner().invoke(cli, ["audit", "--engine", "local", "--topic", "loaded", *where])
    assert audited.exit_code == 0 and "PASS" in audited.output, audited.output
    wrong = 'sasl.jaas.config=x.ScramLoginModule required username="alice" password="nope";'
    refused = CliRunner().invoke(cli, ["audit", "--engine", "local", *where, "-X", wrong])
    assert refused.exit_code == 3 and "refuses user alice" in refused.output, refused.output


def test_a_wrong_password_is_one_line_and_an_exit_status(cluster: EmbeddedCluster, properties: Path) -> None:
    wrong = 'sasl.jaas.config=x.ScramLoginModule required username="alice" password="nope";'
    said = tool(cluster, properties, "topics", "-X", wrong, "--list", fails=True)
    assert said.exit_code == 1
    assert "error:" in said.output and "invalid credentials" in said.output and "nope" not in said.output
    said = tool(cluster, properties, "topics", "-X", "security.protocol=NONSENSE", "--list", fails=True)
    assert "must be one of PLAINTEXT, SSL" in said.output


@pytest.mark.security
async def test_a_session_is_renewed_before_it_expires(tmp_path: Path) -> None:
    security = Security("SASL_PLAINTEXT", mechanism="SCRAM-SHA-256", users=USERS)
    # Not shorter: a broker takes one renewal a second, as Apache Kafka's does.
    config = {"connections.max.reauth.ms": "1400"}
    with EmbeddedCluster(brokers=1, security=security, config=config, topics={"t": 1}) as made:
        assert made.secured is not None
        producer = Producer(made.bootstrap_servers, security=ClientSecurity.from_properties(made.secured.client_properties()))
        async with producer:
            began = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() < began + 4:  # nearly three lives
                await producer.send("t", b"x")
                await asyncio.sleep(0.02)
        assert "has expired" not in made.logs(200)
