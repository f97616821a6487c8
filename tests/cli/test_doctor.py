"""`minikafka doctor` and the usual mistakes: each is told, with what to do, and a sound cluster is told nothing."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trustme
from click.testing import CliRunner

from minikafka.cli import doctor_cluster as judge
from minikafka.cli import doctor_listener
from minikafka.cli.doctor import _is_here, _unresolved
from minikafka.cli.doctor_cluster import Topic
from minikafka.cli.doctor_findings import COMPARE, REFUSALS, Finding, Heard, mismatch, refusal_advice
from minikafka.cli.doctor_listener import listen_at
from minikafka.cli.main import cli
from minikafka.testing import EmbeddedBroker, EmbeddedCluster

PLAIN, SASL = {"security.protocol": "PLAINTEXT"}, {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}


def topic(replicas: int, isr: int, **configs: str) -> Topic:
    numbers = tuple(range(1, replicas + 1))
    return Topic("t", (numbers, numbers), (numbers, numbers[:isr]), {name.replace("_", "."): value for name, value in configs.items()})


def advised(findings: list[Finding]) -> list[tuple[str, str]]:
    assert all(f.advice for f in findings if f.state != "ok")
    return [(f.state, f.text) for f in findings if f.state != "ok"]


@pytest.mark.parametrize(
    ("findings", "state", "said"),
    [
        (judge.addresses({1: ("h", 9092), 2: ("h", 9092), 3: ("h", 9093)}), "error", "brokers 1, 2 all advertise h:9092"),
        (judge.cluster_ids({"a:1": "X", "b:1": "Y"}), "error", "a:1 belongs to X, b:1 belongs to Y"),
        (judge.out_of_service([2], []), "error", "is down"),
        (judge.out_of_service([], [2]), "error", "answers, but is fenced"),
        (judge.topics([topic(2, 2, min_insync_replicas="3")], 3), "error", "t: min.insync.replicas is larger"),
        (judge.topics([topic(3, 1, min_insync_replicas="2")], 3), "error", "t: fewer in sync than min.insync.replicas"),
        (judge.topics([topic(2, 2, min_insync_replicas="2")], 3), "warning", "one broker down stops writes"),
        (judge.topics([topic(1, 1)], 3), "warning", "one replica"),
        (judge.topics([topic(3, 3, unclean_leader_election_enable="true")], 3), "warning", "unclean.leader.election.enable=true"),
        (judge.broker_configs(1, {"offsets.topic.replication.factor": "3"}, 1, []), "error", "consumer groups cannot work"),
        (judge.broker_configs(1, {"transaction.state.log.replication.factor": "3"}, 2, []), "error", "transactions cannot work"),
        (judge.broker_configs(1, {"log.dirs": "/data, /tmp/kafka-logs"}, 1, []), "warning", "/tmp/kafka-logs is a directory for temporary"),
        (
            judge.broker_configs(1, {"replica.fetch.response.max.bytes": "1000", "message.max.bytes": "2000"}, 1, []),
            "warning",
            "less than message.max.bytes",
        ),
        (judge.group("g", "PreparingRebalance", 2, 2), "warning", "is rebalancing"),
        (judge.group("g", "Stable", 5, 3), "warning", "5 members for 3 partitions: 2 are idle"),
        (judge.disk(1, "/data", 1000, 99, ""), "warning", "10% of the volume is free"),
        (judge.disk(1, "/data", -1, -1, "KAFKA_STORAGE_ERROR"), "error", "the log directory is offline"),
        (judge.round_trip(1, 1001), "warning", "took 1001 ms"),
        ([judge.clock(-5001)], "warning", "the controller's clock is -5001 ms"),
        (judge.descriptors(1024), "warning", "may open 1,024 files"),
    ],
)
def test_a_mistake_of_the_cluster(findings: list[Finding], state: str, said: str) -> None:
    ((found, text),) = advised(findings)
    assert found == state and said in text


def test_a_healthy_cluster_has_no_findings() -> None:
    sound = [
        *judge.addresses({1: ("h", 9092), 2: ("h", 9093)}),
        *judge.cluster_ids({"a:1": "X", "b:1": "X"}),
        *judge.topics([topic(3, 2, min_insync_replicas="2"), topic(3, 3)], 3),
        *judge.topics([topic(1, 1)], 1),
        *judge.broker_configs(1, {"offsets.topic.replication.factor": "3", "log.dirs": "/data"}, 1, ["__consumer_offsets"]),
        *judge.broker_configs(1, {"offsets.topic.replication.factor": "3", "log.dirs": "/tmp/minikafka-x/data"}, 3, []),
        *judge.group("g", "Stable", 3, 3),
        *judge.group("g", "Empty", 0, 0),
        *judge.disk(1, "/data", 1000, 100, ""),
        *judge.disk(1, "/data", -1, -1, ""),
        *judge.round_trip(1, 1000),
        judge.clock(5000),
        *judge.descriptors(4096),
        *judge.descriptors(-1),
    ]
    assert advised(sound) == []


def test_names_are_listed_up_to_a_number() -> None:
    many = [Topic(f"t{number}", ((1,),), ((1,),)) for number in range(12)]
    ((_, text),) = advised(judge.topics(many, 2))
    assert "t9 and 2 more: only one replica" in text


@pytest.mark.parametrize(
    ("heard", "properties", "said", "advice"),
    [
        (Heard("kafka", is_tls=True), PLAIN, "speaks SSL, this client PLAINTEXT", "-X security.protocol=SSL"),
        (Heard("kafka"), SASL, "speaks PLAINTEXT, this client SASL_SSL", "-X security.protocol=PLAINTEXT"),
        (Heard("kafka", mechanisms=("SCRAM-SHA-256",)), {}, "speaks SASL_PLAINTEXT", "-X sasl.mechanism=SCRAM-SHA-256"),
        (
            Heard("kafka", is_tls=True, mechanisms=("PLAIN",)),
            {"security.protocol": "ssl"},
            "speaks SASL_SSL",
            "-X security.protocol=SASL_SSL",
        ),
        (Heard("kafka", is_controller=True), {}, "a controller listener", "controller.listener.names"),
        (Heard("http"), {}, "an HTTP server answers", "9092"),
    ],
)
def test_a_listener_with_another_security_protocol(heard: Heard, properties: dict[str, str], said: str, advice: str) -> None:
    found = mismatch(heard, properties)
    assert found is not None and said in found[0] and advice in found[1]


def test_a_listener_that_fits() -> None:
    assert mismatch(Heard("kafka"), {}) is None and mismatch(Heard("other"), {}) is None
    assert mismatch(Heard("kafka", is_tls=True, mechanisms=("PLAIN",)), SASL) is None


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("SASL mechanism PLAIN is not enabled there; enabled: SCRAM-SHA-512", "sasl.mechanism"),
        ("the server's certificate is not accepted: certificate has expired", "clock"),
        ("the server's certificate is not accepted: Hostname mismatch, certificate is not valid for 'b'.", "subjectAltName"),
        ("the server's certificate is not accepted: IP address mismatch, certificate is not valid for '::1'.", "subjectAltName"),
        ("the server's certificate is not accepted: certificate is not yet valid", "clock"),
        ("Authentication failed: Invalid username or password", "password"),
        ("something new", COMPARE),
    ],
)
def test_a_refusal_of_tls_or_sasl(text: str, advice: str) -> None:
    assert advice in refusal_advice(text)
    assert len({part for part, _ in REFUSALS}) == len(REFUSALS)


def test_a_name_of_a_container() -> None:
    assert "looks like a container's name" in _unresolved("kafka-1")
    assert "container" not in _unresolved("kafka.example.org")


@asynccontextmanager
async def server(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]], context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


async def test_a_server_that_is_not_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_listener, "DIAL_TIMEOUT_S", 0.3)

    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\0\0\xff\xff" + b"\0\0\0\x12\0\0\x7f\xff\xff\xff" * 10_000)

    for answer, expected in ((http, "http"), (silent, "silent"), (ssh, "other"), (endless, "other")):
        async with server(answer) as port:
            assert (await listen_at("127.0.0.1", port)).what == expected, answer


async def test_a_listener_that_requires_client_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_listener, "DIAL_TIMEOUT_S", 2.0)
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)

    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with server(nothing, context) as port:
        heard = await listen_at("127.0.0.1", port)
    assert heard == Heard("kafka", is_tls=True)


@pytest.mark.parametrize(
    ("security", "protocol", "mechanisms"),
    [
        (None, "PLAINTEXT", None),
        ("sasl_ssl", "SASL_SSL", ("PLAIN",)),
        ("ssl", "SSL", None),
        ("sasl_plaintext", "SASL_PLAINTEXT", ("PLAIN",)),
    ],
)
def test_the_real_listener_says_what_it_is(security: str | None, protocol: str, mechanisms: tuple[str, ...] | None) -> None:
    with EmbeddedBroker(security=security) as broker:
        host, port = broker.bootstrap_servers.split(":")
        heard = asyncio.run(listen_at(host, int(port)))
        assert (heard.what, heard.protocol, heard.mechanisms, heard.is_controller) == ("kafka", protocol, mechanisms, False)
        result = CliRunner().invoke(cli, ["doctor", "-b", broker.bootstrap_servers, "-o", "json"])
        if security is None:
            assert result.exit_code == 0 and all(row["state"] == "ok" for row in json.loads(result.stdout)), result.stdout
            return
        assert result.exit_code == 3
        assert f"-X security.protocol={protocol}" in json.loads(result.stdout)[0]["advice"]
        wrong = ["-X", f"security.protocol={protocol}", "-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=admin", "-X", "sasl.password=no"]
        if security == "sasl_plaintext":
            result = CliRunner().invoke(cli, ["doctor", "-b", broker.bootstrap_servers, *wrong])
            assert result.exit_code == 3 and "Check the user and password" in result.output, result.output


def test_certificates_that_either_side_misses() -> None:
    """The advice is found by the text of an error, so the errors are real ones."""
    with EmbeddedBroker(security="mtls") as broker:
        assert broker.secured is not None
        trust = ["-X", "security.protocol=SSL", "-X", f"ssl.ca.location={broker.secured.ca}"]
        for properties, advice in ((["-X", "security.protocol=SSL"], "ssl.truststore.location"), (trust, "ssl.keystore.location")):
            result = CliRunner().invoke(cli, ["doctor", "-b", broker.bootstrap_servers, "-o", "json", *properties])
            (found,) = json.loads(result.stdout)
            assert result.exit_code == 3 and advice in found["advice"], found
            assert found["text"].count(broker.bootstrap_servers) <= 2


def test_a_broker_that_is_down_still_belongs_to_the_cluster() -> None:
    """Though it has no partition. What the others need is that it comes back, not that new topics get fewer replicas."""
    with EmbeddedCluster(brokers=4, config={"transaction.state.log.replication.factor": 4}) as cluster:
        (idle,) = {1, 2, 3, 4} - set(cluster.partition("__consumer_offsets", 0).replicas)
        cluster.broker(idle).kill()
        rest = {1, 2, 3, 4} - {idle}
        address = cluster.broker(min(rest)).address
        listed = ["cluster", "list-endpoints", "-b", address, "--include-fenced-brokers", "-o", "json"]
        # For a moment the brokers still name it to clients.
        cluster.wait_until(lambda: '"fenced"' in CliRunner().invoke(cli, listed).stdout, f"broker {idle} to be fenced")
        result = CliRunner().invoke(cli, ["doctor", "-b", address, "-o", "json"])
        said = advised([Finding(**row) for row in json.loads(result.stdout)])
        assert result.exit_code == 1 and said[-1] == ("error", "is down")
        assert {text for _, text in said[:-1]} <= {"the connection is refused"}
        result = CliRunner().invoke(cli, ["health", "-b", address])
        assert result.exit_code == 1 and f"brokers down: {idle}" in result.output


def test_a_broker_on_this_machine_is_not_remote_under_another_name() -> None:
    """0.0.0.0 and the machine's own name reach brokers that advertise localhost, which counted as an error."""
    assert _is_here("0.0.0.0") and _is_here("127.0.0.2") and _is_here("localhost")
    assert not _is_here("192.0.2.1") and not _is_here("no.such.host.invalid")
    with EmbeddedBroker() as broker:
        port = broker.bootstrap_servers.rpartition(":")[2]
        done = CliRunner().invoke(cli, ["doctor", "-b", f"0.0.0.0:{port}"])
    assert done.exit_code == 0 and "only programs on this machine can use this address" in done.output, done.output
