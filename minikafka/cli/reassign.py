"""`minikafka reassign-partitions`: kafka-reassign-partitions.sh.

Throttles are the properties that Kafka's tool sets (leader.replication.throttled.rate and related ones).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import EXIT_REFUSED, bootstrap_controller_option, emit
from minikafka.cli.reassign_directories import THROTTLE as DIRECTORY_THROTTLE
from minikafka.cli.reassign_directories import Replica, replica_name, start_moves, states_of, wanted_directories
from minikafka.cli.session import named, numbers, operator_command, partitions_from_json, read_json_file, with_admin
from minikafka.client.errors import BrokerError, ClientError
from minikafka.counted import counted
from minikafka.wire.errors import ErrorCode

if TYPE_CHECKING:
    from minikafka.client.maintenance import Maintenance

Partition = tuple[str, int]
TOPIC, BROKER = 2, 4
BROKER_THROTTLES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
TOPIC_THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@operator_command("reassign-partitions")
@bootstrap_controller_option
@click.option("--generate", "action", flag_value="generate", help="Propose a plan for --topics-to-move-json-file over --broker-list.")
@click.option("--execute", "action", flag_value="execute", help="Start the moves in --reassignment-json-file.")
@click.option("--verify", "action", flag_value="verify", help="Check whether the moves are complete, and if so remove the throttles.")
@click.option("--cancel", "action", flag_value="cancel", help="Cancel the moves in --reassignment-json-file.")
@click.option("--list", "action", flag_value="list", help="Show the moves in progress.")
@click.option("--reassignment-json-file", help='{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2,3]}]}')
@click.option("--topics-to-move-json-file", help='{"version":1,"topics":[{"topic":"t"}]}')
@click.option("--broker-list", help="Brokers to place replicas on: 1,2,3.")
@click.option("--throttle", type=int, default=-1, help="Maximum bytes per second between brokers; -1: unlimited.")
@click.option(
    "--replica-alter-log-dirs-throttle",
    type=int,
    default=-1,
    help="Maximum bytes per second between the log directories of a broker; -1: unlimited.",
)
@click.option("--additional", is_flag=True, help="Add to the moves in progress.")
@click.option("--preserve-throttles", is_flag=True, help="Leave the throttles as they are.")
@click.option("--disable-rack-aware", is_flag=True, help="Ignore racks when proposing replicas.")
@click.option("--disallow-replication-factor-change", is_flag=True, help="Reject plans that change the number of replicas.")
@click.option("--timeout", type=int, default=10000, show_default=True, help="Request timeout in milliseconds.")
def reassign_partitions(bootstrap: str, output: str, traceback: bool, **options: Any) -> None:
    """Move replicas between brokers."""
    action = options["action"]
    if action is None:
        raise click.UsageError("specify an action: --generate, --execute, --verify, --cancel or --list")
    needed = {"generate": "topics_to_move_json_file", "list": None}.get(action, "reassignment_json_file")
    if needed and not options[needed]:
        raise click.UsageError(f"--{action} needs --{needed.replace('_', '-')}")
    if action == "generate" and not options["broker_list"]:
        raise click.UsageError("--generate needs --broker-list")
    work = {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}[action]

    async def go(admin: Maintenance) -> int:
        return await work(admin, output, options)

    sys.exit(with_admin(bootstrap, go, traceback=traceback))


# -- plans -------------------------------------------------------------------------------------------------------------


def _plan_of(options: dict[str, Any]) -> dict[Partition, list[int]]:
    path = options["reassignment_json_file"]
    plan: dict[Partition, list[int]] = {}
    for key, replicas in partitions_from_json(path, "--reassignment-json-file", "replicas"):
        if not isinstance(replicas, list) or not replicas or not all(isinstance(node_id, int) for node_id in replicas):
            raise click.BadParameter(f"{path}: {named([key])} needs a list of replicas", param_hint="--reassignment-json-file")
        if len(set(replicas)) != len(replicas):
            raise click.BadParameter(f"{path}: {named([key])} names a broker twice: {replicas}", param_hint="--reassignment-json-file")
        plan[key] = replicas
    return plan


async def _current(admin: Maintenance, topics: Iterable[str]) -> dict[Partition, list[int]]:
    described = await admin.describe_topics(sorted(set(topics)))
    return {(topic.name, p.index): list(p.replicas) for topic in described for p in topic.partitions}


def _as_json(plan: dict[Partition, list[int]], directories: dict[tuple[int, Partition], str] | None = None) -> str:
    rows = []
    for key in sorted(plan):
        places = ["any" if directories is None else directories.get((node_id, key), "any") for node_id in plan[key]]
        rows.append({"topic": key[0], "partition": key[1], "replicas": plan[key], "log_dirs": places})
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))


async def _directories(admin: Maintenance, brokers: Iterable[int]) -> dict[tuple[int, Partition], str]:
    await admin.cluster.refresh([])
    alive = [node_id for node_id in brokers if node_id in admin.cluster.brokers]
    answers = await admin.describe_log_dirs(alive)
    return {
        (node_id, (topic.name, p.partition_index)): result.log_dir
        for node_id, answer in answers.items()
        for result in answer.results
        for topic in result.topics
        for p in topic.partitions
        if not p.is_future_key
    }


def propose(current: dict[Partition, list[int]], brokers: dict[int, str | None], *, rack_aware: bool) -> dict[Partition, list[int]]:
    """Spread each topic's replicas over the brokers in turn, alternating racks. Every topic keeps its replication factor.

    Raises ClientError if there are fewer brokers than replicas."""
    order = _alternating(brokers) if rack_aware else sorted(brokers)
    plan: dict[Partition, list[int]] = {}
    for topic in sorted({key[0] for key in current}):
        keys = sorted(key for key in current if key[0] == topic)
        factor = len(current[keys[0]])
        if factor > len(order):
            raise ClientError(f"topic {topic} has {counted(factor, 'replica')}, --broker-list has {counted(len(order), 'broker')}")
        for number, key in enumerate(keys):
            shift = number // len(order)
            others = [order[(number + 1 + (shift + step) % (len(order) - 1)) % len(order)] for step in range(factor - 1)]
            plan[key] = [order[number % len(order)], *others]
            if rack_aware:
                plan[key] = _spread(plan[key][0], factor, order, brokers, number)
    return plan


def _alternating(brokers: dict[int, str | None]) -> list[int]:
    racks: dict[str, list[int]] = {}
    for node_id in sorted(brokers):
        racks.setdefault(brokers[node_id] or "", []).append(node_id)
    lists = [racks[rack] for rack in sorted(racks)]
    return [row[place] for place in range(max(map(len, lists))) for row in lists if place < len(row)]


def _spread(first: int, factor: int, order: list[int], brokers: dict[int, str | None], number: int) -> list[int]:
    """Replicas on `factor` brokers, in turn from the first one, preferring racks that have no replica yet."""
    start = order.index(first)
    rest = [order[(start + 1 + number // len(order) + step) % len(order)] for step in range(len(order))]
    chosen = [first]
    while len(chosen) < factor:
        used = {brokers[node_id] for node_id in chosen}
        free = [node_id for node_id in dict.fromkeys(rest) if node_id not in chosen]
        chosen.append(next((node_id for node_id in free if brokers[node_id] not in used), free[0]))
    return chosen


# -- actions -----------------------------------------------------------------------------------------------------------


async def _generate(admin: Maintenance, output: str, options: dict[str, Any]) -> int:
    data = read_json_file(options["topics_to_move_json_file"], "--topics-to-move-json-file")
    try:
        topics = [str(row["topic"]) for row in data["topics"]]
    except (KeyError, TypeError) as error:
        raise ClientError(f'{options["topics_to_move_json_file"]} is not {{"topics": [{{"topic": ..}}]}}') from error
    broker_ids = numbers(options["broker_list"], "--broker-list")
    current = await _current(admin, topics)
    unknown = [node_id for node_id in broker_ids if node_id not in admin.cluster.brokers]
    if unknown:
        raise ClientError(f"brokers {', '.join(map(str, unknown))} of --broker-list are not in the cluster")
    racks = {node_id: admin.cluster.brokers[node_id].rack for node_id in broker_ids}
    is_aware = not options["disable_rack_aware"] and all(racks.values())
    plan = propose(current, racks, rack_aware=is_aware)
    directories = await _directories(admin, admin.cluster.brokers)
    if output == "table":
        click.echo(f"Current partition replica assignment\n{_as_json(current, directories)}\n")
        click.echo(f"Proposed partition reassignment configuration\n{_as_json(plan)}")
    else:
        both = {"current": json.loads(_as_json(current, directories)), "proposed": json.loads(_as_json(plan))}
        emit([both], output, ["current", "proposed"])
    return 0


async def _execute(admin: Maintenance, output: str, options: dict[str, Any]) -> int:
    plan = _plan_of(options)
    wanted = wanted_directories(options["reassignment_json_file"], plan)
    current = await _current(admin, {topic for topic, _ in plan})
    missing = sorted(set(plan) - set(current))
    if missing:
        raise ClientError(f"there is no partition {named(missing)}")
    if options["disallow_replication_factor_change"]:
        changed = sorted(key for key in plan if len(plan[key]) != len(current[key]))
        if changed:
            raise ClientError(f"the plan changes the number of replicas of {named(changed)}")
    moving = await admin.list_reassignments()
    if moving and not options["additional"]:
        raise ClientError(
            "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a new"
            " partition assignment in addition to the existing one. The --additional flag can also be used to change the throttle by"
            " resubmitting the current reassignment."
        )
    before = {key: current[key] for key in plan}
    directories = await _directories(admin, admin.cluster.brokers)
    if output == "table":
        click.echo(f"Current partition replica assignment\n\n{_as_json(before, directories)}\n")
        click.echo("Save this to use as the --reassignment-json-file option during rollback")
    if options["throttle"] >= 0:
        await _throttle(admin, plan, before, options["throttle"], output)
    if options["replica_alter_log_dirs_throttle"] >= 0:
        await _throttle_directories(admin, wanted, options["replica_alter_log_dirs_throttle"], output)
    outcomes = await admin.alter_reassignments(dict(plan), options["timeout"])
    bad = {key: outcome for key, outcome in outcomes.items() if not outcome.is_good}
    good = sorted(set(outcomes) - set(bad))
    if output != "table":
        _emit_outcomes(outcomes, output)
    elif good:
        click.echo(f"Successfully started partition reassignment{'s' if len(good) > 1 else ''} for {','.join(f'{t}-{p}' for t, p in good)}")
    for key, outcome in sorted(bad.items()):
        click.echo(f"Error reassigning partition {named([key])}: {outcome.code.name}: {outcome.message}", err=True)
    if wanted and not bad:
        names = ",".join(map(replica_name, await start_moves(admin, wanted, options["timeout"])))
        if output == "table":
            click.echo(f"Successfully started log directory move{'s' if len(wanted) > 1 else ''} for: {names}")
    return EXIT_REFUSED if bad else 0


def _emit_outcomes(outcomes: dict[Any, Any], output: str) -> None:
    rows = [
        {"topic": t, "partition": p, "ok": o.is_good, "error": None if o.is_good else o.code.name, "message": o.message}
        for (t, p), o in sorted(outcomes.items())
    ]
    emit(rows, output, ["topic", "partition", "ok", "error"])


async def _throttle(
    admin: Maintenance, plan: dict[Partition, list[int]], before: dict[Partition, list[int]], rate: int, output: str
) -> None:
    if output == "table":
        click.echo("Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle is removed.")
    for topic in sorted({key[0] for key in plan}):
        leaders = [f"{p}:{n}" for (t, p), replicas in sorted(before.items()) if t == topic for n in replicas]
        followers = [f"{p}:{n}" for (t, p), replicas in sorted(plan.items()) if t == topic for n in replicas if n not in before[(t, p)]]
        values = zip(TOPIC_THROTTLES, (leaders, followers), strict=True)
        await admin.alter_configs(TOPIC, topic, [("set", name, ",".join(rows)) for name, rows in values])
    for node_id in sorted({n for replicas in [*plan.values(), *before.values()] for n in replicas}):
        await admin.alter_configs(BROKER, str(node_id), [("set", name, str(rate)) for name in BROKER_THROTTLES])
    if output == "table":
        click.echo(f"The inter-broker throttle limit was set to {rate} B/s")


async def _throttle_directories(admin: Maintenance, wanted: dict[Replica, str], rate: int, output: str) -> None:
    for node_id in sorted({node_id for node_id, _ in wanted}):
        await admin.alter_configs(BROKER, str(node_id), [("set", DIRECTORY_THROTTLE, str(rate))])
    if output == "table":
        click.echo(f"The replica-alter-dir throttle limit was set to {rate} B/s")


async def _clear_throttles(admin: Maintenance, topics: Iterable[str], output: str) -> None:
    await admin.cluster.refresh([])
    brokers = sorted(admin.cluster.brokers)
    names = sorted(set(topics))
    if output == "table":
        click.echo(f"Clearing broker-level throttles on broker{'s' if len(brokers) > 1 else ''} {','.join(map(str, brokers))}")
    for node_id in brokers:
        await admin.alter_configs(BROKER, str(node_id), [("delete", name, None) for name in (*BROKER_THROTTLES, DIRECTORY_THROTTLE)])
    if output == "table":
        click.echo(f"Clearing topic-level throttles on topic{'s' if len(names) > 1 else ''} {','.join(names)}")
    for name in names:
        await admin.alter_configs(TOPIC, name, [("delete", key, None) for key in TOPIC_THROTTLES])


async def _verify(admin: Maintenance, output: str, options: dict[str, Any]) -> int:
    plan = _plan_of(options)
    moving = await admin.list_reassignments()
    states: dict[Partition, str] = {}
    try:
        current = await _current(admin, {topic for topic, _ in plan})
    except BrokerError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        current = {}
    for key, replicas in sorted(plan.items()):
        if key in moving:
            states[key] = "is still in progress."
        elif key not in current:
            states[key] = "failed: there is no such partition."
        elif current[key] == replicas:
            states[key] = "is completed."
        else:
            found, planned = ",".join(map(str, current[key])), ",".join(map(str, replicas))
            states[key] = f"is completed, but the partition has replicas {found} instead of {planned}."
    moves = await states_of(admin, wanted_directories(options["reassignment_json_file"], plan))
    if output == "table":
        click.echo("Status of partition reassignment:")
        for key, state in states.items():
            click.echo(f"Reassignment of partition {named([key])} {state}")
        for state, _ in moves.values():
            click.echo(state)
        click.echo()
    else:
        rows = [{"topic": t, "partition": p, "broker": None, "state": state} for (t, p), state in states.items()]
        rows += [{"topic": t, "partition": p, "broker": node_id, "state": state} for (node_id, (t, p)), (state, _) in moves.items()]
        emit(rows, output, ["topic", "partition", "broker", "state"])
    is_under_way = any(state.startswith("is still") for state in states.values()) or any(is_going_on for _, is_going_on in moves.values())
    if not is_under_way and not options["preserve_throttles"]:
        await _clear_throttles(admin, {topic for topic, _ in current}, output)
    return EXIT_REFUSED if any(state.startswith("failed") for state in states.values()) else 0


async def _cancel(admin: Maintenance, output: str, options: dict[str, Any]) -> int:
    plan = _plan_of(options)
    moving = await admin.list_reassignments(plan)
    outcomes = await admin.alter_reassignments(dict.fromkeys(moving), options["timeout"]) if moving else {}
    bad = {key: outcome for key, outcome in outcomes.items() if not outcome.is_good}
    if output != "table":
        _emit_outcomes(outcomes, output)
    elif moving:
        good = sorted(set(outcomes) - set(bad))
        click.echo(
            f"Successfully cancelled partition reassignment{'s' if len(good) > 1 else ''} for: {','.join(f'{t}-{p}' for t, p in good)}"
        )
    else:
        click.echo("None of the specified partition reassignments are active.")
    for key, outcome in sorted(bad.items()):
        click.echo(f"Error cancelling the reassignment of {named([key])}: {outcome.code.name}: {outcome.message}", err=True)
    if not bad and not options["preserve_throttles"]:
        await _clear_throttles(admin, {topic for topic, _ in plan}, output)
    return EXIT_REFUSED if bad else 0


async def _list(admin: Maintenance, output: str, options: dict[str, Any]) -> int:
    moving = await admin.list_reassignments()
    if output != "table":
        rows = [
            {"topic": t, "partition": p, "replicas": m.replicas, "adding": m.adding, "removing": m.removing} for (t, p), m in moving.items()
        ]
        emit(rows, output, ["topic", "partition", "replicas", "adding", "removing"])
    elif not moving:
        click.echo("No partition reassignments found.")
    else:
        click.echo("Current partition reassignments:")
        for key, move in sorted(moving.items()):
            parts = [f"replicas: {','.join(map(str, move.replicas))}."]
            if move.adding:
                parts.append(f"adding: {','.join(map(str, move.adding))}.")
            if move.removing:
                parts.append(f"removing: {','.join(map(str, move.removing))}.")
            click.echo(f"{named([key])}: {' '.join(parts)}")
    return 0
