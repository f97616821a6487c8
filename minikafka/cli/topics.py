"""`minikafka topics`: the flags and the output of kafka-topics.sh."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import bootstrap_option, command_config_option, emit, output_option, parse_pairs, run, traceback_option
from minikafka.wire.uuid import uuid_from_text, uuid_to_text

if TYPE_CHECKING:
    from minikafka.client.admin import Admin, PartitionDescription, TopicDescription

TOPIC = 2
TOPIC_SOURCE = 1


@click.command("topics")
@bootstrap_option
@command_config_option
@click.option("--create", "action", flag_value="create", help="Create a topic.")
@click.option("--list", "action", flag_value="list", help="List topics.")
@click.option("--describe", "action", flag_value="describe", help="Show partitions, leaders and replicas.")
@click.option("--delete", "action", flag_value="delete", help="Delete a topic.")
@click.option("--alter", "action", flag_value="alter", help="Add partitions (--partitions).")
@click.option("--topic", "names", multiple=True, help="Name of a topic; may be repeated.")
@click.option("--topic-id", help="With --describe: the topic with this id.")
@click.option("--partitions", type=click.IntRange(1), help="Number of partitions.")
@click.option("--replication-factor", type=click.IntRange(1), help="Replicas of each partition.")
@click.option("--replica-assignment", help="Brokers of each partition: 1:2,2:3,3:1.")
@click.option("--config", "configs", multiple=True, metavar="NAME=VALUE", help="Property of a new topic; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic already exists.")
@click.option("--if-exists", is_flag=True, help="Do nothing if the topic does not exist.")
@click.option("--exclude-internal", is_flag=True, help="Leave out internal topics.")
@click.option("--under-replicated-partitions", "health", flag_value="under-replicated", help="Only partitions with an out-of-sync replica.")
@click.option("--unavailable-partitions", "health", flag_value="unavailable", help="Only partitions without a leader.")
@click.option("--under-min-isr-partitions", "health", flag_value="under-min-isr", help="Only partitions below min.insync.replicas.")
@click.option("--at-min-isr-partitions", "health", flag_value="at-min-isr", help="Only partitions at min.insync.replicas.")
@click.option("--topics-with-overrides", is_flag=True, help="Only topics that override properties.")
@output_option
@traceback_option
def topics(bootstrap: str, action: str | None, names: tuple[str, ...], output: str, traceback: bool, **options: Any) -> None:
    """Create, list, describe, alter and delete topics."""
    if action is None:
        raise click.UsageError("specify an action: --create, --list, --describe, --alter or --delete")
    if options["topic_id"] and (names or action != "describe"):
        raise click.UsageError("--topic-id needs --describe and cannot be combined with --topic")
    if action in ("create", "alter", "delete") and not names:
        raise click.UsageError(f"--{action} needs --topic")
    work = _ACTIONS[action]

    async def go() -> None:
        from minikafka.client.admin import Admin

        async with Admin(bootstrap) as admin:
            await work(admin, names, output, options)

    run(go, traceback=traceback)


async def _create(admin: Admin, names: tuple[str, ...], output: str, options: dict[str, Any]) -> None:
    from minikafka.client.errors import BrokerError
    from minikafka.wire.errors import ErrorCode

    assignment = _assignment(options["replica_assignment"]) if options["replica_assignment"] else None
    for name in names:
        try:
            await admin.create_topic(
                name,
                partitions=options["partitions"] or -1,
                replication_factor=options["replication_factor"] or -1,
                assignments=assignment,
                configs=parse_pairs(options["configs"], "--config"),
            )
        except BrokerError as error:
            if error.code is ErrorCode.TOPIC_ALREADY_EXISTS and options["if_not_exists"]:
                continue
            raise
        click.echo(f"Created topic {name}.")


def _assignment(text: str) -> dict[int, list[int]]:
    try:
        return {index: [int(broker) for broker in part.split(":")] for index, part in enumerate(text.split(","))}
    except ValueError:
        raise click.BadParameter(f"{text!r} is not broker:broker,broker:broker", param_hint="--replica-assignment") from None


async def _list(admin: Admin, names: tuple[str, ...], output: str, options: dict[str, Any]) -> None:
    found = [name for name in await admin.list_topics(with_internal=not options["exclude_internal"]) if not names or name in names]
    if output == "table":
        for name in found:
            click.echo(name)
    else:
        emit([{"topic": name} for name in found], output, ["topic"])


async def _describe(admin: Admin, names: tuple[str, ...], output: str, options: dict[str, Any]) -> None:
    from minikafka.client.errors import BrokerError

    try:
        if options["topic_id"]:
            names = (await _name_of(admin, options["topic_id"]),)
        described = await admin.describe_topics(names or None)
    except BrokerError:
        if options["if_exists"]:
            return
        raise
    rows: list[dict[str, Any]] = []
    for topic in described:
        if options["exclude_internal"] and topic.is_internal:
            continue
        configs = {c.name: c for c in await admin.describe_configs(TOPIC, topic.name)}
        overrides = {name: c.value for name, c in configs.items() if c.source == TOPIC_SOURCE}
        if options["topics_with_overrides"] and not overrides:
            continue
        entry = configs.get("min.insync.replicas")
        min_isr = int(entry.value or 1) if entry is not None else 1
        chosen = [p for p in topic.partitions if _is_chosen(p, options["health"], min_isr)]
        if options["health"] and not chosen:
            continue
        if output == "table":
            _print(topic, chosen, overrides, header=not options["health"])
        else:
            rows.append(_as_dict(topic, chosen, overrides))
    if output == "wide":
        emit(await _with_offsets(admin, rows), "table", WIDE_COLUMNS)
    elif output != "table":
        emit(rows, output, [])


async def _name_of(admin: Admin, topic_id: str) -> str:
    from minikafka.client.errors import refusal
    from minikafka.wire.errors import ErrorCode

    try:
        requested = uuid_from_text(topic_id)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--topic-id") from error
    await admin.cluster.refresh(None)
    found = [topic.name for topic in admin.cluster.topics.values() if topic.topic_id == requested]
    if not found:
        raise refusal(ErrorCode.UNKNOWN_TOPIC_ID, f"topic id {topic_id}")
    return found[0]


async def _with_offsets(admin: Admin, topics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each partition, with its offsets if it has a leader."""
    rows = [{"topic": topic["topic"], **partition} for topic in topics for partition in topic["partitions"]]
    led = [(row["topic"], row["partition"]) for row in rows if row["leader"] >= 0]
    starts, ends = await admin.list_offsets(dict.fromkeys(led, "earliest")), await admin.list_offsets(dict.fromkeys(led, "latest"))
    for row in rows:
        key = (row["topic"], row["partition"])
        row |= {name: ",".join(map(str, row[name])) or "-" for name in ("replicas", "isr", "offline")}
        row["log_start_offset"] = starts[key].offset if key in starts else None
        row["high_watermark"] = ends[key].offset if key in ends else None
    return rows


