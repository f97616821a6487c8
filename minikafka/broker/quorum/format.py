"""`storage format`, `info` and `random-uuid` (Kafka's StorageTool and Formatter): writes meta.properties, bootstrap.checkpoint and, for
dynamic quorums, the first snapshot of the metadata log with the voters (KIP-853). The files are those of Apache Kafka 4.3."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from minikafka.addresses import split_host_port
from minikafka.broker.config.broker_config import BrokerConfig
from minikafka.broker.quorum.snapshots import BOOTSTRAP, encode_snapshot, file_name, read_snapshot, write_snapshot_file
from minikafka.core.controller.config import DEFAULT_FEATURES, SUPPORTED_FEATURES
from minikafka.core.controller.scram import credential_record
from minikafka.core.raft.types import Endpoint, OffsetAndEpoch, ReplicaKey
from minikafka.core.raft.voters import Voter, VoterSet
from minikafka.core.scram import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_MECHANISMS, ScramCredential, ScramMechanism
from minikafka.storage.checkpoint import META_PROPERTIES, read_properties
from minikafka.storage.errors import CorruptFile, StorageError
from minikafka.storage.filesystem import FileSystem
from minikafka.storage.log_dir import METADATA_TOPIC, MetaProperties, format_directory, read_meta_properties
from minikafka.wire.records.metadata_records import FeatureLevelRecord, UserScramCredentialRecord
from minikafka.wire.uuid import uuid_from_text, uuid_to_text

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
#: (lowest, highest, level in a new cluster) of each feature in bootstrap.checkpoint, in order.
FEATURES: dict[str, tuple[int, int, int]] = {
    name: (*SUPPORTED_FEATURES[name], level) for name, level in DEFAULT_FEATURES.items()
}
#: Names of metadata.version levels (MetadataVersion.java).
RELEASES: dict[str, int] = {
    "3.3-IV3": 7, "3.4-IV0": 8, "3.5-IV0": 9, "3.5-IV1": 10, "3.5-IV2": 11, "3.6-IV0": 12, "3.6-IV1": 13, "3.6-IV2": 14, "3.7-IV0": 15,
    "3.7-IV1": 16, "3.7-IV2": 17, "3.7-IV3": 18, "3.7-IV4": 19, "3.8-IV0": 20, "3.9-IV0": 21, "4.0-IV0": 22, "4.0-IV1": 23, "4.0-IV2": 24,
    "4.0-IV3": 25, "4.1-IV0": 26, "4.1-IV1": 27, "4.2-IV0": 28, "4.2-IV1": 29, "4.3-IV0": 30, "4.4-IV0": 31, "4.4-IV1": 32, "4.4-IV2": 33,
}  # fmt: skip
#: (the metadata.version from which on a new cluster has a level of the feature, the level), in order (Feature.java, defaultLevel).
FEATURE_RELEASES: dict[str, tuple[tuple[int, int], ...]] = {
    "transaction.version": ((24, 2),),
    "eligible.leader.replicas.version": ((26, 1),),
    "group.version": ((22, 1),),
    "share.version": ((28, 1), (31, 2)),
    "streams.version": ((29, 1),),
}
#: Reserved ids, never assigned: they stand for "none", the metadata topic, and Kafka's two reserved directory ids.
RESERVED_IDS = tuple(number.to_bytes(16, "big") for number in range(101))


SALT_BYTES = 20


class FormatError(Exception):
    """The storage cannot be formatted as requested; the message says why and what to do."""


def random_uuid(random_bytes: Callable[[int], bytes]) -> bytes:
    """A random id (version 4) whose text does not begin with a dash, as command lines would take that for an option."""
    while True:
        raw = bytearray(random_bytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        value = bytes(raw)
        if value not in RESERVED_IDS and not uuid_to_text(value).startswith("-"):
            return value


def parse_initial_controllers(text: str, listener: str) -> VoterSet:
    """`id@host:port:directoryId,...`. Raises FormatError."""
    voters: list[Voter] = []
    for entry in text.split(","):
        number, at, rest = entry.strip().partition("@")
        address, _, directory = rest.rpartition(":")
        try:
            host, port = split_host_port(address)
        except ValueError:
            port = 0
        if not at or not number.isdigit() or not port:
            raise FormatError(f"--initial-controllers: {entry!r} is not id@host:port:directory-id")
        try:
            directory_id = uuid_from_text(directory)
        except ValueError as error:
            raise FormatError(f"--initial-controllers: {entry!r}: {error}") from error
        voters.append(Voter(ReplicaKey(int(number), directory_id), (Endpoint(listener, host, port),)))
    if len({voter.key.node_id for voter in voters}) != len(voters):
        raise FormatError("--initial-controllers names a node twice")
    return VoterSet(voters)


def feature_levels(features: Mapping[str, int], release_version: str | None) -> dict[str, int]:
    """The level of every feature in a new cluster. Raises FormatError."""
    levels = {name: default for name, (_, _, default) in FEATURES.items()}
    if release_version is not None:
        if METADATA_VERSION in features:
            raise FormatError("use either --release-version or --feature metadata.version, not both")
        levels[METADATA_VERSION] = _release_level(release_version)
    release = features.get(METADATA_VERSION, levels[METADATA_VERSION])
    for name, steps in FEATURE_RELEASES.items():
        levels[name] = max((level for first, level in steps if release >= first), default=0)
    for name, level in features.items():
        if name == KRAFT_VERSION:
            continue
        if name not in FEATURES:
            raise FormatError(f"--feature {name}: there is no such feature (known: {', '.join([*FEATURES, KRAFT_VERSION])})")
        low, high, _ = FEATURES[name]
        if not low <= level <= high:
            raise FormatError(f"--feature {name}={level}: levels are {low} to {high}")
        levels[name] = level
    return levels


def _release_level(release: str) -> int:
    if release in RELEASES:
        return RELEASES[release]
    matching = [level for name, level in RELEASES.items() if name.split("-")[0] == ".".join(release.split(".")[:2])]
    if not matching:
        raise FormatError(f"--release-version {release} is not known; the newest is {list(RELEASES)[-1]}")
    return max(matching)


def release_name(level: int) -> str:
    return next((name for name, number in RELEASES.items() if number == level), str(level))


def _kraft_version(asked: int | None, is_dynamic: bool) -> int:
    if asked is None:
        return 1 if is_dynamic else 0
    if asked not in (0, 1):
        raise FormatError(f"--feature kraft.version={asked}: levels are 0 and 1")
    if asked == 0 and is_dynamic:
        raise FormatError("kraft.version 0 has no dynamic voters: leave --feature kraft.version away, or set controller.quorum.voters")
    if asked == 1 and not is_dynamic:
        raise FormatError("kraft.version 1 needs the voters: give --standalone or --initial-controllers")
    return asked


def check_quorum_options(
    config: BrokerConfig, *, standalone: bool, initial_controllers: str | None, no_initial_controllers: bool
) -> None:
    """Check which of the three options the configuration allows (StorageTool). Raises FormatError."""
    given = [
        name
        for name, is_given in (
            ("--standalone", standalone),
            ("--initial-controllers", initial_controllers is not None),
            ("--no-initial-controllers", no_initial_controllers),
        )
        if is_given
    ]
    if len(given) > 1:
        raise FormatError(f"{' and '.join(given)} cannot be combined")
    if given and config.voters:
        raise FormatError(f"{given[0]} is for dynamic quorums, but controller.quorum.voters is set: leave one of them away")
    if not config.is_controller and given and not no_initial_controllers:
        raise FormatError(f"{given[0]} is for controllers, but process.roles is {','.join(config.process_roles)}")
    if config.is_controller and not config.voters and not given:
        raise FormatError(
            "because controller.quorum.voters is not set on this controller, one of these is needed: --standalone, --initial-controllers, "
            "--no-initial-controllers"
        )


def _voters(config: BrokerConfig, standalone: bool, initial_controllers: str | None, directory_id: bytes) -> VoterSet | None:
    if not standalone and initial_controllers is None:
        return None
    listener = config.controller_listener
    if initial_controllers is not None:
        voters = parse_initial_controllers(initial_controllers, listener)
        if config.node_id not in voters.node_ids:
            raise FormatError(f"--initial-controllers does not name this node (node.id={config.node_id})")
        return voters
    endpoint = config.advertised[listener]
    host = "localhost" if endpoint.host in ("", "0.0.0.0", "::") else endpoint.host
    return VoterSet([Voter(ReplicaKey(config.node_id, directory_id), (Endpoint(listener, host, endpoint.port),))])


def _first_voters(
    config: BrokerConfig, ids: dict[str, bytes], standalone: bool, initial_controllers: str | None
) -> VoterSet | None:
    """The voters for the first snapshot. `ids` maps the directories to format to their ids; the metadata directory's id is taken from
    it."""
    if config.metadata_directory not in ids:
        return None
    voters = _voters(config, standalone, initial_controllers, ids[config.metadata_directory])
    own = None if voters is None else voters.get(config.node_id)
    if own is not None:
        ids[config.metadata_directory] = own.key.directory_id
    return voters


def format_storage(
    filesystem: FileSystem,
    config: BrokerConfig,
    *,
    cluster_id: str,
    wall_ms: int,
    random_bytes: Callable[[int], bytes],
    standalone: bool = False,
    initial_controllers: str | None = None,
    no_initial_controllers: bool = False,
    ignore_formatted: bool = False,
    features: Mapping[str, int] | None = None,
    release_version: str | None = None,
    add_scram: Sequence[str] = (),
) -> list[str]:
    """Format all unformatted log directories of `config`. Returns one line per directory. Raises FormatError and OSError. Everything is
    checked before anything is written, and meta.properties comes last, so an interrupted run can be repeated."""
    features = dict(features or {})
    try:
        uuid_from_text(cluster_id)
    except ValueError as error:
        if not cluster_id or len(cluster_id) > 64 or not cluster_id.isascii() or not cluster_id.isprintable():
            raise FormatError(f"--cluster-id: {error}; make one with `minikafka storage random-uuid`") from error
    levels = feature_levels(features, release_version)
    users = scram_records(add_scram, random_bytes)
    check_quorum_options(
        config, standalone=standalone, initial_controllers=initial_controllers, no_initial_controllers=no_initial_controllers
    )
    kraft_version = _kraft_version(features.get(KRAFT_VERSION), standalone or initial_controllers is not None)
    directories = list(dict.fromkeys([config.metadata_directory, *config.directories]))
    todo = _unformatted(filesystem, directories, cluster_id, config.node_id, ignore_formatted)
    if not todo:
        return ["All of the log directories are already formatted."]
    ids = {directory: random_uuid(random_bytes) for directory in todo}
    voters = _first_voters(config, ids, standalone, initial_controllers)
    lines = []
    for directory in todo:
        is_metadata = directory == config.metadata_directory
        filesystem.mkdir(directory)
        if is_metadata:
            _write_metadata(filesystem, directory, [*bootstrap_records(levels), *users], kraft_version, voters, wall_ms)
        meta = MetaProperties(cluster_id, config.node_id, ids[directory])
        format_directory(filesystem, directory, meta, wall_ms)
        kind = "metadata" if is_metadata else "data"
        dynamic = " dynamic" if is_metadata and voters is not None else ""
        lines.append(f"Formatting{dynamic} {kind} directory {directory} with {METADATA_VERSION} {release_name(levels[METADATA_VERSION])}.")
    return lines


def format_added_directories(
    filesystem: FileSystem, directories: Sequence[str], metadata_directory: str, random_bytes: Callable[[int], bytes], wall_ms: int
) -> list[str]:
    """Format log directories without meta.properties, each with a new directory id, if the metadata directory has a meta.properties: to add
    a disk to log.dirs, it is enough to restart the node (Kafka's KafkaRaftServer.initializeLogDirs). Returns the paths. If a directory
    fails, opening it will report the error."""
    added = []
    try:
        meta = read_meta_properties(filesystem, metadata_directory)
    except (OSError, StorageError):
        return []
    if meta is None:
        return []
    for path in directories:
        try:
            if read_meta_properties(filesystem, path) is not None:
                continue
            format_directory(filesystem, path, MetaProperties(meta.cluster_id, meta.node_id, random_uuid(random_bytes)), wall_ms)
        except (OSError, StorageError):
            continue
        added.append(path)
    return added


def _unformatted(
    filesystem: FileSystem, directories: Sequence[str], cluster_id: str, node_id: int, ignore_formatted: bool
) -> list[str]:
    todo = []
    for directory in directories:
        try:
            meta = read_meta_properties(filesystem, directory)
        except StorageError as error:
            raise FormatError(str(error)) from error
        if meta is None:
            todo.append(directory)
            continue
        if not ignore_formatted:
            raise FormatError(
                f"Log directory {directory} is already formatted. Use --ignore-formatted to ignore this directory and format the others."
            )
        if meta.cluster_id != cluster_id:
            raise FormatError(f"log directory {directory} belongs to cluster {meta.cluster_id}, not {cluster_id}")
        if meta.node_id != node_id:
            raise FormatError(f"log directory {directory} belongs to node {meta.node_id}, not {node_id}")
    return todo


def bootstrap_records(levels: Mapping[str, int]) -> list[FeatureLevelRecord]:
    """The first records of a new cluster: metadata.version, then the other features by name; level 0 is not written."""
    names = [METADATA_VERSION, *sorted(name for name in levels if name != METADATA_VERSION)]
    return [FeatureLevelRecord(name=name, feature_level=levels[name]) for name in names if levels[name] > 0]


def scram_records(texts: Sequence[str], random_bytes: Callable[[int], bytes]) -> list[UserScramCredentialRecord]:
    """Parse `SCRAM-SHA-256=[name=alice,password=secret,iterations=8192]`, with salt="base64" and saltedpassword="base64" as in Kafka's
    ScramParser. Raises FormatError; the message contains no password."""
    records: dict[tuple[str, int], UserScramCredentialRecord] = {}
    for text in texts:
        mechanism_name, _, rest = text.strip().partition("=")
        mechanism = SCRAM_MECHANISMS.get(mechanism_name.strip())
        if mechanism is None or not (rest.startswith("[") and rest.endswith("]")):
            raise FormatError(f"--add-scram {mechanism_name}: must be {' or '.join(SCRAM_MECHANISMS)}=[name=...,password=...]")
        try:
            options = dict(_scram_options(rest[1:-1]))
            name, credential = options.pop("name"), scram_credential(mechanism, options, random_bytes)
        except KeyError as error:
            raise FormatError(f"--add-scram {mechanism.name}: {error.args[0]} is missing") from error
        except ValueError as error:
            raise FormatError(f"--add-scram {mechanism.name}: {error}") from error
        if (name, mechanism.number) in records:
            raise FormatError(f"--add-scram {mechanism.name}: user {name} is named twice")
        records[name, mechanism.number] = credential_record(name, mechanism.number, credential)
    return list(records.values())


def _scram_options(text: str) -> Iterable[tuple[str, str]]:
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or name.strip() not in ("name", "password", "salt", "iterations", "saltedpassword"):
            raise ValueError(f"{name.strip()!r} is not one of name, password, salt, iterations, saltedpassword")
        value = value.strip()
        yield name.strip(), value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def scram_credential(mechanism: ScramMechanism, options: Mapping[str, str], random_bytes: Callable[[int], bytes]) -> ScramCredential:
    """The credential for a password or saltedpassword, salt and iterations. Raises KeyError for a missing option, ValueError for a wrong
    one."""
    iterations = int(options.get("iterations", ITERATIONS_MIN))
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(f"iterations={iterations}: must be between {ITERATIONS_MIN} and {ITERATIONS_MAX}")
    if ("password" in options) == ("saltedpassword" in options):
        raise ValueError("give either password or saltedpassword")
    if "saltedpassword" in options:
        salted, salt = base64.b64decode(options["saltedpassword"], validate=True), base64.b64decode(options["salt"], validate=True)
        return ScramCredential.of_salted_password(mechanism, salted, salt, iterations)
    salt = base64.b64decode(options["salt"], validate=True) if "salt" in options else random_bytes(SALT_BYTES)
    return ScramCredential.of_password(mechanism, options["password"], salt, iterations)


def _write_metadata(
    filesystem: FileSystem, directory: str, records: Sequence[Any], kraft_version: int, voters: VoterSet | None, wall_ms: int
) -> None:
    pieces = encode_snapshot(records, epoch=0, wall_ms=wall_ms, last_timestamp_ms=0)
    write_snapshot_file(filesystem, f"{directory}/{BOOTSTRAP}", pieces)
    if voters is None:
        return
    log = f"{directory}/{METADATA_TOPIC}-0"
    filesystem.mkdir(log)
    pieces = encode_snapshot(
        (), epoch=0, wall_ms=wall_ms, last_timestamp_ms=wall_ms, kraft_version=kraft_version, voters=voters
    )
    write_snapshot_file(filesystem, f"{log}/{file_name(OffsetAndEpoch(0, 0))}", pieces)


def read_bootstrap(filesystem: FileSystem, directory: str) -> list[Any]:
    """The records of bootstrap.checkpoint, or those of a new 4.3 cluster if the file does not exist. Raises CorruptFile, OSError."""
    path = f"{directory}/{BOOTSTRAP}"
    if not filesystem.exists(path):
        return list(bootstrap_records({name: default for name, (_, _, default) in FEATURES.items()}))
    return read_snapshot(filesystem, path).records


def storage_info(filesystem: FileSystem, directories: Iterable[str]) -> tuple[list[str], list[str]]:
    """(lines, problems) for `storage info`."""
    found, metadata, problems = [], None, []
    for directory in dict.fromkeys(directories):
        if not filesystem.is_dir(directory):
            problems.append(f"{directory} is not a directory" if filesystem.exists(directory) else f"{directory} does not exist")
            continue
        found.append(directory)
        path = f"{directory}/{META_PROPERTIES}"
        if not filesystem.exists(path):
            problems.append(f"{directory} is not formatted.")
            continue
        try:
            read_meta_properties(filesystem, directory)
        except (StorageError, CorruptFile) as error:
            problems.append(str(error))
            continue
        properties = read_properties(filesystem, path)
        if metadata is None:
            metadata = properties
        elif any(metadata.get(key) != properties.get(key) for key in ("cluster.id", "node.id")):
            problems.append(f"{directory} belongs to another cluster or node than the first directory")
    lines: list[str] = []
    if found:
        lines += ["Found log directories:" if len(found) > 1 else "Found log directory:", *(f"  {name}" for name in found), ""]
    if metadata is not None:
        text = ", ".join(f"{key}={metadata[key]}" for key in sorted(metadata))
        lines += [f"Found metadata: {{{text}}}", ""]
    return lines, problems
