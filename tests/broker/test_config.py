"""Configuration: Kafka's names, every problem at once, the environment of Kafka's images."""

from __future__ import annotations

from pathlib import Path

import pytest

from minikafka.broker.config.broker_config import BrokerConfig, ConfigurationError, Endpoint, load_properties
from minikafka.broker.config.topic_config import log_config, topic_problems

GOOD = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "log.dirs": "/a,/b",
}


def test_a_good_configuration_is_typed_and_derived() -> None:
    config = BrokerConfig.from_properties({**GOOD, "log.retention.hours": "2", "log.roll.hours": "1"})
    assert (config.node_id, config.is_broker, config.is_controller) == (1, True, True)
    assert config.broker_listeners == [Endpoint("PLAINTEXT", "", 9092)]
    assert config.controller_listeners == [Endpoint("CONTROLLER", "", 9093)]
    assert config.inter_broker_listener == "PLAINTEXT"
    assert config.voters == {1: ("localhost", 9093)}
    assert config.directories == ["/a", "/b"]
    assert (config.log_retention_ms, config.log_roll_ms) == (7_200_000, 3_600_000)
    assert config.replica_lag_time_max_ms == 30_000


def test_all_problems_are_reported_at_once_with_the_value_and_the_allowed_values() -> None:
    wrong = {
        **GOOD,
        "node.id": "one",
        "num.partitons": "3",
        "compression.type": "zst",
        "min.insync.replicas": "0",
        "listeners": "NONE://:1",
    }
    with pytest.raises(ConfigurationError) as raised:
        BrokerConfig.from_properties(wrong)
    text = "\n".join(raised.value.problems)
    for expected in (
        "node.id=one: must be a whole number",
        "num.partitons is not a property; did you mean num.partitions?",
        "compression.type=zst: must be one of",
        "did you mean zstd?",
        "min.insync.replicas=0: must be",
        "NONE://:1",
    ):
        assert expected in text


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"process.roles": ""}, "process.roles is missing"),
        ({"controller.quorum.voters": "2@localhost:9093"}, "a controller must be among its voters"),
        ({"controller.quorum.voters": "1@localhost"}, "must be id@host:port"),
        ({"controller.quorum.voters": ""}, "the controllers' addresses"),
        ({"controller.listener.names": ""}, "controller.listener.names is missing"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "clients cannot connect to 0.0.0.0"),
        ({"advertised.listeners": "OTHER://h:1"}, "OTHER"),
        ({"inter.broker.listener.name": "NOPE"}, "no listener of the broker has this name"),
        ({"log.dirs": "/a,/a"}, "names a directory twice"),
        ({"broker.heartbeat.interval.ms": "9000"}, "must be below broker.session.timeout.ms"),
        ({"log.flush.interval.ms": "-1"}, "log.flush.interval.ms=-1: must be between 0 and"),
        ({"replica.fetch.wait.max.ms": "40000"}, "must not exceed replica.lag.time.max.ms"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9094,CONTROLLER://:9093"}, "used twice"),
        ({"listeners": "SASL_SSL://:9092,CONTROLLER://:9093"}, "sasl.enabled.mechanisms=GSSAPI: must name some of PLAIN, SCRAM-SHA-256"),
        (
            {"listeners": "SASL_SSL://:9092,CONTROLLER://:9093", "sasl.enabled.mechanisms": "PLAIN"},
            "listener.name.sasl_ssl.plain.sasl.jaas.config is missing: it defines the users of PLAIN",
        ),
        (
            {
                "listeners": "SASL_SSL://:9092,CONTROLLER://:9093",
                "sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
                "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": "x.ScramLoginModule required;",
            },
            "listener SASL_SSL: sasl.jaas.config: username and password are missing",
        ),
        ({"listeners": "SSL://:9092,CONTROLLER://:9093", "ssl.principal.mapping.rules": "RULE:x"}, "ssl.principal.mapping.rules"),
        ({"ssl.cipher.suites": "TLS_RSA_WITH_NULL_SHA"}, "ssl.cipher.suites"),
        ({"replica.selector.class": "my.Selector"}, "replica.selector.class"),
    ],
)
def test_each_mistake_is_explained(change: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        BrokerConfig.from_properties({**GOOD, **change})
    assert any(complaint in problem for problem in raised.value.problems), raised.value.problems


def test_names_of_listeners_may_be_written_in_lower_case() -> None:
    given = {"listeners": "external://h:9092,CONTROLLER://:9093", "inter.broker.listener.name": "external"}
    config = BrokerConfig.from_properties({**GOOD, **given, "listener.security.protocol.map": "external:PLAINTEXT,Controller:PLAINTEXT"})
    assert config.inter_broker_listener == "EXTERNAL"
    assert [endpoint.name for endpoint in config.broker_listeners] == ["EXTERNAL"]


def test_listeners_follow_the_advertised_ones_when_they_are_not_set() -> None:
    given = {k: v for k, v in GOOD.items() if k not in ("listeners", "process.roles", "controller.quorum.voters", "node.id")}
    config = BrokerConfig.from_properties(
        {
            **given,
            "process.roles": "broker",
            "node.id": "2",
            "controller.quorum.voters": "1@c:9093",
            "advertised.listeners": "PLAINTEXT://me:7000",
        }
    )
    assert config.broker_listeners == [Endpoint("PLAINTEXT", "0.0.0.0", 7000)]
    assert config.advertised["PLAINTEXT"] == Endpoint("PLAINTEXT", "me", 7000)


def test_known_properties_without_effect_are_accepted_with_a_warning() -> None:
    config = BrokerConfig.from_properties({**GOOD, "num.io.threads": "4", "sasl.kerberos.service.name": "x"})
    assert {"num.io.threads is accepted without effect", "sasl.kerberos.service.name is accepted without effect"} <= set(config.warnings)


def test_classic_groups_are_always_served() -> None:
    name = "group.coordinator.rebalance.protocols"
    with pytest.raises(ConfigurationError, match="Disabling the 'classic' protocol is not supported"):
        BrokerConfig.from_properties({**GOOD, name: "consumer,streams"})
    config = BrokerConfig.from_properties({**GOOD, name: "classic,share"})
    assert config.group_coordinator_rebalance_protocols == ["classic", "share"]
    assert [warning for warning in config.warnings if warning.startswith(f"{name}: share has no effect")]


def test_properties_files(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("# comment\n! another\n\na=1\nb : two\nlong=x,\\\n  y\nempty=\n")
    assert load_properties(path) == {"a": "1", "b": "two", "long": "x,y", "empty": ""}
    with pytest.raises(ConfigurationError, match="cannot read"):
        load_properties(tmp_path / "missing")


def test_topics_inherit_from_the_cluster_then_the_broker() -> None:
    config = BrokerConfig.from_properties({**GOOD, "log.retention.hours": "1", "log.segment.bytes": "2000000", "min.insync.replicas": "2"})
    assert log_config(config, {}).retention_ms == 3_600_000
    assert log_config(config, {}, {"log.retention.ms": "5"}).retention_ms == 5
    assert log_config(config, {"retention.ms": "7"}, {"log.retention.ms": "5"}).retention_ms == 7
    assert log_config(config, {}, {"log.retention.ms": "r"}).retention_ms == 3_600_000
    unlimited = BrokerConfig.from_properties({**GOOD, "log.retention.bytes": "-2"})
    assert log_config(unlimited, {}).retention_bytes == -2
    assert log_config(config, {}).segment_bytes == 2_000_000
    assert log_config(config, {"internal.segment.bytes": "12288"}).segment_bytes == 12_288


def test_topic_overrides_are_judged() -> None:
    assert topic_problems({"retention.ms": "-1", "cleanup.policy": "compact,delete"}) == []
    problems = topic_problems({"retention.msx": "1", "segment.bytes": "5", "cleanup.policy": "shred"})
    assert len(problems) == 3
    assert topic_problems({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"})
    assert topic_problems({"remote.storage.enable": "true"})
