"""Findings of `minikafka doctor` about a cluster: pure functions of collected facts, so that tests need no cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from minikafka.addresses import host_port
from minikafka.cli.doctor_findings import Finding
from minikafka.counted import counted

CLOCK_SKEW_MS_MAX = 5000
ROUND_TRIP_MS_MAX = 1000
#: A volume with a smaller free share is nearly full.
FREE_SHARE_MIN = 0.1
DESCRIPTORS_MIN = 4096
SHOWN_MAX = 10
TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
#: Temporary directories of `cluster up` and of tests, which delete them themselves.
OWN_TEMPORARY = "/tmp/minikafka-"


@dataclass(frozen=True, slots=True)
class Topic:
    """The facts about a topic: replicas and in-sync replicas by partition, and its configuration."""

    name: str
    replicas: tuple[tuple[int, ...], ...]
    isr: tuple[tuple[int, ...], ...]
    configs: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def min_isr(self) -> int:
        """min.insync.replicas."""
        return int(self.configs.get("min.insync.replicas") or 1)


def addresses(advertised: Mapping[int, tuple[str, int]]) -> list[Finding]:
    """Brokers that advertise the same address."""
    by_address: dict[tuple[str, int], list[int]] = {}
    for broker, address in sorted(advertised.items()):
        by_address.setdefault(address, []).append(broker)
    return [
        Finding(
            "advertised addresses", "error", f"brokers {_list(brokers)} all advertise {host_port(host, port)}",
            "Give each broker a port of its own in advertised.listeners.",
        )
        for (host, port), brokers in by_address.items()
        if len(brokers) > 1
    ]  # fmt: skip


def cluster_ids(found: Mapping[str, str]) -> list[Finding]:
    """Addresses that belong to different clusters. `found`: cluster id by address."""
    if len(set(found.values())) < 2:
        return []
    text = ", ".join(f"{address} belongs to {cluster}" for address, cluster in sorted(found.items()))
    return [Finding("clusters", "error", text, "A bootstrap list and the advertised addresses must all belong to one cluster.")]


def out_of_service(down: Iterable[int], fenced: Iterable[int]) -> list[Finding]:
    """Registered brokers that serve nothing. `fenced`: those that accept connections all the same."""
    return [
        *(
            Finding(f"broker {node_id}", "error", "is down",
                    f"Start it. If it is gone for good: minikafka cluster unregister --id {node_id}.")
            for node_id in down
        ),
        *(
            Finding(f"broker {node_id}", "error", "answers, but is fenced: the controller receives no heartbeats from it",
                    "See the broker's log: can it reach the controllers, and has it caught up with the metadata?")
            for node_id in fenced
        ),
    ]  # fmt: skip


def topics(found: Iterable[Topic], brokers: int) -> list[Finding]:
    """Topics that fail acks=all writes, now or once a broker is down, and topics that can lose records."""
    findings: list[Finding] = []
    never, now, fragile, single, unclean = [], [], [], [], []
    for topic in found:
        size = min(map(len, topic.replicas), default=0)
        if topic.min_isr > size:
            never.append(topic.name)
        elif any(len(isr) < topic.min_isr for isr in topic.isr):
            now.append(topic.name)
        elif topic.min_isr == size > 1:
            fragile.append(topic.name)
        if size == 1 and brokers > 1 and not topic.name.startswith("__"):
            single.append(topic.name)
        if topic.configs.get("unclean.leader.election.enable") == "true":
            unclean.append(topic.name)
    table = (
        (never, "error", "min.insync.replicas is larger than the number of replicas: writes with acks=all always fail",
         "Lower it (minikafka configs --alter --topic NAME --add-config min.insync.replicas=1), or add replicas (reassign-partitions)."),
        (now, "error", "fewer in sync than min.insync.replicas: writes with acks=all fail now", "Start the brokers that are missing."),
        (fragile, "warning", "min.insync.replicas equals the number of replicas: one broker down stops writes with acks=all",
         "Three replicas and min.insync.replicas=2 are usual."),
        (single, "warning", "only one replica: a dead broker takes its partitions down", "Create topics with --replication-factor 3."),
        (unclean, "warning", "unclean.leader.election.enable=true: the cluster may elect a leader that lacks acknowledged records",
         "Set it to false unless losing records is better than waiting."),
    )  # fmt: skip
    for names, state, text, advice in table:
        if names:
            findings.append(Finding("topics", state, f"{_list(names)}: {text}", advice))
    return findings or [Finding("topics", "ok", "the replication factors and min.insync.replicas fit together")]


def broker_configs(node_id: int, configs: Mapping[str, str | None], brokers: int, topic_names: Iterable[str]) -> list[Finding]:
    """Properties of one broker that cause trouble later."""
    existing, findings, check = set(topic_names), [], f"broker {node_id}"
    for name, internal, what in (
        ("offsets.topic.replication.factor", "__consumer_offsets", "consumer groups"),
        ("transaction.state.log.replication.factor", "__transaction_state", "transactions"),
    ):
        replication_factor = int(configs.get(name) or 1)
        if replication_factor > brokers and internal not in existing:
            findings.append(
                Finding(
                    check,
                    "error",
                    f"{name}={replication_factor} exceeds the number of brokers ({brokers}): {what} cannot work",
                    f"Set {name}={brokers}, or add brokers.",
                )
            )
    for path in (configs.get("log.dirs") or configs.get("log.dir") or "").split(","):
        if path.strip().startswith(TEMPORARY) and not path.strip().startswith(OWN_TEMPORARY):
            findings.append(
                Finding(check, "warning", f"log.dirs {path.strip()} is a directory for temporary files",
                        "A restart may empty it: choose another directory, or a volume in a container.")
            )  # fmt: skip
    fetched, taken = int(configs.get("replica.fetch.response.max.bytes") or 0), int(configs.get("message.max.bytes") or 0)
    if 0 < fetched < taken:
        findings.append(
            Finding(check, "warning", f"replica.fetch.response.max.bytes={fetched} is less than message.max.bytes={taken}",
                    "Followers then fetch one batch at a time: raise it.")
        )  # fmt: skip
    return findings


def group(name: str, state: str, members: int, partitions: int) -> list[Finding]:
    """A group that keeps rebalancing, or has more members than partitions."""
    if state in ("PreparingRebalance", "CompletingRebalance"):
        return [
            Finding(f"group {name}", "warning", f"is rebalancing ({state})",
                    "If this persists, a member takes longer than max.poll.interval.ms between polls, or keeps restarting.")
        ]  # fmt: skip
    if partitions and members > partitions:
        idle = f"{members - partitions} {'is' if members - partitions == 1 else 'are'} idle"
        return [
            Finding(f"group {name}", "warning", f"{counted(members, 'member')} for {counted(partitions, 'partition')}: {idle}",
                    "Add partitions (minikafka topics --alter --partitions N), or run fewer members.")
        ]  # fmt: skip
    return []


def disk(node_id: int, path: str, total: int, usable: int, error: str) -> list[Finding]:
    """A log directory that is offline or nearly full."""
    check = f"broker {node_id}, {path}"
    if error:
        return [
            Finding(check, "error", f"the log directory is offline ({error})", "See the broker's log. A restart brings the directory back.")
        ]
    if total > 0 and 0 <= usable < total * FREE_SHARE_MIN:
        share = f"{usable / total:.0%}" if usable else "nothing"
        return [
            Finding(
                check, "warning", f"{share} of the volume is free", "Shorten retention.ms or retention.bytes, or add a volume to log.dirs."
            )
        ]
    return []


def round_trip(node_id: int, took_ms: int) -> list[Finding]:
    """A broker that answers slowly. `took_ms`: the time of one small request."""
    if took_ms <= ROUND_TRIP_MS_MAX:
        return []
    return [
        Finding(f"broker {node_id}", "warning", f"took {took_ms} ms to answer a small request",
                "The network or the machine is slow: raise request.timeout.ms and session.timeout.ms, or give it more CPU.")
    ]  # fmt: skip


def clock(skew_ms: int) -> Finding:
    """`skew_ms`: this machine's time minus the controller's."""
    if abs(skew_ms) > CLOCK_SKEW_MS_MAX:
        return Finding("clocks", "warning", f"the controller's clock is {skew_ms} ms from this machine's",
                       "Timestamps and time-based retention will be wrong: run NTP.")  # fmt: skip
    return Finding("clocks", "ok", f"the controller's clock is within {max(abs(skew_ms), 1)} ms of this machine's")


def descriptors(limit: int) -> list[Finding]:
    """The file descriptor limit of this machine, if brokers run on it."""
    if limit >= DESCRIPTORS_MIN or limit < 0:
        return []
    return [
        Finding("file descriptors", "warning", f"programs on this machine may open {counted(limit, 'file')}",
                "A broker needs one for each connection and active segment: raise the limit (ulimit -n 65536).")
    ]  # fmt: skip


def _list(names: Iterable[object]) -> str:
    every = [str(name) for name in names]
    return ", ".join(every[:SHOWN_MAX]) + (f" and {len(every) - SHOWN_MAX} more" if len(every) > SHOWN_MAX else "")