def _is_chosen(partition: PartitionDescription, health: str | None, min_isr: int) -> bool:
    if health is None:
        return True
    size = len(partition.isr)
    return {
        "under-replicated": size < len(partition.replicas),
        "unavailable": partition.leader < 0,
        "under-min-isr": size < min_isr,
        "at-min-isr": size == min_isr,
    }[health]


def _print(topic: TopicDescription, partitions: list[PartitionDescription], overrides: dict[str, str | None], *, header: bool) -> None:
    if header:
        factor = len(topic.partitions[0].replicas) if topic.partitions else 0
        configs = ",".join(f"{name}={value}" for name, value in sorted(overrides.items()))
        click.echo(
            f"Topic: {topic.name}\tTopicId: {uuid_to_text(topic.topic_id)}\tPartitionCount: {len(topic.partitions)}"
            f"\tReplicationFactor: {factor}\tConfigs: {configs}"
        )
    for p in partitions:
        leader = str(p.leader) if p.leader >= 0 else "none"
        click.echo(
            f"\tTopic: {topic.name}\tPartition: {p.index}\tLeader: {leader}\tReplicas: {_ids(p.replicas)}\tIsr: {_ids(p.isr)}"
            f"\tElr: {_ids(p.elr)}\tLastKnownElr: {_ids(p.last_known_elr)}"
        )


def _ids(brokers: list[int]) -> str:
    return ",".join(map(str, brokers))


def _as_dict(topic: TopicDescription, partitions: list[PartitionDescription], overrides: dict[str, str | None]) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": uuid_to_text(topic.topic_id),
        "internal": topic.is_internal,
        "configs": overrides,
        "partitions": [
            {
                "partition": p.index, "leader": p.leader, "leader_epoch": p.leader_epoch, "replicas": p.replicas, "isr": p.isr,
                "elr": p.elr, "last_known_elr": p.last_known_elr, "offline": p.offline,
            }
            for p in partitions
        ],
    }  # fmt: skip


async def _delete(admin: Admin, names: tuple[str, ...], output: str, options: dict[str, Any]) -> None:
    from minikafka.client.errors import BrokerError
    from minikafka.wire.errors import ErrorCode

    for name in names:
        try:
            await admin.delete_topic(name)
        except BrokerError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and options["if_exists"]:
                continue
            raise


async def _alter(admin: Admin, names: tuple[str, ...], output: str, options: dict[str, Any]) -> None:
    if not options["partitions"]:
        raise click.UsageError("--alter needs --partitions; to change properties use minikafka configs")
    for name in names:
        await admin.create_partitions(name, options["partitions"])


WIDE_COLUMNS = ("topic", "partition", "leader", "leader_epoch", "replicas", "isr", "offline", "log_start_offset", "high_watermark")
_ACTIONS = {"create": _create, "list": _list, "describe": _describe, "delete": _delete, "alter": _alter}
