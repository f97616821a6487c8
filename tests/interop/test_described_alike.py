"""What a node says about itself, beside Apache Kafka of the next release: APIs, features, and the configurations of every resource."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.asked import Asked
from helpers.ledger import create_topic
from helpers.mixed_cluster import BOTH, KAFKA_NEXT, MINI, MixedCluster

from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.api_versions import ApiVersionsRequest
from minikafka.wire.messages.describe_configs import DescribeConfigsRequest

pytestmark = [pytest.mark.java, pytest.mark.interop, pytest.mark.timeout(180)]
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
RESOURCES = {"topic t": (TOPIC, "t"), "broker 1": (BROKER, "1"), "client metrics m": (CLIENT_METRICS, "m"), "group g": (GROUP, "g")}
#: Of a node, not of a release.
PLACES = {"listeners", "advertised.listeners", "log.dirs", "log.dir", "metadata.log.dir", "controller.quorum.voters"}
#: Not dynamic here, and with a default that Apache Kafka does not name.
OTHERWISE = {"listener.security.protocol.map", "process.roles"}
#: Apache Kafka serves delegation tokens and SCRAM credentials at controllers, too.
AT_CONTROLLERS = {38, 39, 40, 41, 50}
Configs = dict[str, dict[str, Any]]


def configs(asked: Asked) -> Configs:
    """By resource and name: value, source, type, and the synonyms with theirs."""
    kind = DescribeConfigsRequest
    found: Configs = {}
    for name, (resource_type, resource) in RESOURCES.items():
        wanted = kind.DescribeConfigsResource(resource_type=resource_type, resource_name=resource, configuration_keys=None)
        answer = asked.ask(kind(resources=[wanted], include_synonyms=True, include_documentation=False), 4)
        assert answer.results[0].error_code == ErrorCode.NONE, answer
        found[name] = {
            entry.name: (
                entry.value, entry.config_source, entry.config_type, entry.read_only, entry.is_sensitive,
                [(one.name, one.value, one.source) for one in entry.synonyms],
            )
            for entry in answer.results[0].configs if entry.name not in (PLACES | OTHERWISE) and not entry.name.startswith("minikafka.")
        }  # fmt: skip
    return found


def versions(asked: Asked) -> dict[str, Any]:
    """APIs and features, as a client is told them."""
    answer = asked.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    assert answer.error_code == ErrorCode.NONE
    return {
        "apis": {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys},
        "supported": {one.name: (one.min_version, one.max_version) for one in answer.supported_features},
        "finalized": {one.name: (one.min_version_level, one.max_version_level) for one in answer.finalized_features},
    }


def described(kind: str, directory: Path) -> tuple[Configs, dict[str, Any], dict[str, Any]]:
    """Of one node that is both broker and controller."""
    with MixedCluster(directory, [(1, kind, BOTH)]) as cluster:
        cluster.format(options=["--release-version", "4.4"])
        cluster.start()
        create_topic(cluster.bootstrap, "t", 1, 1)
        node = cluster.nodes[1]
        return configs(Asked(node.address)), versions(Asked(node.address)), versions(Asked(node.controller_address))


def test_configurations_apis_and_features_are_those_of_apache_kafka(tmp_path: Path) -> None:
    ours, theirs = (described(kind, tmp_path / kind) for kind in (MINI, KAFKA_NEXT))
    for resource, expected in theirs[0].items():
        found = ours[0][resource]
        names = found.keys() | expected
        different = {name: (found.get(name), expected.get(name)) for name in names if found.get(name) != expected.get(name)}
        assert different == {}, resource
    for found, served, apart in ((ours[1], theirs[1], set()), (ours[2], theirs[2], AT_CONTROLLERS)):
        apis = [{key: versions for key, versions in one.pop("apis").items() if key not in apart} for one in (found, served)]
        assert apis[0] == apis[1]
        assert found == served
