"""`minikafka streams-groups`: kafka-streams-groups.sh."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import EXIT_REFUSED, emit
from minikafka.cli.group_offsets import check_reset, echo_csv, partitions_of, reset_options, targets
from minikafka.cli.group_tables import check_choice, delete_groups, echo_deletion, echo_groups, kafka_table, outcome_rows
from minikafka.cli.session import java_exception, operator_command, with_admin
from minikafka.client.errors import BrokerError, ClientError
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance
    from minikafka.client.streams_groups import StreamsAssignment, StreamsGroupDescription

STATES = ("Empty", "NotReady", "Stable", "Assigning", "Reconciling", "Dead")
STREAMS = "streams"
_LEAST = {
    "partition": 10, "coordinator": 25, "state": 25, "target_assignment_epoch": 25, "topology_epoch": 14, "status": 0, "new_offset": 0,
    "offset_lag": 0, "assignments": 0,
}  # fmt: skip
#: Names of a group's internal topics, after its id and a dash. Other topics are not deleted with the group, even if it lists them.
_INTERNAL = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic"
    r"|.-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic)",
    re.DOTALL,
)


@operator_command("streams-groups")
@click.option("--list", "action", flag_value="list", help="List streams groups.")
@click.option("--describe", "action", flag_value="describe", help="Show offsets and lag, or members, or state.")
@click.option("--delete", "action", flag_value="delete", help="Delete streams groups without members.")
@click.option("--reset-offsets", "action", flag_value="reset", help="Set a group's offsets (with --execute).")
@click.option("--delete-offsets", "action", flag_value="delete-offsets", help="Delete a group's offsets of input topics.")
@click.option("--group", "groups", multiple=True, help="Streams group; may be repeated.")
@click.option("--all-groups", is_flag=True, help="Every streams group.")
@click.option("--input-topic", "topics", multiple=True, metavar="TOPIC[:0,1]", help="Input topic, or partitions of it; may be repeated.")
@click.option("--all-input-topics", "all_topics", is_flag=True, help="Every topic that the group reads but did not create.")
@click.option("--members", "view", flag_value="members", help="Describe the members.")
@click.option("--offsets", "view", flag_value="offsets", help="Describe the offsets.")
@click.option("--topology", "view", flag_value="topology", help="Describe the topology, if brokers store it (Kafka 4.4).")
@click.option(
    "--state", "states", is_flag=False, flag_value="", metavar="[STATE,..]", help="Describe the state; with --list, show it, or only these."
)
@click.option("--verbose", is_flag=True, help="Also show epochs and the members' target assignments.")
@reset_options
@click.option("--delete-internal-topic", "internal_topics", multiple=True, help="With --reset-offsets --execute: also delete this topic.")
@click.option("--delete-all-internal-topics", "all_internal", is_flag=True, help="Also delete the topics that the group created.")
@click.option("--timeout", type=int, default=30_000, help="Accepted, no effect.", hidden=True)
def streams_groups(bootstrap: str, action: str | None, output: str, traceback: bool, **options: Any) -> None:
    """List, describe, reset and delete streams groups."""
    _check(action, options)

    async def work(admin: Maintenance) -> int:
        listed: list[tuple[str, str]] = []
        if action in ("list", "delete") or options["all_groups"]:
            listed = [(name, state) for name, _, state, kind in await admin.list_groups_with_types() if kind == STREAMS]
        if action == "list":
            return echo_groups(listed, options["states"], STATES, output)
        chosen = [name for name, _ in listed] if options["all_groups"] else list(dict.fromkeys(options["groups"]))
        if action == "delete":
            return await _delete(admin, chosen, dict(listed), output, is_all=options["all_internal"])
        return await _ACTIONS[action or ""](admin, chosen, output, options)

    sys.exit(with_admin(bootstrap, work, traceback=traceback))


def _check(action: str | None, options: dict[str, Any]) -> None:
    """Check the combination of options. Raises click.UsageError."""
    if action is None:
        raise click.UsageError("specify an action: --list, --describe, --delete, --reset-offsets or --delete-offsets")
    check_choice(options)
    if action != "list" and not options["groups"] and (not options["all_groups"] or action == "delete-offsets"):
        raise click.UsageError(f"--{action} needs --group{'' if action == 'delete-offsets' else ' or --all-groups'}")
    if action == "reset":
        check_reset(options)
        if not (options["topics"] or options["all_topics"] or options["from_file"]):
            raise click.UsageError("--reset-offsets needs --input-topic, --all-input-topics or --from-file")
        if options["dry_run"] == options["execute"]:
            raise click.UsageError("--reset-offsets needs --dry-run or --execute")
    elif options["dry_run"] or options["execute"]:
        raise click.UsageError("--execute and --dry-run need --reset-offsets")
    if action == "delete" and (options["topics"] or options["all_topics"]):
        raise click.UsageError("--delete deletes whole streams groups: it cannot be combined with --input-topic or --all-input-topics")
    if action == "delete-offsets":
        if not (options["topics"] or options["all_topics"]):
            raise click.UsageError("--delete-offsets needs --input-topic or --all-input-topics")
        if len(options["groups"]) > 1:
            raise click.UsageError("--delete-offsets takes one streams group at a time")
    if options["internal_topics"] and not (action == "reset" and options["execute"]):
        raise click.UsageError("--delete-internal-topic needs --reset-offsets --execute")
    if options["all_internal"] and action != "delete" and not (action == "reset" and options["execute"]):
        raise click.UsageError("--delete-all-internal-topics needs --delete or --reset-offsets --execute")


# -- describe ----------------------------------------------------------------------------------------------------------


async def _describe(admin: Maintenance, groups: list[str], output: str, options: dict[str, Any]) -> int:
    from minikafka.client.streams_groups import describe_streams_group

    everything: list[dict[str, Any]] = []
    status = 0
    view = "state" if options["states"] is not None else options["view"] or "offsets"
    for name in groups:
        try:
            if view == "topology":
                status = await _describe_topology(admin, name, output) or status
                continue
            group = await describe_streams_group(admin, name)
        except BrokerError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            click.echo(f"Error: Streams group '{name}' does not exist.", err=True)
            status = EXIT_REFUSED
            continue
        if group.state == "Empty":
            click.echo(f"\nError: Streams group '{name}' has no active members.", err=True)
        if view == "offsets":
            rows = await _offset_rows(admin, group, options["verbose"])
        else:
            rows = (_member_rows if view == "members" else _state_rows)(group, options["verbose"])
        everything += rows
        if output == "table" and rows:
            click.echo(kafka_table(rows, _LEAST))
    if output != "table" and view != "topology":
        emit(everything, output, list(everything[0]) if everything else ["group"])
    return status


async def _describe_topology(admin: Maintenance, group_id: str, output: str) -> int:
    from minikafka.cli.streams_topology import shown
    from minikafka.client.streams_groups import AVAILABLE, FAILED, topology_description

    found, description = await topology_description(admin, group_id)
    if found == AVAILABLE and description is not None:
        text = shown(description)
        if output == "table":
            click.echo(text)
        else:
            emit([{"group": group_id, "topology": text}], output, ["group", "topology"])
        return 0
    if found == FAILED:
        why = f"The broker failed to fetch the topology description for streams group '{group_id}'. See the broker logs for details."
    else:
        why = f"No topology description is stored for streams group '{group_id}'."
    click.echo(f"Error: {why}", err=True)
    return EXIT_REFUSED


async def _offset_rows(admin: Maintenance, group: StreamsGroupDescription, verbose: bool) -> list[dict[str, Any]]:
    """Rows of the partitions that the members' tasks read. Without a committed offset, the lag counts from the first record."""
    keys = group.active_partitions()
    committed = await admin.group_offsets_and_epochs(group.group_id)
    starts = await admin.list_offsets(dict.fromkeys(keys, "earliest"))
    ends = await admin.list_offsets(dict.fromkeys(keys, "latest"))
    rows = []
    for topic, index in keys:
        offset, epoch = committed.get((topic, index), (None, -1))
        start, end = starts[topic, index].offset, ends[topic, index].offset
        row: dict[str, Any] = {"group": group.group_id, "topic": topic, "partition": index}
        if verbose:
            row |= {"current_offset": offset, "leader_epoch": None if epoch < 0 else epoch, "log_end_offset": end}
        rows.append({**row, "offset_lag": end - (start if offset is None else offset)})
    return rows


