"""Log lines for the active controller's decisions: one for each election, change of an in-sync set, fencing and ACL, with the
reason."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from minikafka.core.authorizer.acl import Acl
from minikafka.core.metadata.image import PartitionRegistration
from minikafka.counted import counted
from minikafka.wire.messages.alter_partition import AlterPartitionRequest
from minikafka.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from minikafka.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from minikafka.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from minikafka.wire.messages.broker_registration import BrokerRegistrationRequest
from minikafka.wire.messages.elect_leaders import ElectLeadersRequest
from minikafka.wire.messages.unregister_broker import UnregisterBrokerRequest
from minikafka.wire.records.metadata_records import BrokerRegistrationChangeRecord

if TYPE_CHECKING:
    from minikafka.core.metadata.delta import MetadataDelta

UNCLEAN = 1
BALANCE = "its first replica is back (auto.leader.rebalance.enable)"


def reason_of(request: Any) -> str:
    """The reason for the partition changes of a request, to follow "because"; empty if there is none."""
    if isinstance(request, AlterPartitionRequest):
        return f"leader broker {request.broker_id} requested it"
    if isinstance(request, ElectLeadersRequest):
        return f"{'an unclean' if request.election_type == UNCLEAN else 'a preferred'} election was requested"
    if isinstance(request, AlterPartitionReassignmentsRequest):
        return "a reassignment was requested"
    if isinstance(request, AssignReplicasToDirsRequest):
        return f"broker {request.broker_id} reported the directories of its replicas"
    if isinstance(request, BrokerHeartbeatRequest):
        if request.want_shut_down:
            return f"broker {request.broker_id} shuts down"
        return f"broker {request.broker_id} reports a failed log directory" if request.offline_log_dirs else ""
    if isinstance(request, BrokerRegistrationRequest):
        return f"broker {request.broker_id} has restarted"
    if isinstance(request, UnregisterBrokerRequest):
        return f"broker {request.broker_id} was unregistered"
    return ""


def reason_in_batch(records: Sequence[Any], start: int, step: int, why: str) -> str:
    """The reason for the partition changes in a batch of a decision that takes several. Its broker is fenced in the last one, and back in
    the first."""
    first, last = records[0], records[-1]
    if isinstance(last, BrokerRegistrationChangeRecord) and last.fenced > 0 and start + step < len(records):
        return f"broker {last.broker_id} is fenced"
    if isinstance(first, BrokerRegistrationChangeRecord) and first.fenced < 0 and start > 0:
        return why or f"broker {first.broker_id} is back"
    return why


def _acl_lines(delta: MetadataDelta) -> Iterator[tuple[int, str]]:
    for acl_id, record in delta.changed_acls.items():
        before = delta.base.acls.get(acl_id)
        if before is None and record is not None:
            yield logging.INFO, f"ACL created: {Acl.of_record(record)}"
        elif before is not None and record is None:
            yield logging.INFO, f"ACL removed: {Acl.of_record(before)}"


def change_lines(
    delta: MetadataDelta, why: str, why_fenced: Callable[[int], str] | None, partitions: int
) -> Iterator[tuple[int, str]]:
    """(level, line) of each change. `why_fenced` gives the reason for fencing a broker whose session has ended. `partitions`: how many
    the decision changes, which may be written in several batches."""
    yield from _acl_lines(delta)
    change = counted(partitions, "partition changes", "partitions change")
    for broker_id, broker in delta.changed_brokers.items():
        before = delta.base.brokers.get(broker_id)
        if broker is None:
            yield logging.INFO, f"broker {broker_id} is no longer registered"
        elif before is None or before.epoch != broker.epoch:
            yield logging.INFO, f"broker {broker_id} registered with broker epoch {broker.epoch}"
        elif broker.fenced and not before.fenced:
            reason = why_fenced(broker_id) if why_fenced is not None else why or "it asks to be"
            why = f"broker {broker_id} is fenced"
            yield logging.WARNING, f"broker {broker_id} is fenced, because {reason}; {change}"
        elif before.fenced and not broker.fenced:
            text = f"broker {broker_id} is unfenced, because it has caught up with the metadata; {change}"
            yield logging.INFO, text
            why = why or f"broker {broker_id} is back"
        elif broker.in_controlled_shutdown and not before.in_controlled_shutdown:
            yield logging.INFO, f"broker {broker_id} shuts down; {change}"
    for topic_id, topic in delta.changed_topics.items():
        old_topic = delta.base.topics_by_id.get(topic_id)
        if old_topic is None:
            continue
        for index, now in topic.changed.items():
            old = old_topic.partitions.get(index)
            if old is not None:
                yield from _partition_lines(f"{topic.name}-{index}", old, now, why)


def _partition_lines(name: str, old: PartitionRegistration, now: PartitionRegistration, why: str) -> Iterator[tuple[int, str]]:
    because = f", because {why}" if why else ""
    in_sync = f"in sync {', '.join(map(str, now.isr)) or 'nobody'}"
    if now.leader != old.leader:
        if now.leader < 0:
            yield logging.WARNING, f"{name}: in epoch {now.leader_epoch} there is no leader after broker {old.leader}, {in_sync}{because}"
        elif now.elected_unclean_after(old):
            text = f"broker {now.leader} leads, elected uncleanly: records may be lost"
            yield logging.WARNING, f"{name}: in epoch {now.leader_epoch} {text}; {in_sync}{because}"
        else:
            after = f"after broker {old.leader}" if old.leader >= 0 else "after there was no leader"
            yield logging.INFO, f"{name}: in epoch {now.leader_epoch} broker {now.leader} leads {after}, {in_sync}{because}"
    elif set(now.isr) != set(old.isr):
        gone, come = sorted(set(old.isr) - set(now.isr)), sorted(set(now.isr) - set(old.isr))
        parts = [f"without {', '.join(map(str, gone))}"] if gone else []
        parts += [f"with {', '.join(map(str, come))} again"] if come else []
        yield logging.INFO, f"{name}: in epoch {now.leader_epoch} {in_sync}, {' and '.join(parts)}{because}"
