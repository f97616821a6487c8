"""`minikafka storage`: format, info, random-uuid (kafka-storage.sh; its options)."""

from __future__ import annotations

import os
import time

import click

from minikafka.cli.common import CommandGroup
from minikafka.cli.reasons import reason


class WrongConfiguration(click.ClickException):
    """The node could not start with these properties."""

    exit_code = 2


@click.group(cls=CommandGroup)
def storage() -> None:
    """Prepare the directories of a broker or controller."""


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a random id for a cluster or a directory."""
    from minikafka.broker.quorum.format import random_uuid as make
    from minikafka.wire.uuid import uuid_to_text

    click.echo(uuid_to_text(make(os.urandom)))


def _features(values: tuple[str, ...]) -> dict[str, int]:
    features = {}
    for value in values:
        name, _, level = value.partition("=")
        if not name or not level.isdigit():
            raise click.UsageError(f"--feature {value}: must be name=level, as in metadata.version=30")
        features[name.strip()] = int(level)
    return features


def _load(config: str | None, overrides: tuple[str, ...]):  # type: ignore[no-untyped-def]
    from minikafka.broker.config.broker_config import BrokerConfig, ConfigurationError
    from minikafka.broker.config.image_environment import read_environment
    from minikafka.cli.start import read_configuration

    try:
        given = read_configuration(config, read_environment(os.environ), overrides)
        # As Apache Kafka's: images format storage before they export KAFKA_OPTS with the file of the logins.
        return BrokerConfig.from_properties(given, is_to_run=False)
    except ConfigurationError as error:
        raise WrongConfiguration(str(error)) from error


@storage.command("format")
@click.option("-t", "--cluster-id", required=True, help="Cluster id: 22 characters, the same for every node.")
@click.option("-c", "--config", type=click.Path(), help="The node's server.properties; KAFKA_* variables override it.")
@click.option("--override", "overrides", multiple=True, metavar="PROPERTY=VALUE", help="Set a property. May be repeated.")
@click.option("-s", "--standalone", is_flag=True, help="Make this node the only controller of a new dynamic quorum.")
@click.option("-I", "--initial-controllers", metavar="ID@HOST:PORT:DIRECTORY_ID,...", help="Initial controllers of a new dynamic quorum.")
@click.option("-N", "--no-initial-controllers", is_flag=True, help="Format a controller that joins a dynamic quorum later.")
@click.option("-g", "--ignore-formatted", is_flag=True, help="Skip directories that are already formatted.")
@click.option("-f", "--feature", "features", multiple=True, metavar="NAME=LEVEL", help="Level of a feature. May be repeated.")
@click.option(
    "-S",
    "--add-scram",
    "add_scram",
    multiple=True,
    metavar="MECHANISM=[name=..,password=..]",
    help="An initial SCRAM user, such as SCRAM-SHA-256=[name=alice,password=secret,iterations=8192]. May be repeated.",
)
@click.option("-r", "--release-version", help="Use the feature levels of this release, for example 4.3-IV0.")
def format_command(
    cluster_id: str,
    config: str | None,
    overrides: tuple[str, ...],
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    ignore_formatted: bool,
    features: tuple[str, ...],
    release_version: str | None,
    add_scram: tuple[str, ...],
) -> None:
    """Format a node's log directories, once, before its first start."""
    from minikafka.broker.quorum.format import FormatError, format_storage
    from minikafka.storage.filesystem import OsFileSystem

    try:
        lines = format_storage(
            OsFileSystem(),
            _load(config, overrides),
            cluster_id=cluster_id,
            wall_ms=time.time_ns() // 1_000_000,
            random_bytes=os.urandom,
            standalone=standalone,
            initial_controllers=initial_controllers,
            no_initial_controllers=no_initial_controllers,
            ignore_formatted=ignore_formatted,
            features=_features(features),
            release_version=release_version,
            add_scram=add_scram,
        )
    except FormatError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(f"cannot write the storage: {reason(error)}") from error
    for line in lines:
        click.echo(line)


@storage.command("info")
@click.option("-c", "--config", type=click.Path(), help="The node's server.properties; KAFKA_* variables override it.")
@click.option("--override", "overrides", multiple=True, metavar="PROPERTY=VALUE", help="Set a property. May be repeated.")
@click.pass_context
def info(context: click.Context, config: str | None, overrides: tuple[str, ...]) -> None:
    """Show what is in the log directories. Exit status 1 if something is wrong."""
    from minikafka.broker.quorum.format import storage_info
    from minikafka.storage.filesystem import OsFileSystem

    loaded = _load(config, overrides)
    lines, problems = storage_info(OsFileSystem(), [*loaded.directories, loaded.metadata_directory])
    for line in lines:
        click.echo(line)
    if problems:
        click.echo("Found problem:" if len(problems) == 1 else "Found problems:")
        for problem in problems:
            click.echo(f"  {problem}")
        context.exit(1)


def _add_feature_tables() -> None:
    from minikafka.cli.features import feature_dependencies, version_mapping

    for command in (version_mapping, feature_dependencies):
        storage.add_command(command)


_add_feature_tables()
