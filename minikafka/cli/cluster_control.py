"""How `minikafka cluster kill 2`, `cut 3`, `status` and related commands (cluster_commands.py) reach a `cluster up` cluster.

`cluster up` listens on a Unix socket named after its first port, in a directory that only its user can enter. A request is a JSON object
on one line. The answer is another: {"text": ..} or {"error": ..}.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from minikafka.addresses import split_addresses
from minikafka.cli.common import EXIT_REFUSED, EXIT_UNREACHABLE
from minikafka.cli.control_socket import socket_path, tidied

if TYPE_CHECKING:
    from minikafka.testing.embedded import EmbeddedCluster

LINE_BYTES_MAX = 1 << 20
REQUEST_TIMEOUT_S = 60.0
#: A command that waits longer says so.
QUIET_S = 10.0
NOTICED_TIMEOUT_S = 30.0
START_POLL_S = 0.1


# -- server: runs in `cluster up` ------------------------------------------------------------------------------------------


class ControlServer:
    """Executes commands one at a time in its own thread. A context manager."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster = cluster
        self._path = socket_path(cluster.brokers[0].port)
        self._socket: socket.socket | None = None
        #: Ids of nodes that were stopped or killed by a command.
        self.ended: set[int] = set()
        #: Brokers that did not answer during this command; they are not asked again.
        self._silent: set[int] = set()

    def __enter__(self) -> ControlServer:
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        if self._path.parent.stat().st_uid != os.getuid():
            raise OSError(f"{self._path.parent} belongs to another user")
        with tidied(self._path.parent):
            # This process now owns the port.
            self._path.unlink(missing_ok=True)
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.bind(str(self._path))
            self._socket.listen()
        threading.Thread(target=self._serve, args=(self._socket,), name="cluster-control", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._socket is not None:
            self._socket.close()
        self._path.unlink(missing_ok=True)

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(REQUEST_TIMEOUT_S)
                with connection.makefile("rwb") as stream:
                    stream.write(json.dumps(self._answer(stream.readline(LINE_BYTES_MAX))).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, str]:
        from minikafka.testing.errors import ClusterError

        self._silent.clear()
        try:
            request = json.loads(line)
            return {"text": ACTIONS[request["action"]](self, [int(node) for node in request["nodes"]], bool(request.get("wipe")))}
        except (ClusterError, OSError) as error:
            return {"error": str(error).partition("\n")[0]}
        except (ValueError, KeyError, TypeError) as error:
            return {"error": f"not a request: {error!r}"}

    def _each(self, nodes: list[int], act: Callable[[Any], None], done: str, *, running: bool) -> str:
        from minikafka.testing.errors import ClusterError

        brokers = [self._cluster.broker(node) for node in nodes]
        for broker in brokers:
            if broker.running != running:
                raise ClusterError(f"broker {broker.node_id} is {'not ' if running else ''}running")
        for broker in brokers:
            act(broker)
        return "\n".join(f"broker {node} {done}" for node in nodes)

    def kill(self, nodes: list[int], _: bool) -> str:
        """SIGKILL."""
        self.ended.update(nodes)
        return self._each(nodes, lambda broker: broker.kill(), "was killed (SIGKILL)", running=True) + self._noticed(nodes)

    def stop(self, nodes: list[int], _: bool) -> str:
        """Send SIGTERM and wait for the nodes to exit."""
        self.ended.update(nodes)
        return self._each(nodes, lambda broker: broker.terminate(), "has stopped", running=True) + self._noticed(nodes)

    def _noticed(self, nodes: list[int]) -> str:
        """Wait briefly until these nodes lead no partition and are in no in-sync set, so that the next command sees the outcome."""
        from minikafka.testing.errors import ClusterError
        from minikafka.testing.wait import wait_until

        gone = set(nodes)
        if not any(broker.running and not broker.paused for broker in self._cluster.brokers):
            return "\nno broker is running"
        voters = [broker for broker in self._cluster.brokers if broker.is_controller]
        left = [broker for broker in voters if broker.running and not broker.paused and broker.node_id not in gone]
        if len(left) <= len(voters) // 2:
            return f"\nonly {len(left)} of {len(voters)} controllers {'is' if len(left) == 1 else 'are'} left: no new leader can be elected"

        def noticed() -> bool:
            return not any(row["leader"] in gone or (len(row["isr"]) > 1 and gone & set(row["isr"])) for row in self._partitions())

        try:
            wait_until(noticed, "new leaders", NOTICED_TIMEOUT_S)
        except ClusterError:
            return "\nthe other brokers have not noticed yet: does `minikafka cluster status` show an active controller?"
        return ""

    def start(self, nodes: list[int], wipe: bool) -> str:
        """Start nodes that have ended."""
        text = self._each(
            nodes, lambda broker: broker.start(wipe=wipe), f"is in service{' with an empty disk' if wipe else ''}", running=False
        )
        self.ended.difference_update(nodes)
        return text

    def pause(self, nodes: list[int], _: bool) -> str:
        """SIGSTOP."""
        return self._each(nodes, lambda broker: broker.pause(), "is paused (SIGSTOP)", running=True)

    def resume(self, nodes: list[int], _: bool) -> str:
        """SIGCONT."""
        return self._each(nodes, lambda broker: broker.resume(), "has resumed", running=True)

    def cut(self, nodes: list[int], _: bool) -> str:
        """Cut the links between these nodes and all others."""
        for node in nodes:
            self._cluster.broker(node)
        self._cluster.partition_network(nodes)
        noun = "broker" if len(nodes) == 1 else "brokers"
        return f"{noun} {', '.join(map(str, nodes))} cut off from the others; clients still reach all" + self._noticed(nodes)

    def heal(self, _: list[int], __: bool) -> str:
        """Restore all links."""
        self._cluster.heal()
        return "all links work"

    def status(self, _: list[int], __: bool) -> str:
        """Brokers and partitions as JSON: the newest metadata, and what each replica reports about itself."""
        quorums = self._answers("quorum")
        if not quorums:
            from minikafka.testing.errors import ClusterError

            raise ClusterError("no broker answers" if self._silent else "no broker is running")
        controller = max(quorums.values(), key=lambda quorum: quorum["epoch"])["leader"]
        partitions = self._partitions()
        brokers = [
            {
                "broker": b.node_id, "address": b.address, "state": self._state(b),
                "controller": "active" if b.node_id == controller else "voter" if b.is_controller else "",
            }
            for b in self._cluster.brokers
        ]  # fmt: skip
        return json.dumps({"brokers": brokers, "partitions": partitions})

    def _state(self, broker: Any) -> str:
        if broker.node_id in self._silent:
            return "silent"
        return "paused" if broker.paused else "running" if broker.running else "ended"

    def _answers(self, command: str, **arguments: Any) -> dict[int, Any]:
        """What the brokers answer, by node id. One that hangs does not keep the others from being asked."""
        from minikafka.testing.errors import ClusterError

        found = {}
        for broker in self._cluster.brokers:
            if broker.node_id not in self._silent and broker.running and not broker.paused:
                try:
                    found[broker.node_id] = broker.ask(command, **arguments)
                except ClusterError:
                    self._silent.add(broker.node_id)
        return found

    def _partitions(self) -> list[dict[str, Any]]:
        replicas: dict[tuple[str, int], dict[int, dict[str, Any]]] = {}
        for node, rows in self._answers("replicas").items():
            for row in rows:
                replicas.setdefault((row["topic"], row["partition"]), {})[node] = row
        partitions = []
        for (topic, index), found in sorted(replicas.items()):
            images = self._answers("partition", topic=topic, partition=index).values()
            partition = max(images, key=lambda image: image["offset"], default={"partition": None})["partition"]
            if partition is None:
                continue
            said = {node: {key: row[key] for key in REPLICA_FIELDS} for node, row in found.items()}
            row = {"topic": topic, "partition": index, "leader": partition["leader"], "leader_epoch": partition["leader_epoch"]}
            partitions.append(row | {"replicas": list(partition["replicas"]), "isr": sorted(partition["isr"]), "said": said})
        return partitions


REPLICA_FIELDS = ("role", "leader_epoch", "log_start_offset", "high_watermark", "log_end_offset")
ACTIONS: dict[str, Callable[[ControlServer, list[int], bool], str]] = {
    name: getattr(ControlServer, name) for name in ("kill", "stop", "start", "pause", "resume", "cut", "heal", "status")
}


# -- client: runs in the commands -------------------------------------------------------------------------------------------


def ask(bootstrap: str, action: str, nodes: tuple[int, ...] = (), *, wipe: bool = False) -> str:
    """Send a request to the cluster that listens on one of these addresses, and return its answer. Exits with an error on failure."""
    try:
        ports = [port for _, port in split_addresses(bootstrap)]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    _wait_for_the_start(ports)
    for port in ports:
        connection = socket.socket(socket.AF_UNIX)
        with connection, contextlib.suppress(OSError):
            connection.connect(str(socket_path(port)))
            connection.sendall(json.dumps({"action": action, "nodes": nodes, "wipe": wipe}).encode() + b"\n")
            if not select.select([connection], [], [], QUIET_S)[0]:
                click.echo("waiting for minikafka cluster up (Ctrl-C stops waiting, not the cluster) ...", err=True)
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.readline(LINE_BYTES_MAX) or b'{"error": "the cluster is stopping"}')
            if "error" in answer:
                click.echo(f"error: {answer['error']}", err=True)
                sys.exit(EXIT_REFUSED)
            return str(answer["text"])
    click.echo(f"error: no `minikafka cluster up` is running at {bootstrap} on this machine.{_others()}", err=True)
    sys.exit(EXIT_UNREACHABLE)


def _wait_for_the_start(ports: list[int]) -> None:
    import time

    from minikafka.cli.starting_cluster import is_starting

    addresses = [("localhost", port) for port in ports]
    if is_starting(addresses):
        click.echo("the cluster is still starting, waiting (Ctrl-C stops waiting, not the cluster) ...", err=True)
        while is_starting(addresses):
            time.sleep(START_POLL_S)


def _others() -> str:
    """What to do instead: the clusters that this user runs, or how to start one."""
    running = []
    for path in sorted(socket_path(0).parent.glob("*.sock")):
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(path))
            running.append(f"-b localhost:{path.stem}")
    if running:
        return f" One runs elsewhere: add {' or '.join(running)}."
    return " Start one in another terminal, then repeat the command."
