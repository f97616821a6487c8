"""`minikafka log-dirs`: kafka-log-dirs.sh."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import emit
from minikafka.cli.session import java_exception, numbers, operator_command, with_admin
from minikafka.client.errors import ClientError
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance


@operator_command("log-dirs")
@click.option("--describe", is_flag=True, help="Show the log directories.")
@click.option("--topic-list", help="Only these topics: a,b.")
@click.option("--broker-list", help="Only these brokers: 1,2.")
def log_dirs(bootstrap: str, describe: bool, topic_list: str | None, broker_list: str | None, output: str, traceback: bool) -> None:
    """Show the log directories of brokers, with the size and lag of every replica."""
    if not describe:
        raise click.UsageError("specify an action: --describe")
    topics = {name.strip() for name in topic_list.split(",")} if topic_list else None
    broker_ids = numbers(broker_list, "--broker-list") if broker_list else None

    async def work(admin: Maintenance) -> None:
        await admin.cluster.refresh([])
        alive = sorted(admin.cluster.brokers)
        missing = [node_id for node_id in broker_ids or [] if node_id not in alive]
        if missing:
            raise ClientError(
                f"The given brokers do not exist from --broker-list: {','.join(map(str, missing))}. Current existent brokers:"
                f" {','.join(map(str, alive))}"
            )
        chosen = broker_ids or alive
        answers = await admin.describe_log_dirs(chosen)
        brokers: list[dict[str, Any]] = []
        for node_id, answer in answers.items():
            directories = []
            for result in answer.results:
                partitions = [
                    {
                        "partition": f"{topic.name}-{p.partition_index}", "size": p.partition_size, "offsetLag": p.offset_lag,
                        "isFuture": p.is_future_key,
                    }
                    for topic in result.topics
                    if topics is None or topic.name in topics
                    for p in topic.partitions
                ]  # fmt: skip
                code = ErrorCode(result.error_code)
                error = None if code is ErrorCode.NONE else java_exception(code)
                directories.append({"partitions": partitions, "error": error, "logDir": result.log_dir})
            brokers.append({"broker": node_id, "logDirs": directories})
        report = {"brokers": brokers, "version": 1}
        if output == "table":
            click.echo("Querying brokers for log directories information")
            click.echo(f"Received log directory information from brokers {','.join(map(str, chosen))}")
            click.echo(json.dumps(report, separators=(",", ":")))
        else:
            rows = [
                {"broker": b["broker"], "log_dir": d["logDir"], "error": d["error"], **p}
                for b in brokers
                for d in b["logDirs"]
                for p in d["partitions"]
            ]
            emit(rows, output, ["broker", "log_dir", "partition", "size", "offsetLag", "isFuture", "error"])

    with_admin(bootstrap, work, traceback=traceback)
