"""`minikafka leader-election`: kafka-leader-election.sh."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import EXIT_REFUSED, emit
from minikafka.cli.session import java_exception, named, operator_command, partitions_from_json, with_admin
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance


@operator_command("leader-election")
@click.option(
    "--election-type", type=click.Choice(["preferred", "unclean"], case_sensitive=False), required=True,
    help="preferred: the first replica. unclean: any live replica, even one that is out of sync and lacks records.",
)  # fmt: skip
@click.option("--all-topic-partitions", is_flag=True, help="Every partition.")
@click.option("--topic", help="With --partition: only this partition.")
@click.option("--partition", type=click.IntRange(0), help="With --topic.")
@click.option("--path-to-json-file", help='{"partitions": [{"topic": "t", "partition": 0}]}')
def leader_election(bootstrap: str, output: str, traceback: bool, **options: Any) -> None:
    """Elect leaders of partitions."""
    chosen = [options["all_topic_partitions"], options["topic"] is not None, options["path_to_json_file"] is not None]
    if sum(chosen) != 1:
        raise click.UsageError("specify the partitions: --all-topic-partitions, --topic with --partition, or --path-to-json-file")
    if (options["topic"] is None) != (options["partition"] is None):
        raise click.UsageError("--topic and --partition must be used together")
    partitions = None
    if options["topic"] is not None:
        partitions = [(options["topic"], options["partition"])]
    elif options["path_to_json_file"]:
        partitions = [key for key, _ in partitions_from_json(options["path_to_json_file"], "--path-to-json-file")]
    kind = options["election_type"].upper()

    async def work(admin: Maintenance) -> int:
        outcomes = await admin.elect(partitions, unclean=kind == "UNCLEAN")
        if output != "table":
            rows = [
                {"topic": t, "partition": p, "elected": o.is_good, "error": None if o.is_good else o.code.name, "message": o.message}
                for (t, p), o in sorted(outcomes.items())
            ]
            emit(rows, output, ["topic", "partition", "elected", "error"])
        else:
            _show(kind, outcomes)
        bad = [o for o in outcomes.values() if not o.is_good and o.code is not ErrorCode.ELECTION_NOT_NEEDED]
        if bad:
            click.echo(f"{len(bad)} replica(s) could not be elected", err=True)
        return EXIT_REFUSED if bad else 0

    sys.exit(with_admin(bootstrap, work, traceback=traceback))


def _show(kind: str, outcomes: dict[Any, Any]) -> None:
    good = sorted(key for key, outcome in outcomes.items() if outcome.is_good)
    same = sorted(key for key, outcome in outcomes.items() if outcome.code is ErrorCode.ELECTION_NOT_NEEDED)
    if good:
        click.echo(f"Successfully completed leader election ({kind}) for partitions {named(good)}")
    if same:
        click.echo(f"Valid replica already elected for partitions {named(same)}")
    for key in sorted(set(outcomes) - set(good) - set(same)):
        outcome = outcomes[key]
        click.echo(
            f"Error completing leader election ({kind}) for partition: {named([key])}: {java_exception(outcome.code)}: {outcome.message}"
        )