def _member_rows(group: StreamsGroupDescription, verbose: bool) -> list[dict[str, Any]]:
    rows = []
    for member in group.members:
        row: dict[str, Any] = {"group": group.group_id}
        if verbose:
            row |= {"target_assignment_epoch": group.assignment_epoch, "topology_epoch": group.topology_epoch}
        row["member"] = member.member_id
        if verbose:
            row |= {"member_protocol": "classic" if member.is_classic else "streams", "member_epoch": member.member_epoch}
        shown = _shown(member.assignment, "") + (_shown(member.target, "TARGET-") if verbose else "")
        rows.append({**row, "process": member.process_id, "client_id": member.client_id, "assignments": shown})
    return rows


def _shown(assignment: StreamsAssignment, prefix: str) -> str:
    text = ""
    for role, tasks in (("ACTIVE", assignment.active), ("STANDBY", assignment.standby), ("WARMUP", assignment.warmup)):
        if tasks:
            text += f"{prefix}{role}: " + "".join(f"{name}:[{','.join(map(str, partitions))}]; " for name, partitions in tasks.items())
    return text


def _state_rows(group: StreamsGroupDescription, verbose: bool) -> list[dict[str, Any]]:
    row: dict[str, Any] = {
        "group": group.group_id, "coordinator": f"{group.coordinator[0]} ({group.coordinator[1]})", "state": group.state,
    }  # fmt: skip
    if verbose:
        row |= {"group_epoch": group.group_epoch, "target_assignment_epoch": group.assignment_epoch}
    return [{**row, "members": len(group.members)}]


