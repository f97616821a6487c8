"""`minikafka broker-api-versions`: kafka-broker-api-versions.sh; also `minikafka cluster api-versions`, which may ask controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from minikafka.addresses import host_port
from minikafka.cli.common import emit
from minikafka.cli.session import operator_command, with_admin
from minikafka.wire.registry import api

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance


def _versions(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"


@operator_command("broker-api-versions")
def broker_api_versions(bootstrap: str, output: str, traceback: bool) -> None:
    """Show the APIs and versions that each broker serves, and the version that this client would use."""
    show_versions(bootstrap, output, traceback=traceback)


def show_versions(bootstrap: str, output: str, *, traceback: bool) -> None:
    """Print what every node serves."""

    async def work(admin: Maintenance) -> None:
        await admin.cluster.refresh([])
        rows: list[dict[str, Any]] = []
        for node_id in sorted(admin.cluster.brokers):
            broker = admin.cluster.brokers[node_id]
            served = {entry.api_key: entry for entry in (await admin.api_versions(node_id)).api_keys}
            lines = []
            for key in sorted(served):
                entry, api_spec = served[key], api(key)
                name = api_spec.name if api_spec is not None else "UNKNOWN"
                usable = min(entry.max_version, api_spec.max_version) if api_spec is not None else -1
                if api_spec is not None and usable < max(entry.min_version, api_spec.min_version):
                    usable = -1
                rows.append(
                    {
                        "broker": node_id, "api": name, "key": key, "min": entry.min_version, "max": entry.max_version,
                        "usable": usable if usable >= 0 else None,
                    }
                )  # fmt: skip
                shown = f"usable: {usable}" if usable >= 0 else "unusable: node too new or too old"
                lines.append(f"\t{name}({key}): {_versions(entry.min_version, entry.max_version)} [{shown}]")
            if output == "table":
                click.echo(f"{host_port(broker.host, broker.port)} (id: {node_id} rack: {broker.rack or 'null'} isFenced: false) -> (")
                click.echo(",\n".join(lines) + "\n)")
        if output != "table":
            emit(rows, output, ["broker", "api", "key", "min", "max", "usable"])

    with_admin(bootstrap, work, traceback=traceback)
