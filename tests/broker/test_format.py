"""`storage format` against the files of Apache Kafka 4.3."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from helpers.raft_nodes import config_of

from minikafka.broker.quorum.format import (
    FormatError,
    format_storage,
    parse_initial_controllers,
    random_uuid,
    read_bootstrap,
    storage_info,
)
from minikafka.broker.quorum.snapshots import decode_snapshot, encode_snapshot
from minikafka.core.raft.types import Endpoint, ReplicaKey
from minikafka.core.raft.voters import Voter, VoterSet
from minikafka.storage.errors import CorruptFile
from minikafka.storage.filesystem import OsFileSystem
from minikafka.wire.batch import iterate_batches
from minikafka.wire.uuid import uuid_from_text, uuid_to_text

GOLDEN = Path(__file__).parents[1] / "golden"
FIRST = "00000000000000000000-0000000000.checkpoint"
CLUSTER = "golden-standaloneCCCC"


def same_but_for_time(ours: bytes, theirs: bytes) -> bool:
    """Equal after timestamps (and with them the CRC and the directory's random id) are taken out."""

    def plain(data: bytes) -> list:
        return [
            (
                batch.base_offset, batch.batch_length, batch.partition_leader_epoch, batch.attributes, batch.last_offset_delta,
                batch.max_timestamp - batch.base_timestamp, batch.producer_id, batch.producer_epoch, batch.base_sequence,
                [(record.offset, record.key, record.value, list(record.headers)) for record in batch.records()],
            )
            for batch in iterate_batches(data)
        ]  # fmt: skip

    return plain(ours) == plain(theirs)


def run(config, **options):
    return format_storage(
        OsFileSystem(), config, cluster_id=CLUSTER, wall_ms=1795225710131, random_bytes=random.Random(3).randbytes, **options
    )


def test_a_standalone_controller_as_kafka_formats_it(tmp_path) -> None:
    directory = tmp_path / "d"
    config = config_of(directory)
    reported = run(config, standalone=True)
    assert reported == [f"Formatting dynamic metadata directory {directory} with metadata.version 4.3-IV0."]
    golden = GOLDEN / "kraft-standalone" / "formatted"
    bootstrap = (directory / "bootstrap.checkpoint").read_bytes()
    assert len(bootstrap) == 411
    assert same_but_for_time(bootstrap, (golden / "root" / "bootstrap.checkpoint").read_bytes())
    lines = (directory / "meta.properties").read_text().splitlines()
    theirs = (golden / "root" / "meta.properties").read_text().splitlines()
    assert [line.split("=")[0] for line in lines[2:]] == [line.split("=")[0] for line in theirs[2:]]
    assert re.fullmatch(r"#\w{3} \w{3} \d\d \d\d:\d\d:\d\d UTC \d{4}", lines[1])
    first = (directory / "__cluster_metadata-0" / FIRST).read_bytes()
    theirs_first = (golden / "__cluster_metadata-0" / FIRST).read_bytes()
    ours, kafkas = decode_snapshot(first), decode_snapshot(theirs_first)
    assert len(first) == len(theirs_first) == 241
    assert ours.kraft_version == kafkas.kraft_version == 1
    directory_id = uuid_from_text(next(line for line in lines if line.startswith("directory.id")).split("=", 1)[1])
    assert ours.voters == VoterSet([Voter(ReplicaKey(1, directory_id), (Endpoint("CONTROLLER", "127.0.0.1", 21621),))])


@pytest.mark.parametrize("folder", ["kraft-standalone", "kraft-dynamic"])
def test_the_first_snapshot_byte_for_byte(folder) -> None:
    theirs = (GOLDEN / folder / "formatted" / "__cluster_metadata-0" / FIRST).read_bytes()
    content = decode_snapshot(theirs)
    ours = b"".join(
        encode_snapshot(
            (), epoch=0, wall_ms=5, last_timestamp_ms=content.last_timestamp_ms, kraft_version=1, voters=content.voters
        )
    )
    assert same_but_for_time(ours, theirs)


def test_static_and_dynamic_bootstrap_files_are_alike(tmp_path) -> None:
    config = config_of(tmp_path / "d", voters={1: ("127.0.0.1", 1)})
    run(config)
    assert not (tmp_path / "d" / "__cluster_metadata-0").exists()
    ours = (tmp_path / "d" / "bootstrap.checkpoint").read_bytes()
    assert same_but_for_time(ours, (GOLDEN / "kraft-static" / "formatted" / "bootstrap.checkpoint").read_bytes())
    records = read_bootstrap(OsFileSystem(), str(tmp_path / "d"))
    assert [(record.name, record.feature_level) for record in records] == [
        ("metadata.version", 30), ("eligible.leader.replicas.version", 1), ("group.version", 1), ("share.version", 1),
        ("streams.version", 1), ("transaction.version", 2),
    ]  # fmt: skip


def test_a_new_cluster_has_the_features_that_are_served(tmp_path) -> None:
    run(config_of(tmp_path / "d", voters={1: ("127.0.0.1", 1)}))
    records = read_bootstrap(OsFileSystem(), str(tmp_path / "d"))
    assert [(record.name, record.feature_level) for record in records] == [
        ("metadata.version", 30), ("eligible.leader.replicas.version", 1), ("group.version", 1), ("share.version", 1),
        ("streams.version", 1), ("transaction.version", 2),
    ]  # fmt: skip


def test_initial_controllers_take_their_own_directory_id(tmp_path) -> None:
    text = "1@127.0.0.1:21611:AAAAAAAAQACAAAAAAAAAEQ,2@127.0.0.1:21612:AAAAAAAAQACAAAAAAAAAIg,3@127.0.0.1:21613:AAAAAAAAQACAAAAAAAAAMw"
    run(config_of(tmp_path / "d", node_id=1), initial_controllers=text)
    ours = (tmp_path / "d" / "__cluster_metadata-0" / FIRST).read_bytes()
    theirs = (GOLDEN / "kraft-dynamic" / "formatted" / "__cluster_metadata-0" / FIRST).read_bytes()
    assert decode_snapshot(ours).voters == decode_snapshot(theirs).voters
    assert "directory.id=AAAAAAAAQACAAAAAAAAAEQ" in (tmp_path / "d" / "meta.properties").read_text()
    with pytest.raises(FormatError, match="does not name this node"):
        run(config_of(tmp_path / "e", node_id=9), initial_controllers=text)
    for wrong in ("1@h:1", "x@h:1:AAAAAAAAQACAAAAAAAAAEQ", "1@h:1:AA", "1@h:99999:AAAAAAAAQACAAAAAAAAAEQ"):
        with pytest.raises(FormatError):
            parse_initial_controllers(wrong, "CONTROLLER")


def test_which_option_goes_with_which_configuration(tmp_path) -> None:
    def refused(match: str, options: dict, **changes) -> None:
        with pytest.raises(FormatError, match=match):
            run(config_of(tmp_path / "d", **changes), **options)
        assert not (tmp_path / "d").exists()

    refused("one of these is needed", {})
    refused("cannot be combined", {"standalone": True, "no_initial_controllers": True})
    refused("controller.quorum.voters is set", {"standalone": True}, voters={1: ("h", 1)})
    refused("is for controllers", {"standalone": True}, is_controller=False, process_roles=["broker"])
    refused("there is no such feature", {"standalone": True, "features": {"nonsense": 1}})
    refused("levels are 7 to 33", {"standalone": True, "features": {"metadata.version": 99}})
    refused("is not known", {"standalone": True, "release_version": "9.9"})
    run(config_of(tmp_path / "b", is_controller=False, process_roles=["broker"]))
    run(config_of(tmp_path / "n"), no_initial_controllers=True, release_version="4.0", features={"share.version": 0})
    levels = {record.name: record.feature_level for record in read_bootstrap(OsFileSystem(), str(tmp_path / "n"))}
    # Features that came later stay off, as `kafka-storage version-mapping` says.
    assert levels == {"metadata.version": 25, "group.version": 1, "transaction.version": 2}
    run(config_of(tmp_path / "o"), no_initial_controllers=True, release_version="3.9-IV0", features={"group.version": 1})
    levels = {record.name: record.feature_level for record in read_bootstrap(OsFileSystem(), str(tmp_path / "o"))}
    assert levels == {"metadata.version": 21, "group.version": 1}


def test_formatted_directories_are_left_alone(tmp_path) -> None:
    config = config_of(tmp_path / "a", directories=[str(tmp_path / "a"), str(tmp_path / "b")])
    assert len(run(config, standalone=True)) == 2
    before = (tmp_path / "a" / "meta.properties").read_bytes()
    with pytest.raises(FormatError, match="already formatted"):
        run(config, standalone=True)
    assert run(config, standalone=True, ignore_formatted=True) == ["All of the log directories are already formatted."]
    config.directories.append(str(tmp_path / "c"))
    assert run(config, standalone=True, ignore_formatted=True) == [
        f"Formatting data directory {tmp_path / 'c'} with metadata.version 4.3-IV0."
    ]
    assert (tmp_path / "a" / "meta.properties").read_bytes() == before
    config.node_id = 2
    with pytest.raises(FormatError, match="belongs to node 1"):
        run(config, standalone=True, ignore_formatted=True)
    lines, problems = storage_info(OsFileSystem(), [*config.directories, str(tmp_path / "none")])
    assert lines[0] == "Found log directories:" and problems == [f"{tmp_path / 'none'} does not exist"]


def test_a_random_id_never_looks_like_an_option() -> None:
    source = random.Random(1)
    for _ in range(500):
        text = uuid_to_text(random_uuid(source.randbytes))
        assert len(text) == 22 and not text.startswith("-")


def test_a_damaged_snapshot_is_refused() -> None:
    data = (GOLDEN / "kraft-standalone" / "formatted" / "__cluster_metadata-0" / FIRST).read_bytes()
    for cut in range(len(data)):
        with pytest.raises(CorruptFile):
            decode_snapshot(data[:cut])
    flipped = bytearray(data)
    flipped[100] ^= 1
    with pytest.raises(CorruptFile):
        decode_snapshot(bytes(flipped))
    with pytest.raises(CorruptFile):
        decode_snapshot(data + data)


def test_the_command_line(tmp_path) -> None:
    from click.testing import CliRunner

    from minikafka.cli.storage import storage

    runner = CliRunner()
    properties = tmp_path / "server.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\nlisteners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093\n"
        f"controller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=127.0.0.1:9093\nlog.dirs={tmp_path / 'd'}\n"
    )
    cluster_id = runner.invoke(storage, ["random-uuid"]).output.strip()
    assert len(cluster_id) == 22
    result = runner.invoke(storage, ["format", "-t", cluster_id, "-c", str(properties)])
    assert result.exit_code == 1 and "--standalone" in result.output
    result = runner.invoke(storage, ["format", "-t", cluster_id, "-c", str(properties), "--standalone"])
    assert result.exit_code == 0 and "4.3-IV0" in result.output, result.output
    result = runner.invoke(storage, ["info", "-c", str(properties)])
    assert result.exit_code == 0 and f"cluster.id={cluster_id}" in result.output


def test_storage_is_formatted_before_the_logins_are_there(tmp_path) -> None:
    from click.testing import CliRunner

    from minikafka.broker.config.broker_config import BrokerConfig, ConfigurationError
    from minikafka.cli.storage import storage

    given = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "SASL_PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "log.dirs": str(tmp_path / "d"),
    }
    properties = tmp_path / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    result = CliRunner().invoke(storage, ["format", "-t", "minikafka-with-kafkaAA", "-c", str(properties)])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "d" / "meta.properties").exists()
    with pytest.raises(ConfigurationError, match=r"sasl\.enabled\.mechanisms"):
        BrokerConfig.from_properties(given)
