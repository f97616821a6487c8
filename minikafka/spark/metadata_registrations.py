"""Registrations of brokers and controllers in the metadata log, whole: what a snapshot holds of them must be what the log's records made.

The order of endpoints and features does not count, since Apache Kafka keeps them in hash tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_fields import Fields, UnknownRecordError
from minikafka.spark.metadata_partitions import is_reserved

FENCED, UNFENCED, SHUTTING_DOWN = 1, -1, 1
#: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL (SecurityProtocol).
PROTOCOLS = frozenset(range(4))
#: {tag: the first version of the record that has it}; Apache Kafka does not read a record with another one.
REGISTRATION_TAGS, CHANGE_TAGS = {0: 3, 1: 4}, {0: 0, 1: 1, 2: 2, 3: 3}


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker's registration (RegisterBrokerRecord). `endpoints`: (name, host, port, security protocol), `features`: (name, lowest
    level, highest level), both sorted."""

    incarnation: str
    epoch: int
    endpoints: tuple[tuple[object, ...], ...] = ()
    features: tuple[tuple[object, ...], ...] = ()
    rack: str | None = None
    is_migrating: bool = False
    is_fenced: bool = True
    is_shutting_down: bool = False
    directories: tuple[str, ...] = ()
    cordoned: tuple[str, ...] = ()

    @property
    def state(self) -> tuple[object, ...]:
        """What a snapshot keeps of it."""
        return (
            self.incarnation, self.epoch, self.endpoints, self.features, self.rack, self.is_migrating, self.is_fenced,
            self.is_shutting_down, tuple(sorted(self.directories)), tuple(sorted(self.cordoned)),
        )  # fmt: skip


def registration(fields: Fields, version: int) -> Registration:
    """Read RegisterBrokerRecord behind the broker's id. Raises FormatError."""
    is_migrating = version >= 2 and fields.integer(1) != 0
    incarnation, epoch = fields.uuid(), fields.integer(8)
    endpoints, features = _endpoints(fields), _features(fields)
    rack, is_fenced = fields.nullable_string(), fields.integer(1) != 0
    is_shutting_down = version >= 1 and fields.integer(1) != 0
    tagged = fields.tagged(REGISTRATION_TAGS, version)
    return Registration(
        incarnation, epoch, endpoints, features, rack, is_migrating, is_fenced, is_shutting_down,
        tagged[0].uuids() if 0 in tagged else (), tagged[1].uuids_or(()) if 1 in tagged else (),
    )  # fmt: skip


def known_broker(brokers: Mapping[str, Registration], node: str, epoch: int) -> Registration:
    """The registration that a record changes or removes. Raises FormatError where a controller ends: a broker of this epoch is not
    registered (ClusterControlManager.replay)."""
    found = brokers.get(node)
    if found is None or found.epoch != epoch:
        known = "it is not registered" if found is None else f"its epoch is {found.epoch}"
        raise FormatError(f"the registration of broker {node} of epoch {epoch} is changed or removed, but {known}")
    return found


def check_registered(brokers: Mapping[str, Registration], node: str, new: Registration) -> None:
    """Check a registration against those that there are, before it takes its place. Raises FormatError: a controller ends where two brokers
    have one directory (ClusterControlManager.updateDirectories), a broker's epoch is an offset of the log, which grows, and no broker is
    registered with a directory id that is reserved (ClusterControlManager.registerBroker)."""
    before = brokers.get(node)
    if int(node) < 0 or (before is not None and new.epoch < before.epoch):
        text = "" if before is None else f", after epoch {before.epoch}"
        raise FormatError(f"broker {node} is registered in epoch {new.epoch}{text}")
    if wrong := [place for place in (*new.directories, *new.cordoned) if is_reserved(place)]:
        raise FormatError(f"broker {node} is registered with the directory {wrong[0]}, whose id is reserved")
    others = {place: other for other, one in brokers.items() if other != node for place in one.directories}
    for number, place in enumerate(new.directories):
        if place in others or place in new.directories[:number]:
            raise FormatError(f"broker {node} is registered with directory {place}, which broker {others.get(place, node)} has already")


def check_epoch(node: str, new: Registration, offset: int) -> None:
    """Check the epoch of a broker that a record at this offset registers, -1 unknown: it is the offset at which the controller was about to
    write when the broker first asked (QuorumController.registerBroker). Raises FormatError."""
    if 0 <= offset < new.epoch:
        raise FormatError(f"broker {node} is registered at {offset} in epoch {new.epoch}, which is the offset of a later record")


def check_requested(brokers: Mapping[str, Registration], fields: Fields) -> None:
    """Check that the broker that asked for a block of producer ids is registered, in the epoch in which it asked. Snapshots and migrations
    from ZooKeeper name none. Raises FormatError."""
    node, epoch = str(fields.integer(4)), fields.integer(8)
    if epoch >= 0 and (node not in brokers or brokers[node].epoch != epoch):
        raise FormatError(f"producer ids are given to broker {node} of epoch {epoch}, which is not registered")


def changed(before: Registration, fields: Fields, version: int) -> Registration:
    """The registration after BrokerRegistrationChangeRecord, of which `fields` are those behind the broker's epoch. Raises FormatError."""
    tagged = fields.tagged(CHANGE_TAGS, version)
    fencing, shutdown = (tagged[tag].integer(1) if tag in tagged else 0 for tag in (0, 1))
    if fencing not in {0, FENCED, UNFENCED} or shutdown not in {0, SHUTTING_DOWN}:
        raise FormatError(f"a broker's registration changes to the unknown state {fencing}, {shutdown}")
    return replace(
        before,
        is_fenced=fencing == FENCED if fencing else before.is_fenced,
        is_shutting_down=before.is_shutting_down or shutdown == SHUTTING_DOWN,
        directories=tagged[2].uuids() if 2 in tagged else before.directories,
        cordoned=tagged[3].uuids_or(before.cordoned) if 3 in tagged else before.cordoned,
    )


def controller(fields: Fields) -> tuple[tuple[str, ...], bytes]:
    """RegisterControllerRecord as an entry of the state: (its name, its value). Raises FormatError."""
    node, incarnation, is_ready = fields.integer(4), fields.uuid(), fields.integer(1) != 0
    whole = incarnation, is_ready, _endpoints(fields), _features(fields)
    fields.tagged()
    return ("controller", str(node)), repr(whole).encode()


def _endpoints(fields: Fields) -> tuple[tuple[object, ...], ...]:
    """A controller ends at a protocol that it does not know (BrokerRegistration.fromRecord)."""
    found = []
    for _ in range(fields.count()):
        found.append((fields.string(), fields.string(), fields.integer(2), fields.integer(2)))
        fields.tagged()
    if unknown := [one[3] for one in found if one[3] not in PROTOCOLS]:
        text = f"a listener has the unknown security protocol {unknown[0]}"
        raise FormatError(text) if unknown[0] < 0 else UnknownRecordError(text)
    return tuple(sorted(found))


def _features(fields: Fields) -> tuple[tuple[object, ...], ...]:
    found = []
    for _ in range(fields.count()):
        found.append((fields.string(), fields.integer(2), fields.integer(2)))
        fields.tagged()
    if wrong := [one for one in found if not 0 <= one[1] <= one[2]]:  # VersionRange
        raise FormatError(f"a node supports the levels {wrong[0][1]} to {wrong[0][2]} of {wrong[0][0]}")
    return tuple(sorted(found))
