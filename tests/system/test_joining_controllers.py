"""AddRaftVoter with processes of ours: the leader asks whoever is to become a voter which kraft.version it supports (KIP-853)."""

from __future__ import annotations

import asyncio
import socketserver
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.apache_kafka import free_ports
from helpers.mixed_cluster import BOTH, CONTROLLER, MINI, MixedCluster
from helpers.shell import minikafka

from minikafka.client.errors import BrokerError
from minikafka.client.maintenance import Maintenance
from minikafka.wire.frame import encode_response
from minikafka.wire.messages.api_versions import ApiVersionsResponse
from minikafka.wire.uuid import uuid_from_text, uuid_to_text

pytestmark = pytest.mark.timeout(90)


class OldController(socketserver.StreamRequestHandler):
    """Answers ApiVersions, and names no feature."""

    def handle(self) -> None:
        while len(size := self.rfile.read(4)) == 4:
            frame = self.rfile.read(int.from_bytes(size, "big"))
            api_key, version, correlation_id = struct.unpack_from(">hhi", frame)
            assert api_key == ApiVersionsResponse.API_KEY
            supported = ApiVersionsResponse.ApiVersion(api_key=api_key, min_version=0, max_version=4)
            self.wfile.write(b"".join(encode_response(ApiVersionsResponse(api_keys=[supported]), version, correlation_id)))  # type: ignore[arg-type]


@pytest.fixture
def old_controller() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), OldController) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def members(cluster: MixedCluster, which: str) -> dict[int, str]:
    partition = cluster.describe_quorum()
    return {entry.replica_id: uuid_to_text(bytes(entry.replica_directory_id)) for entry in getattr(partition, which, ())}


def test_a_controller_becomes_a_voter_only_when_it_can_be_one(tmp_path: Path, old_controller: int) -> None:
    with MixedCluster(tmp_path, [(1, MINI, BOTH), (2, MINI, CONTROLLER), (3, MINI, CONTROLLER)], dynamic=True) as cluster:
        cluster.format(1, options=["--standalone"])
        cluster.format(2, 3, options=["--no-initial-controllers"])
        cluster.nodes[3].overrides["controller.quorum.auto.join.enable"] = "true"
        cluster.start()
        second, third = cluster.nodes[2], cluster.nodes[3]
        cluster.wait_for(lambda: 2 in members(cluster, "observers"), "controller 2 to be an observer")
        cluster.wait_for(lambda: members(cluster, "current_voters").get(3) == third.directory_id, "controller 3 to have joined by itself")

        def add(port: int, name: str = "CONTROLLER") -> str:
            async def work() -> None:
                async with Maintenance(cluster.bootstrap) as admin:
                    directory = uuid_from_text(second.directory_id)
                    await admin.add_controller(cluster.cluster_id, 2, directory, [(name, "127.0.0.1", port)])

            with pytest.raises(BrokerError) as caught:
                asyncio.run(work())
            return f"{caught.value.code.name} {caught.value}"

        def refused(code: str, why: str, port: int, name: str = "CONTROLLER") -> None:
            # While another change of the voter set is not committed, or the node was asked just now, the leader says to come again.
            cluster.wait_for(lambda: code in (text := add(port, name)) and why in text, f"{code} because {why}")

        (nobody,) = free_ports(1)
        refused("REQUEST_TIMED_OUT", "it does not answer", nobody)
        refused("INVALID_REQUEST", "supports kraft.version 0 to 0", old_controller)
        refused("INVALID_REQUEST", "default listener", second.controller_port, "ELSEWHERE")
        assert 2 not in members(cluster, "current_voters")
        arguments = ("--controller-id", "2", "--directory-id", second.directory_id, "--listener", f"CONTROLLER://{second.controller_address}")
        done = minikafka("metadata-quorum", "-b", cluster.bootstrap, "add-controller", *arguments)
        assert done.returncode == 0, done.stderr
        voters = {node_id: cluster.nodes[node_id].directory_id for node_id in (1, 2, 3)}
        assert members(cluster, "current_voters") == voters
        assert "DUPLICATE_VOTER" in add(second.controller_port)
        for node in cluster.nodes.values():
            assert "Traceback" not in node.output, node.output