# -- offsets -----------------------------------------------------------------------------------------------------------


async def _reset(admin: Maintenance, groups: list[str], output: str, options: dict[str, Any]) -> int:
    from minikafka.client.streams_groups import describe_streams_group

    found: list[dict[str, Any]] = []
    status = 0
    for name in groups:
        group = await describe_streams_group(admin, name)
        if group.state not in ("Empty", "Dead"):
            click.echo(
                f"Error: Assignments can only be reset if the group '{name}' is inactive, but the current state is {group.state}.", err=True
            )
            status = EXIT_REFUSED
            continue
        committed = await admin.group_offsets(name)
        if options["all_topics"]:
            sources = group.source_topics()
            keys = sorted(key for key in committed if key[0] in sources)
        else:
            keys = await partitions_of(admin, options["topics"])
            if any(key not in committed for key in keys):
                click.echo(f"Error: One or more topics are not part of the group '{name}'.", err=True)
                status, keys = EXIT_REFUSED, []
        offsets = await targets(admin, name, keys, committed, options)
        if options["execute"]:
            if offsets:
                await admin.commit_offsets(name, offsets)
            status = await _delete_topics(admin, name, _topics_to_delete(group, options), output) or status
        found += [{"group": name, "topic": t, "partition": p, "new_offset": offset} for (t, p), offset in sorted(offsets.items())]
    if options["export"]:
        echo_csv(found, is_one_group=len(groups) == 1)
    elif output != "table":
        emit(found, output, ["group", "topic", "partition", "new_offset"])
    elif found:
        click.echo("\n" + kafka_table(found, _LEAST | {"group": 30, "topic": 30}))
    return status


