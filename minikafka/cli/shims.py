"""`minikafka install-shims` writes kafka-topics.sh and similar scripts. `minikafka completion` prints a completion script."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path

import click

#: Kafka's script -> our subcommand.
SHIMS = {
    "kafka-topics.sh": "topics", "kafka-configs.sh": "configs", "kafka-consumer-groups.sh": "consumer-groups",
    "kafka-leader-election.sh": "leader-election", "kafka-reassign-partitions.sh": "reassign-partitions", "kafka-log-dirs.sh": "log-dirs",
    "kafka-metadata-quorum.sh": "metadata-quorum", "kafka-get-offsets.sh": "get-offsets", "kafka-delete-records.sh": "delete-records",
    "kafka-dump-log.sh": "dump-log", "kafka-storage.sh": "storage", "kafka-features.sh": "features", "kafka-cluster.sh": "cluster",
    "kafka-broker-api-versions.sh": "broker-api-versions", "kafka-console-producer.sh": "console-producer",
    "kafka-console-consumer.sh": "console-consumer", "kafka-verifiable-producer.sh": "verifiable-producer",
    "kafka-verifiable-consumer.sh": "verifiable-consumer", "kafka-producer-perf-test.sh": "producer-perf-test",
    "kafka-consumer-perf-test.sh": "consumer-perf-test", "kafka-server-start.sh": "start",
    "kafka-transactions.sh": "transactions", "kafka-groups.sh": "groups", "kafka-acls.sh": "acls",
    "kafka-client-metrics.sh": "client-metrics", "kafka-share-groups.sh": "share-groups",
    "kafka-streams-groups.sh": "streams-groups", "kafka-delegation-tokens.sh": "delegation-tokens",
    "kafka-console-share-consumer.sh": "console-share-consumer",
    "kafka-verifiable-share-consumer.sh": "verifiable-share-consumer", "kafka-share-consumer-perf-test.sh": "share-consumer-perf-test",
}  # fmt: skip
SHELLS = ("bash", "zsh", "fish")


@click.command("install-shims")
@click.argument("directory", type=click.Path(file_okay=False))
@click.option("--force", is_flag=True, help="Replace existing files.")
def install_shims(directory: str, force: bool) -> None:
    """Write kafka-topics.sh and Kafka's other scripts to DIRECTORY. Each script calls the subcommand of the same name."""
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    taken = [name for name in SHIMS if (target / name).exists()]
    if taken and not force:
        click.echo(f"error: {target} already contains {taken[0]}; --force replaces it", err=True)
        sys.exit(1)
    for name, command in SHIMS.items():
        path = target / name
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m minikafka {command} "$@"\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    click.echo(f"wrote {len(SHIMS)} scripts to {target}")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS), required=False)
def completion(shell: str | None) -> None:
    """Print the completion script for SHELL. It completes commands, options, and the cluster's topics and groups.

    \b
    bash    eval "$(minikafka completion bash)"     in ~/.bashrc
    zsh     eval "$(minikafka completion zsh)"      in ~/.zshrc, after compinit
    fish    minikafka completion fish | source      in ~/.config/fish/config.fish
    """
    from click.shell_completion import get_completion_class

    from minikafka.cli.main import cli

    name = shell or os.path.basename(os.environ.get("SHELL", "bash"))
    found = get_completion_class(name)
    if found is None:
        raise click.UsageError(f"there is no completion for {name}: {', '.join(SHELLS)}")
    script = found(cli, {}, "minikafka", "_MINIKAFKA_COMPLETE").source()
    # Fix click's fish script, which breaks on descriptions that contain commas.
    click.echo(script.replace('string split ","', 'string split --max 1 ","'))
