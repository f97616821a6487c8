"""Every controller registers with the active one (KIP-919), after each start and with each new active controller."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.testing import EmbeddedCluster

pytestmark = pytest.mark.timeout(60)


def registrations(cluster: EmbeddedCluster, seen_by: int) -> dict[int, Any]:
    return dict(cluster.broker(seen_by).process._runner.node.metadata.image.controllers)


def test_all_controllers_are_known_and_a_restarted_one_anew() -> None:
    with EmbeddedCluster(4, controllers=3) as cluster:
        ports = {node.node_id: node.controller_port for node in cluster.layout.nodes.values() if node.controller_port is not None}

        def registered() -> dict[int, Any]:
            return {number: entry.listeners["CONTROLLER"][1] for number, entry in registrations(cluster, 4).items()}

        cluster.wait_until(lambda: registered() == ports, "the registrations of all controllers", 10)
        assert all(entry.features["metadata.version"] == (7, 33) for entry in registrations(cluster, 4).values())
        before = registrations(cluster, 4)
        passive = next(number for number in ports if number != cluster.controller)
        cluster.broker(passive).kill()
        cluster.broker(passive).start()
        incarnation = before[passive].incarnation_id
        cluster.wait_until(lambda: registrations(cluster, 4)[passive].incarnation_id != incarnation, "the new incarnation", 10)
        after = registrations(cluster, 4)
        assert {n: e for n, e in after.items() if n != passive} == {n: e for n, e in before.items() if n != passive}
        # Another active one: nobody registers again, for nobody was restarted.
        active = cluster.controller
        cluster.broker(active).pause()
        cluster.wait_until(lambda: cluster.controller not in (active, -1), "another active controller", 10)
        cluster.broker(active).resume()
        cluster.wait_healthy()
        assert registrations(cluster, 4) == after