def _topics_to_delete(group: StreamsGroupDescription, options: dict[str, Any]) -> list[str]:
    return _internal_topics(group) if options["all_internal"] else list(options["internal_topics"])


def _internal_topics(group: StreamsGroupDescription) -> list[str]:
    """Topics that the group created and whose names show it. Prints an error for each of the others."""
    found = []
    for topic in group.internal_topics():
        if topic.startswith(group.group_id + "-") and _INTERNAL.fullmatch(topic):
            found.append(topic)
        else:
            click.echo(
                f"Error: The internal topic '{topic}' is not inferred as internal and thus will not be deleted with the group "
                f"'{group.group_id}'.",
                err=True,
            )
    return found


async def _delete_topics(admin: Maintenance, group_id: str, topics: list[str], output: str) -> int:
    status = 0
    for topic in topics:
        try:
            await admin.delete_topic(topic)
        except BrokerError as error:
            click.echo(f"Error: Deleting internal topic '{topic}' of group '{group_id}' failed: {error.code.text}", err=True)
            status = EXIT_REFUSED
    return status


async def _delete_offsets(admin: Maintenance, groups: list[str], output: str, options: dict[str, Any]) -> int:
    from minikafka.client.streams_groups import describe_streams_group

    name = groups[0]
    if options["all_topics"]:
        sources = (await describe_streams_group(admin, name)).source_topics()
        keys = sorted(key for key in await admin.group_offsets(name) if key[0] in sources)
    else:
        keys = await partitions_of(admin, options["topics"])
    try:
        outcomes = await admin.delete_offsets(name, keys)
    except BrokerError as error:
        raise ClientError(f"cannot delete the offsets of group {name}: {error.code.text}") from error
    is_good = all(code is ErrorCode.NONE for code in outcomes.values())
    rows = outcome_rows(dict(sorted(outcomes.items())))
    if output != "table":
        emit([{"group": name, **row} for row in rows], output, ["group", "topic", "partition", "status"])
    elif is_good:
        click.echo(f"Request succeeded for deleting offsets from group {name}.")
    else:
        click.echo("Error: Encountered some partition-level error, see the follow-up details.", err=True)
    if output == "table" and rows:
        click.echo("\n" + kafka_table(rows, _LEAST))
    return 0 if is_good else EXIT_REFUSED


# -- delete ------------------------------------------------------------------------------------------------------------


async def _delete(admin: Maintenance, groups: list[str], states: dict[str, str], output: str, *, is_all: bool) -> int:
    from minikafka.client.streams_groups import describe_streams_group

    failed: dict[str, tuple[str, str]] = {}
    for name in groups:
        if name not in states:
            why = f"java.lang.IllegalArgumentException: Group '{name}' does not exist or is not a streams group."
            failed[name] = "GROUP_ID_NOT_FOUND", why
        elif states[name] != "Empty":
            failed[name] = "NON_EMPTY_GROUP", f"{java_exception(ErrorCode.NON_EMPTY_GROUP)}: Streams group '{name}' is not EMPTY."
    requested = [name for name in groups if name not in failed]
    topics = {name: _internal_topics(await describe_streams_group(admin, name)) for name in requested} if is_all else {}
    failed |= await delete_groups(admin, requested)
    status = echo_deletion("streams", groups, failed, output)
    emptied = [name for name, made in topics.items() if made and name not in failed]
    stayed = [name for name in emptied if await _delete_topics(admin, name, topics[name], output)]
    if emptied and not stayed and output == "table":
        shown = "', '".join(emptied)
        click.echo(f"Deletion of associated internal topics of the streams groups ('{shown}') was successful.")
    return status or (EXIT_REFUSED if stayed else 0)


_ACTIONS = {"describe": _describe, "reset": _reset, "delete-offsets": _delete_offsets}
