"""A broker's configuration as one typed object, from server.properties, `KAFKA_*` variables and `--override`. All problems are reported at
once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minikafka.addresses import split_host_port
from minikafka.broker.config.attributes import BrokerProperties
from minikafka.broker.config.endpoints import SECURITY_PROTOCOLS, Endpoint, on_every_address, parse_endpoints
from minikafka.broker.config.listener_security import is_security_property, security_problems
from minikafka.broker.config.listeners import limit_of_listener, listener_problems
from minikafka.broker.config.properties import ConfigurationError, attribute_of
from minikafka.broker.config.table import BROKER_PROPERTIES, FREE_PREFIXES
from minikafka.broker.config.topic_config import inherited_problems

__all__ = ["BrokerConfig", "ConfigurationError", "Endpoint", "load_properties"]

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
HOUR_MS = 3_600_000
CLASSIC_PROTOCOL = "classic"


class BrokerConfig(BrokerProperties):
    """Typed properties, with `_` for `.` in their names (`config.replica_lag_time_max_ms`), and values derived from them.

    `given` holds the properties that were set, as text. `node_id` and the four times after it have a value, whichever of their names was
    set. The attributes after them are derived. `voters`: id -> (host, port).
    """

    node_id: int
    log_flush_interval_ms: int
    log_roll_ms: int
    log_roll_jitter_ms: int
    log_retention_ms: int
    is_broker: bool
    is_controller: bool
    broker_listeners: list[Endpoint]
    controller_listeners: list[Endpoint]
    advertised: dict[str, Endpoint]
    inter_broker_listener: str
    #: The listener at which this node connects to controllers; "" without one.
    controller_listener: str
    voters: dict[int, tuple[str, int]]
    bootstrap_controllers: list[tuple[str, int]]
    directories: list[str]
    metadata_directory: str
    is_rack_aware: bool

    def __init__(self, given: Mapping[str, str], values: dict[str, Any]) -> None:
        self.given = dict(given)
        self.__dict__.update(BROKER_PROPERTIES.defaults())
        for name, value in values.items():
            setattr(self, attribute_of(name), value)
        self.warnings: list[str] = []

    @classmethod
    def from_properties(cls, given: Mapping[str, str], *, is_to_run: bool = True) -> BrokerConfig:
        """Parse and validate properties. Raises ConfigurationError with all problems. Without `is_to_run`, logins of listeners need not be
        there yet: a file with them may come, or be named in the environment, only when the node starts."""
        problems: list[str] = []
        declared = {name: text for name, text in given.items() if name in BROKER_PROPERTIES}
        others = [name for name in given if name not in BROKER_PROPERTIES]
        problems += [BROKER_PROPERTIES.unknown(name) for name in others if not name.startswith(FREE_PREFIXES)]
        values = BROKER_PROPERTIES.parse(declared, problems)
        problems += listener_problems(dict(given))
        config = cls(given, values)
        config.warnings += [
            f"{name} is accepted without effect"
            for name in others
            if name.startswith(FREE_PREFIXES) and not is_security_property(name) and limit_of_listener(name) is None
        ]
        config.warnings += [
            f"{name} is accepted without effect"
            for name in declared
            if (entry := BROKER_PROPERTIES.get(name)) and entry.effect == "accepted"
        ]
        config._derive(problems)
        if is_to_run:
            problems += security_problems(config)
        if problems:
            raise ConfigurationError(problems)
        return config

    # -- derived values --------------------------------------------------------------------------------------------

    def _derive(self, problems: list[str]) -> None:
        self._derive_identity(problems)
        self._derive_times()
        self._derive_listeners(problems)
        self._derive_quorum(problems)
        self.directories = list(self.log_dirs or self.log_dir)
        if len(set(self.directories)) != len(self.directories):
            problems.append(f"log.dirs={','.join(self.directories)}: names a directory twice")
        unknown = [path for path in self.cordoned_log_dirs if path != "*" and path not in self.directories]
        problems += [f"cordoned.log.dirs={path}: is not one of log.dirs" for path in unknown]
        self.metadata_directory = self.metadata_log_dir or self.directories[0]
        if self.replica_selector_class not in (None, "", RACK_AWARE_SELECTOR, "org.apache.kafka.common.replica.LeaderSelector"):
            problems.append(f"replica.selector.class={self.replica_selector_class}: only {RACK_AWARE_SELECTOR} is supported")
        self.is_rack_aware = self.replica_selector_class == RACK_AWARE_SELECTOR
        if self.minikafka_audit_interval_ms > 0 and not self.minikafka_audit_report_dir:
            problems.append("minikafka.audit.report.dir is missing: minikafka.audit.interval.ms needs a directory for its reports")
        self._check_group_protocols(problems)
        problems += inherited_problems(self)
        if self.broker_heartbeat_interval_ms >= self.broker_session_timeout_ms:
            problems.append(
                f"broker.heartbeat.interval.ms={self.broker_heartbeat_interval_ms}: must be below broker.session.timeout.ms"
                f" ({self.broker_session_timeout_ms})"
            )
        if self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms:
            problems.append(
                f"replica.fetch.wait.max.ms={self.replica_fetch_wait_max_ms}: must not exceed replica.lag.time.max.ms"
                f" ({self.replica_lag_time_max_ms})"
            )

    def _check_group_protocols(self, problems: list[str]) -> None:
        """As in Apache Kafka 4.4 (KafkaConfig): classic groups cannot be disabled, and the feature `share.version` enables share groups."""
        name, protocols = "group.coordinator.rebalance.protocols", self.group_coordinator_rebalance_protocols
        if CLASSIC_PROTOCOL not in protocols:
            problems.append(f"{name}={','.join(protocols)}: Disabling the '{CLASSIC_PROTOCOL}' protocol is not supported.")
        if "share" in protocols:
            self.warnings.append(f"{name}: share has no effect; the feature share.version enables share groups")

    def _derive_identity(self, problems: list[str]) -> None:
        if self.node_id is None:
            self.node_id = self.broker_id if self.broker_id >= 0 else None
        if self.node_id is None:
            problems.append("node.id is missing: every node needs a unique id")
        elif self.broker_id >= 0 and self.broker_id != self.node_id:
            problems.append(f"broker.id={self.broker_id}: must equal node.id ({self.node_id}) when both are set")
        self.is_broker = "broker" in self.process_roles
        self.is_controller = "controller" in self.process_roles
        if not self.process_roles:
            problems.append("process.roles is missing: broker, controller, or broker,controller")

    def _derive_times(self) -> None:
        if self.log_flush_interval_ms is None:
            self.log_flush_interval_ms = self.log_flush_scheduler_interval_ms
        if self.log_roll_ms is None:
            self.log_roll_ms = self.log_roll_hours * HOUR_MS
        if self.log_roll_jitter_ms is None:
            self.log_roll_jitter_ms = self.log_roll_jitter_hours * HOUR_MS
        if self.log_retention_ms is None:
            minutes = self.log_retention_minutes if self.log_retention_minutes is not None else self.log_retention_hours * 60
            self.log_retention_ms = minutes * 60_000 if minutes >= 0 else -1

    def _derive_listeners(self, problems: list[str]) -> None:
        protocols = self._protocols(problems)
        controller_names = list(self.controller_listener_names or [])
        explicit = "listeners" in self.given
        texts = self.listeners
        if not explicit and self.advertised_listeners:
            texts = [on_every_address(text) for text in self.advertised_listeners]
        if not explicit:
            texts = [*texts, *self._own_voter_listener(controller_names, texts)]
        endpoints = parse_endpoints("listeners", texts, protocols, problems)
        self.controller_listeners = [e for e in endpoints if e.name in controller_names]
        self.broker_listeners = [e for e in endpoints if e.name not in controller_names]
        advertised = parse_endpoints("advertised.listeners", self.advertised_listeners or [], protocols, problems)
        listening = {e.name: e for e in endpoints}
        for endpoint in advertised:
            if endpoint.name not in listening and endpoint.name not in controller_names:
                problems.append(f"advertised.listeners={endpoint}: no listener is called {endpoint.name}")
            if endpoint.host in ("0.0.0.0", "::"):
                problems.append(
                    f"advertised.listeners={endpoint}: clients cannot connect to {endpoint.host}; name an address that they can reach"
                )
        self.advertised = {e.name: e for e in endpoints} | {e.name: e for e in advertised}
        if not controller_names and (self.is_controller or self.controller_quorum_voters or self.controller_quorum_bootstrap_servers):
            problems.append("controller.listener.names is missing: it names the listener of the controllers")
        if self.is_controller and not self.controller_listeners:
            problems.append(
                f"listeners={','.join(texts)}: a controller needs a listener called"
                f" {' or '.join(controller_names) or 'as in controller.listener.names'}"
            )
        if self.is_broker and not self.broker_listeners:
            problems.append(f"listeners={','.join(texts)}: a broker needs a listener that is not the controllers'")
        self._protocol_of = protocols
        self.controller_listener = controller_names[0] if controller_names else ""
        if self.controller_listener and self.controller_listener not in protocols:
            problems.append(
                f"controller.listener.names={self.controller_listener}: listener.security.protocol.map does not define its protocol"
            )
        self._derive_inter_broker(problems)

    def protocol_of(self, listener: str) -> int:
        """The security protocol of a listener of this cluster, on this node or another."""
        return self._protocol_of.get(listener, 0)

    def _own_voter_listener(self, controller_names: list[str], texts: list[str]) -> list[str]:
        """A controller without `listeners` listens on its address in `controller.quorum.voters`."""
        if not self.is_controller or any(text.partition("://")[0].upper() in controller_names for text in texts):
            return []
        own = [entry.partition("@")[2] for entry in self.controller_quorum_voters if entry.partition("@")[0] == str(self.node_id)]
        return [on_every_address(f"{controller_names[0]}://{address}") for address in own[:1] if controller_names]

    def _derive_inter_broker(self, problems: list[str]) -> None:
        names = [e.name for e in self.broker_listeners]
        name = None if self.inter_broker_listener_name is None else self.inter_broker_listener_name.upper()
        if name is None:
            wanted = SECURITY_PROTOCOLS[self.security_inter_broker_protocol]
            name = next((e.name for e in self.broker_listeners if e.security_protocol == wanted), names[0] if names else "")
        elif self.is_broker and name not in names:
            problems.append(f"inter.broker.listener.name={name}: no listener of the broker has this name ({', '.join(names)})")
        self.inter_broker_listener = name

    def _protocols(self, problems: list[str]) -> dict[str, int]:
        protocols: dict[str, int] = {}
        for entry in self.listener_security_protocol_map:
            name, _, protocol = entry.partition(":")
            if protocol not in SECURITY_PROTOCOLS:
                problems.append(
                    f"listener.security.protocol.map={entry}: must be NAME:PROTOCOL with one of {', '.join(SECURITY_PROTOCOLS)}"
                )
            else:
                protocols[name.upper()] = SECURITY_PROTOCOLS[protocol]
        if "listener.security.protocol.map" not in self.given:
            for name in self.controller_listener_names or []:
                protocols.setdefault(name, SECURITY_PROTOCOLS["PLAINTEXT"])
        return protocols

    def _derive_quorum(self, problems: list[str]) -> None:
        self.voters = {}
        for entry in self.controller_quorum_voters:
            number, _, address = entry.partition("@")
            try:
                self.voters[int(number)] = split_host_port(address)
            except ValueError:
                problems.append(f"controller.quorum.voters={entry}: must be id@host:port")
        self.bootstrap_controllers = []
        for entry in self.controller_quorum_bootstrap_servers:
            try:
                self.bootstrap_controllers.append(split_host_port(entry))
            except ValueError:
                problems.append(f"controller.quorum.bootstrap.servers={entry}: must be host:port")
        if not self.voters and not self.bootstrap_controllers and not problems:
            problems.append("controller.quorum.voters or controller.quorum.bootstrap.servers is missing: the controllers' addresses")
        if self.voters and self.is_controller and self.node_id is not None and self.node_id not in self.voters:
            problems.append(
                f"controller.quorum.voters={','.join(self.controller_quorum_voters)}: a controller must be among its voters"
                f" (node.id {self.node_id})"
            )
        if self.voters and not self.is_controller and self.node_id in self.voters:
            problems.append(
                f"controller.quorum.voters={','.join(self.controller_quorum_voters)}: node {self.node_id} is a voter"
                " but not a controller (process.roles)"
            )


def load_properties(path: str | Path) -> dict[str, str]:
    """Read a .properties file: `key=value` or `key: value`, `#` and `!` comments, `\\` continues a line. Raises ConfigurationError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"cannot read {path}: {getattr(error, 'strerror', None) or error}"]) from error
    properties: dict[str, str] = {}
    pending = ""
    for raw in text.splitlines():
        line = pending + raw.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\") and not line.endswith("\\\\"):
            pending = line[:-1]
            continue
        cut = min((line.index(separator) for separator in "=:" if separator in line), default=len(line))
        properties[line[:cut].strip()] = line[cut + 1 :].strip()
    return properties
