"""`consumer-groups` and `groups` for groups of both protocols (KIP-848)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer
from helpers.shell import minikafka

from minikafka.testing import EmbeddedCluster
from minikafka.testing.wait import LoadAdjustedDeadline

pytestmark = pytest.mark.timeout(120)


@contextmanager
def member(bootstrap: str, group: str, protocol: str) -> Iterator[Consumer]:
    """A consumer that owns both partitions of t and has committed."""
    found = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, "client.id": "c", "log_level": 0})
    found.subscribe(["t"])
    deadline = LoadAdjustedDeadline(30)
    while len(found.assignment()) < 2:
        found.poll(0.05)
        assert not deadline.is_over
    found.commit(offsets=[type(place)(place.topic, place.partition, 0) for place in found.assignment()], asynchronous=False)
    try:
        yield found
    finally:
        found.close()


def ran(*arguments: str) -> str:
    done = minikafka(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_groups_of_both_protocols_are_listed_described_and_deleted() -> None:
    with EmbeddedCluster(brokers=1, topics={"t": 2}) as cluster:
        server = ("-b", cluster.bootstrap_servers)
        with member(cluster.bootstrap_servers, "modern", "consumer"), member(cluster.bootstrap_servers, "old", "classic"):
            listed = json.loads(ran("consumer-groups", *server, "--list", "-o", "json"))
            found_types = {(row["group"], row["state"], row["type"]) for row in listed}
            assert found_types == {("modern", "Stable", "Consumer"), ("old", "Stable", "Classic")}
            assert ran("consumer-groups", *server, "--list", "--type", "consumer").split() == ["GROUP", "TYPE", "modern", "Consumer"]
            assert [line.split() for line in ran("groups", *server, "--list", "--group-type", "consumer").splitlines()] == [
                ["GROUP", "TYPE", "PROTOCOL"], ["modern", "Consumer", "consumer"],
            ]  # fmt: skip
            for group in ("modern", "old"):
                offsets = json.loads(ran("consumer-groups", *server, "--describe", "--group", group, "-o", "json"))
                assert [(row["partition"], row["current_offset"], row["client_id"]) for row in offsets] == [(0, 0, "c"), (1, 0, "c")]
                (found,) = json.loads(ran("consumer-groups", *server, "--describe", "--group", group, "--members", "-o", "json"))
                assert found["partitions"] == 2
            described = ("consumer-groups", *server, "--describe", "--group", "modern")
            (verbose,) = json.loads(ran(*described, "--members", "--verbose", "-o", "json"))
            assert verbose["current_assignment"] == verbose["target_assignment"] == "t:0,1"
            assert verbose["current_epoch"] == verbose["target_epoch"] > 0
            (state,) = json.loads(ran("consumer-groups", *server, "--describe", "--group", "modern", "--state", "-o", "json"))
            assert (state["state"], state["assignment_strategy"], state["members"]) == ("Stable", "uniform", 1)
            listed = ran("consumer-groups", *server, "--list", "--state", "stable,empty", "--type", "classic").splitlines()
            assert [line.split() for line in listed] == [["GROUP", "TYPE", "STATE"], ["old", "Classic", "Stable"]]
            assert "--state" in minikafka("consumer-groups", *server, "--list", "--state", "calm").stderr
            refused = minikafka("consumer-groups", *server, "--delete", "--group", "modern")
            assert refused.returncode and "NonEmptyGroupException" in refused.stderr
        ran("consumer-groups", *server, "--delete", "--group", "modern", "--group", "old")
        assert json.loads(ran("consumer-groups", *server, "--list", "-o", "json")) == []


def test_groups_of_other_types_are_left_alone() -> None:
    """`--delete --all-groups` deleted share groups, too, and `--describe --all-groups` ended with the first one."""
    with EmbeddedCluster(brokers=1, topics={"t": 2}) as cluster:
        server = ("-b", cluster.bootstrap_servers)
        ran("share-groups", *server, "--reset-offsets", "--group", "shared", "--topic", "t", "--to-earliest", "--execute")
        ran("consumer-groups", *server, "--reset-offsets", "--group", "old", "--topic", "t", "--to-earliest", "--execute")
        assert ran("consumer-groups", *server, "--list").split() == ["old"]
        described = json.loads(ran("consumer-groups", *server, "--describe", "--all-groups", "-o", "json"))
        assert {row["group"] for row in described} == {"old"}
        ran("consumer-groups", *server, "--delete", "--all-groups")
        assert ran("share-groups", *server, "--list").split() == ["shared"]
        for tool in ("consumer-groups", "share-groups", "streams-groups"):
            refused = minikafka(tool, *server, "--delete", "--all-groups", "--group", "old")
            assert refused.returncode == 2 and "exclude each other" in refused.stderr
