"""The sticky assignor compared with Apache Kafka's, and invariants of its assignments for any history."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.streams_cases import LIVES, Case, Life, listed, spec_of

from minikafka.core.group.streams.model import GroupSpec, TasksTuple
from minikafka.core.group.streams.sticky_assignor import assign_sticky
from minikafka.steps import at_once

GOLDEN = Path(__file__).parents[3] / "golden" / "streams" / "cases.jsonl"


def test_tasks_are_where_apache_kafka_puts_them() -> None:
    asked = [case for line in GOLDEN.read_text().splitlines() if "members" in (case := json.loads(line))]
    assert len(asked) == LIVES * 5
    for case in asked:
        assigned = at_once(assign_sticky(*spec_of(case)))
        assert {name: listed(tasks) for name, tasks in assigned.items()} == case["result"], case


@pytest.mark.parametrize("seed", range(1000, 1030))
def test_every_task_is_assigned_and_the_load_is_balanced(seed: int) -> None:
    life = Life(seed)
    for _ in range(5):
        case = life.step()
        spec, topology = spec_of(case)
        assigned = at_once(assign_sticky(spec, topology))
        _check(case, spec, assigned)


def _check(case: Case, spec: GroupSpec, assigned: dict[str, TasksTuple]) -> None:
    tasks = [(name, place) for name, (count, _) in case["subtopologies"].items() for place in range(count)]
    active = [task for given in assigned.values() for task in _all(given, "active")]
    assert sorted(active) == sorted(tasks)
    assert all(not given.warmup for given in assigned.values())
    quota = -(-len(tasks) // len(spec.members))
    held: dict[tuple[str, int], list[str]] = {}
    for member_id, given in assigned.items():
        for task in [*_all(given, "active"), *_all(given, "standby")]:
            held.setdefault(task, []).append(spec.members[member_id].process_id)
        kept = [task for task in _all(given, "active") if task in _had(case, member_id)]
        assert len(kept) <= quota
    processes = {member.process_id for member in spec.members.values()}
    for task, holders in held.items():
        wanted = 1 + (case["standbys"] if case["subtopologies"][task[0]][1] else 0)
        assert len(holders) == len(set(holders)) == min(wanted, len(processes)), task
    if not any(member.tasks or member.task_offsets for member in spec.members.values()) and not case["standbys"]:
        had = dict.fromkeys(processes, 0)
        room = dict.fromkeys(processes, 0)
        for member_id, member in spec.members.items():
            had[member.process_id] += len(_all(assigned[member_id], "active"))
            room[member.process_id] += 1
        # Moving a task from one process to another would make nothing more even.
        assert all((had[one] - 1) / room[one] <= had[other] / room[other] for one in processes for other in processes if had[one])


def _had(case: Case, member_id: str) -> set[tuple[str, int]]:
    return {(name, place) for name, places in case["members"][member_id].get("active", {}).items() for place in places}


def _all(tasks: TasksTuple, role: str) -> list[tuple[str, int]]:
    return [(name, place) for name, places in getattr(tasks, role).items() for place in places]


@pytest.mark.parametrize("seed", range(2000, 2010))
def test_when_nothing_changes_no_active_task_moves(seed: int) -> None:
    life = Life(seed)
    life.case["standbys"] = 0
    case = life.step()
    spec, topology = spec_of(case)
    assigned = at_once(assign_sticky(spec, topology))
    for member_id, (active, standby) in life.case["assigned"].items():
        case["members"][member_id] |= {"active": active, "standby": standby}
    again = at_once(assign_sticky(*spec_of(case)))
    quota = -(-sum(count for count, _ in case["subtopologies"].values()) // len(assigned))
    moved = [member_id for member_id in assigned if assigned[member_id] != again[member_id]]
    # Members of a small process may have more than their part of all tasks, and give that up.
    assert not moved or any(len(_all(given, "active")) > quota for given in assigned.values())


def test_without_members_nothing_is_assigned() -> None:
    spec, topology = spec_of({"standbys": 1, "subtopologies": {"0": [3, True]}, "members": {}})
    assert at_once(assign_sticky(spec, topology)) == {}


def test_a_large_group_is_assigned_in_steps() -> None:
    members = {f"m{number}": {"process": f"p{number % 40}"} for number in range(200)}
    spec, topology = spec_of({"standbys": 1, "subtopologies": {"0": [4000, True]}, "members": members})
    steps = sum(1 for _ in assign_sticky(spec, topology))
    assert steps >= 8
