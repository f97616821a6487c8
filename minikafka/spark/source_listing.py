"""What there is to read, now: the bounds of every partition, in log directories and on brokers, without reading records."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from minikafka.spark.claims import agreed_image, read_copy
from minikafka.spark.directories import LogDirectory, SourceError, find_log_directories, open_readable
from minikafka.spark.fetch_client import BrokerError, ClusterState, Connection, Place, first_answer, name_of
from minikafka.spark.findings import FindingList
from minikafka.spark.logformat import parse_partition_name
from minikafka.spark.source_files import Held, epoch_before, log_end, segment_bases, topic_id_of
from minikafka.spark.source_loss import Loss, LossPolicy
from minikafka.spark.source_options import Key, SourceOptions
from minikafka.spark.source_transactions import StableOffsets

PARTITIONS_A_REQUEST = 500
OTHER_REPLICAS = "Give the directories of other replicas too"


@dataclass(slots=True)
class Available:
    """{partition: (log start, end)} and where they are read. `where`: the cluster or the directories, for a person; `topic_ids`: of each
    topic, as far as they are told."""

    bounds: dict[Key, tuple[int, int]]
    where: str = ""
    files: dict[Key, Held] = field(default_factory=dict)
    places: dict[Key, tuple[str, Place]] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)


def available(options: SourceOptions, stable: StableOffsets | None = None) -> Available:
    """What can be read now. `stable`: what earlier looks learned of open transactions. Raises BrokerError, SourceError, DataLossError."""
    return _on_brokers(options) if options.bootstrap else _in_directories(options, stable or StableOffsets())


# ---- brokers -------------------------------------------------------------------------------------------------------------------


def _on_brokers(options: SourceOptions) -> Available:
    attempt = 0
    while True:
        try:
            return _ask(options)
        except BrokerError:
            attempt += 1
            if attempt > options.retries:
                raise
            time.sleep(options.retry_ms / 1000)


def _ask(options: SourceOptions) -> Available:
    names = options.named
    state = first_answer(options.bootstrap, options.security, names)
    chosen = sorted(filter(options.includes, state.partitions))
    found = Available({}, f"on {options.bootstrap}")
    _are_there(names, options, {*state.partitions}, found.where)
    by_leader: dict[int, list[Key]] = {}
    for key in chosen:
        by_leader.setdefault(state.partitions[key].leader, []).append(key)
    for leader, keys in sorted(by_leader.items()):
        if leader not in state.brokers:
            raise BrokerError(f"{keys[0][0]}-{keys[0][1]} has no leader")
        place = Place(*state.brokers[leader], options.security)
        with Connection(place.host, place.port, place.security) as connection:
            for begin in range(0, len(keys), PARTITIONS_A_REQUEST):
                some = keys[begin : begin + PARTITIONS_A_REQUEST]
                for key, bounds in bounds_on(connection, some, options.committed).items():
                    found.bounds[key], found.places[key] = bounds, (str(leader), place)
    found.topic_ids = _topic_ids(options, state, sorted({topic for topic, _ in chosen}))
    return found


def bounds_on(connection: Connection, keys: list[Key], committed: bool) -> dict[Key, tuple[int, int]]:
    """{partition: (log start, high watermark or last stable offset)} as the leader says. Raises BrokerError when it does not."""
    starts, ends = connection.earliest(keys), connection.latest(keys, committed)
    for key in keys:
        for error, offset in (starts.get(key, (0, -1)), ends.get(key, (0, -1))):
            if error or offset < 0:
                raise BrokerError(f"broker {connection.place} does not report the offsets of {key[0]}-{key[1]}: {name_of(error)}")
    return {key: (starts[key][1], max(ends[key][1], starts[key][1])) for key in keys}


def _topic_ids(options: SourceOptions, state: ClusterState, topics: list[str]) -> dict[str, str]:
    """From a broker that knows topic ids (Kafka 2.8 and later); {} else."""
    for host, port in state.brokers.values():
        try:
            with Connection(host, port, options.security) as connection:
                return connection.topic_ids(topics) if topics else {}
        except BrokerError:
            continue
    return {}


def _are_there(names: list[str], options: SourceOptions, found: set[Key], where: str) -> None:
    topics = {topic for topic, _ in found}
    for name in names:
        if name not in topics:
            raise SourceError(f"topic {name} does not exist {where}")
    for topic, number in sorted(set(options.assigned or ()) - found):
        raise SourceError(f"{topic}-{number} does not exist {where}")


# ---- log directories -----------------------------------------------------------------------------------------------------------


def _in_directories(options: SourceOptions, stable: StableOffsets) -> Available:
    directories = _directories(options)
    copies: dict[Key, list[Held]] = {}
    for directory in directories:
        for held in _held(directory, options):
            copies.setdefault((held.topic, held.partition), []).append(held)
    found = Available({}, f"in {', '.join(options.log_dirs)}")
    if options.share == (0, 1):
        _are_there(options.named, options, set(copies), found.where)
    policy = LossPolicy(options.fail_on_data_loss)
    for key, some in copies.items():
        end, best = _best(_of_one_topic(some, directories), policy)
        if best.is_unlisted:
            until = log_end(best.path, best.bases[-1])
            why = "its broker was stopped in order, but its checkpoint of high watermarks leaves the partition out"
            policy.report(Loss(*key, best.log_start, until, why, best.path, OTHER_REPLICAS))
        if options.committed:
            end = stable.last_stable_offset(best, end)
        found.bounds[key], found.files[key] = (min(best.log_start, end), end), best
        if best.topic_id:
            found.topic_ids[key[0]] = best.topic_id
    return found


def _directories(options: SourceOptions) -> list[LogDirectory]:
    try:
        paths = find_log_directories(options.log_dirs)
    except SourceError as error:
        unseen = not options.on_executors and not all(map(os.path.isdir, options.log_dirs))
        raise SourceError(f"{error} (where only executors see it: logDirsOn=executors)" if unseen else str(error)) from error
    return [open_readable(path, path) for path in paths]


def _held(directory: LogDirectory, options: SourceOptions) -> Iterator[Held]:
    for name in sorted(os.listdir(directory.path)):
        key = parse_partition_name(name)
        if key is None or not options.includes(key):
            continue
        path = os.path.join(directory.path, name)
        try:
            bases = segment_bases(path)
        except (FileNotFoundError, NotADirectoryError):  # its topic was deleted meanwhile, or it is no log
            continue
        if bases:
            start = max(bases[0], (directory.log_start or {}).get(key, 0))
            # A partition that the checkpoint leaves out was not yet committed when it was written; without one the log is all there is.
            high_watermark = -1 if directory.high_watermark is None else directory.high_watermark.get(key, bases[0])
            first_epoch = epoch_before(path, start) if directory.clean else -1
            is_unlisted = bool(directory.clean) and directory.high_watermark is not None and key not in directory.high_watermark
            yield Held(
                *key, directory.broker, path, tuple(bases), start, high_watermark, topic_id_of(path), first_epoch,
                is_unlisted and log_end(path, bases[-1]) > start,
            )  # fmt: skip


def _of_one_topic(copies: list[Held], directories: list[LogDirectory]) -> list[Held]:
    """Copies that belong to the topic as it is now: one that was deleted and made again may have left a copy on a broker that was away."""
    ids = {held.topic_id for held in copies} - {""}
    if len(ids) < 2:
        return copies
    metadata = [copy for directory in directories if (copy := read_copy(directory)) is not None]
    image = agreed_image(directories, metadata, FindingList(1))
    current = "" if image is None else image.topic_ids().get(copies[0].topic, "")
    if current not in ids:
        places = ", ".join(f"{held.path} (topic id {held.topic_id})" for held in copies)
        raise SourceError(f"{copies[0].topic}-{copies[0].partition}: copies of different topics with the same name: {places}; give "
                          "one of them")
    return [held for held in copies if held.topic_id == current]


def _best(copies: list[Held], policy: LossPolicy) -> tuple[int, Held]:
    """(end, copy) of the copy that holds most of what it knows to be committed; of several one that has its beginning."""
    ends = [log_end(held.path, held.bases[-1]) for held in copies]
    committed, furthest = max(((held.high_watermark, held) for held in copies), key=lambda pair: pair[0])
    if committed > max(ends):
        why = f"the high watermark of broker {furthest.broker} is {committed}, but the log ends at {max(ends)}"
        remedy = f"The log lost its end, or its topic was just recreated. {OTHER_REPLICAS}"
        policy.report(Loss(furthest.topic, furthest.partition, max(ends), committed, why, furthest.path, remedy))
    return max(
        ((end if held.high_watermark < 0 else min(end, held.high_watermark), held) for end, held in zip(ends, copies, strict=True)),
        key=lambda pair: (pair[0], pair[1].first_epoch < 0),
    )
