"""Mutations that break bounds: on memory, on work in a turn, on descriptors, on names that peers send."""

from __future__ import annotations

from typing import Any

from minikafka.steps import at_once


def _returns(value: Any) -> Any:
    return lambda original: lambda *arguments, **options: value


def _without_bound(original: Any) -> Any:
    def windows(codec: Any, data: Any, size_max: int, *blocks_max: int) -> Any:
        return original(codec, data, 1 << 40, *blocks_max)

    return windows


def _zstd_at_once(original: Any) -> Any:
    return lambda data, blocks_max: iter([b"".join(original(data, blocks_max))])


def _in_any_number_of_blocks(original: Any) -> Any:
    return lambda codec, data, size_max, blocks_max=0: original(codec, data, size_max)


def _of_any_size(original: Any) -> Any:
    return lambda view, size_max, blocks_max: original(view, 1 << 40, blocks_max)


def _never_over(original: Any) -> Any:
    return lambda shares: lambda: False


def _look_at_all(original: Any) -> Any:
    def go_on(self: Any, wall_ms: int, shares: Any) -> None:
        while self._left:
            original(self, wall_ms, shares)
        self.is_used_up = False

    return go_on


def _never_paid_back(original: Any) -> Any:
    def charge(self: Any, amount: int) -> None:
        original(self, max(amount, 0))

    return charge


def _at_once(original: Any) -> Any:
    async def passed(*arguments: Any) -> int:
        return 1000

    return passed


def _all_pass(original: Any) -> Any:
    return lambda self, reader, used=0: True


def _in_front(original: Any) -> Any:
    return lambda self, serve: self._waiting.appendleft(serve)


def _as_if_answered(original: Any) -> Any:
    return lambda self, reader, *, is_answered: original(self, reader, is_answered=True)


def _unbounded_client_id(original: Any) -> Any:
    def keep(self: Any, raw: bytes) -> str:
        found = self._client_ids[raw] = raw.decode("utf-8", "replace")
        return found

    return keep


def _unbounded_software(original: Any) -> Any:
    def note(self: Any, context: Any, name: str, version: str) -> None:
        self.software[context.connection] = (context.listener, name, version)

    return note


def _of_no_request(original: Any) -> Any:
    return lambda self, whole: original(self, None)


def _turns_at_once(original: Any) -> Any:
    class Turns(original):  # type: ignore[misc]
        async def next(self) -> None:
            return

    return Turns


def _tried_at_once(original: Any) -> Any:
    def failed(self: Any, error: OSError) -> None:
        self.failed_accepts_total += 1

    return failed


def _raised(original: Any) -> Any:
    def resize(self: Any, capacity: int) -> None:
        was_closed = self.closed
        original(self, capacity)
        if self.closed and not was_closed:
            raise MemoryError

    return resize


def _each_line(original: Any) -> Any:
    def log(self: Any, level: int, kind: str, peer: str, text: str, *arguments: object, error: Any = None) -> None:
        self._logger.log(level, text, *arguments)

    return log


def _in_one_step(original: Any) -> Any:
    def steps(*arguments: Any, **options: Any) -> Any:
        running = original(*arguments, **options)
        while True:
            try:
                next(running)
            except StopIteration as over:
                return over.value
        yield

    return steps


def _blocking_steps(original: Any) -> Any:
    def following(self: Any, led: Any, step: Any, steps: Any) -> Any:
        for one in (step, *steps):
            if one is not None:
                one()
        led.is_following = False
        yield

    return following


def _without_most(original: Any) -> Any:
    return lambda segments, watermarks, is_deletable, most: original(segments, watermarks, is_deletable, len(segments))


def _release_at_once(original: Any) -> Any:
    def release(self: Any, sessions: Any) -> None:
        for _ in self._releasing(sessions):
            pass

    return release


def _unpaced(original: Any) -> Any:
    return lambda items, *_: ((item, False) for item in items)


def _of_one_client(real: Any) -> Any:
    return lambda turns, client, event: real(turns, None, event)


def _carried_out_at_once(original: Any) -> Any:
    def add(self: Any, event: Any) -> None:
        at_once(event.steps())

    return add


def _published_part(original: Any) -> Any:
    def on_part(self: Any, records: Any) -> None:
        original(self, records)
        self._offset = max(self._offset, records[-1][0])
        self._publish(1)

    return on_part


def _without_shares(original: Any) -> Any:
    def on_deadline(self: Any, now_ms: int) -> None:
        self._begin_share = None
        original(self, now_ms)

    return on_deadline


LOOKS = ("tests/storage/test_looks.py",)
PRODUCE = ("tests/broker/test_produce_turns.py",)
CODECS = ("tests/wire/test_compression.py",)
NET = ("tests/net/test_bounds.py",)
TURNS_OF_CONNECTIONS = ("tests/net/test_serving_turns.py",)
NAMES = ("tests/broker/test_names_of_peers.py",)
FETCH_PATH = ("tests/broker/test_fetch_fast_path.py",)
KEPT = ("tests/broker/test_kept_requests.py",)
BOMBS = ("tests/broker/test_bombs.py",)
QUORUM = ("tests/core/raft/test_quorum.py",)
STREAMS = ("tests/core/group/streams/test_bounds.py",)
RUNTIME = ("tests/broker/test_coordinator_runtime.py",)
LOG_DIR = ("tests/storage/test_log_dir.py",)
SHARE = ("tests/broker/test_share_turns.py",)
COORDINATORS = ("tests/broker/test_coordinator_turns.py",)
FORWARDED = ("tests/broker/test_forwarded_turns.py",)
CLEANER = ("tests/storage/test_cleaner.py",)
CONTROLLER = ("tests/broker/test_controller_turns.py",)
COUNTED = ("tests/broker/test_counted_flushes.py",)
WAITING = ("tests/broker/test_waiting_turns.py",)
DELIVERY = ("tests/broker/test_delivery_turns.py",)
FETCHES = ("tests/broker/test_long_fetches.py",)
COLD = ("tests/broker/test_cold_reads.py", "tests/broker/test_cold_fetches.py", "tests/storage/test_cold_reads.py")
STEPS = (("step_s", 0.02), ("transactors", 2))
CONNECTION = "minikafka.net.connection:SocketConnection"
BOUNDS_MUTATIONS: list[dict[str, Any]] = [
    {"name": "bomb-without-bound", "breaks": "decompression goes on beyond the caller's bound", "tests": CODECS,
     "patches": (("minikafka.wire.compression:decompressed_windows", _without_bound),)},
    {"name": "bomb-at-once", "breaks": "decompression produces everything at once, whatever its caller still asks for", "tests": CODECS,
     "patches": (("minikafka.wire.compression:_zstd_windows", _zstd_at_once),)},
    {"name": "heavy-on-the-loop", "breaks": "a batch that takes long is prepared on the event loop", "tests": BOMBS,
     "patches": (("minikafka.storage.log_append:LogAppender.is_heavy", _returns(False)),)},
    {"name": "look-at-all-blocks", "breaks": "a look at a stream steps over any number of blocks", "tests": LOOKS,
     "patches": (("minikafka.wire.compression:decompressed_windows", _in_any_number_of_blocks),)},
    {"name": "look-at-all-pieces", "breaks": "a look decompresses any number of pieces", "tests": LOOKS,
     "patches": (("minikafka.wire.compression:PIECES_MAX", lambda original: 1 << 40),)},
    {"name": "look-at-long-streams", "breaks": "a look decompresses a stream that is long for what it may hold", "tests": LOOKS,
     "patches": (("minikafka.wire.compression:_LOOK_BYTES", lambda original: 1 << 40),)},
    {"name": "names-byte-by-byte", "breaks": "the end of a name in a gzip header is searched byte by byte", "tests": LOOKS,
     "patches": (("minikafka.wire.compression:NAME_PIECE_BYTES", lambda original: 1),)},
    {"name": "raw-snappy-of-any-size", "breaks": "an append decompresses raw snappy of any size",
     "tests": ("tests/storage/test_compressed_batches.py",),
     "patches": (("minikafka.wire.compression:_is_whole_snappy", _of_any_size),)},
    {"name": "produce-looks-in-one-step", "breaks": "a produce looks at all its batches in one turn", "tests": PRODUCE,
     "patches": (("minikafka.broker.partitions.produce_preparation:Look.go_on", _look_at_all),)},
    {"name": "shares-without-end", "breaks": "the fast path of produce does in one turn what does not fit into it",
     "tests": (f"{PRODUCE[0]}::test_the_fast_path_appends_for_a_share_and_the_ordinary_one_goes_on",),
     "patches": (("minikafka.net.turn_share:TurnShares.begin", _never_over),)},
    {"name": "look-up-on-the-loop", "breaks": "a lookup by time that takes long runs on the event loop", "tests": BOMBS,
     "patches": (("minikafka.storage.timestamp_lookup:TimestampCandidate.is_heavy", _returns(False)),)},
    {"name": "no-order-beside-the-loop", "breaks": "a connection's requests overtake the one that is being prepared", "tests": BOMBS,
     "patches": ((f"{CONNECTION}.hold", _returns(None)), (f"{CONNECTION}.go_on", _returns(None)))},
    {"name": "memory-for-all", "breaks": "connections are read although the memory for requests is used up", "tests": NET,
     "patches": (("minikafka.net.memory_budget:MemoryBudget.admits", _all_pass),)},
    {"name": "templates-without-bound", "breaks": "a connection can teach the fast paths any number of templates", "tests": FETCH_PATH,
     "patches": (("minikafka.broker.partitions.fast_path:TemplateFastPath._keep", _returns(None)),)},
    {"name": "kept-requests-uncounted", "breaks": "produce requests that are kept do not count for the memory budget", "tests": KEPT,
     "patches": (("minikafka.broker.front.dispatch:RequestContext.keep", _returns(None)),)},
    {"name": "waiting-fetches-uncounted", "breaks": "what a fetch keeps while it waits does not count for the memory budget", "tests": KEPT,
     "patches": (("minikafka.broker.partitions.fetch_operation:READ_BYTES", lambda original: 0),)},
    {"name": "prepared-without-bound", "breaks": "any number of prepared batches wait to be appended", "tests": KEPT,
     "patches": (("minikafka.broker.partitions.prepared_memory:PreparedMemory._has_room", _returns(True)),)},
    {"name": "memory-never-free", "breaks": "the memory of answered requests is never freed", "tests": NET,
     "patches": (("minikafka.net.memory_budget:MemoryBudget.charge", _never_paid_back),)},
    {"name": "read-without-end", "breaks": "reading goes on however many responses wait", "tests": NET,
     "patches": ((f"{CONNECTION}._is_full", _returns(False)),)},
    {"name": "turn-without-end", "breaks": "a connection with much to do gives the others no turn", "tests": NET,
     "patches": (("minikafka.net.connection:FRAMES_BETWEEN_CLOCK_READS", lambda original: 10**9),)},
    {"name": "connections-fill-a-turn", "breaks": "all connections together keep the loop for as long as they have work",
     "tests": TURNS_OF_CONNECTIONS, "patches": (("minikafka.net.turn_share:SERVING_S", lambda original: 1e9),)},
    {"name": "last-connection-first", "breaks": "the connection that has waited longest for a turn of the loop is served last",
     "tests": TURNS_OF_CONNECTIONS, "patches": (("minikafka.net.turn_share:ServingTurns.wait", _in_front),)},
    {"name": "patience-without-end", "breaks": "a client that does not finish a request stays connected", "tests": NET,
     "patches": ((f"{CONNECTION}.is_stuck", _returns("")),)},
    {"name": "large-requests-pile-up", "breaks": "without memory, several large requests are received and served at a time", "tests": NET,
     "patches": (("minikafka.net.memory_budget:MemoryBudget.received", _as_if_answered),)},
    {"name": "no-memory-ends-the-node", "breaks": "a request that finds no memory ends more than its connection", "tests": NET,
     "patches": ((f"{CONNECTION}._resize", _raised),)},
    {"name": "accept-spins", "breaks": "accepting goes on without a pause when descriptors run out", "tests": NET,
     "patches": (("minikafka.net.server:SocketListener._could_not_accept", _tried_at_once),)},
    {"name": "lines-without-end", "breaks": "a peer can cause any number of log lines", "tests": NET,
     "patches": (("minikafka.net.peer_lines:PeerLines.log", _each_line),)},
    {"name": "long-client-ids", "breaks": "client ids of any length and number are kept", "tests": NAMES,
     "patches": (("minikafka.broker.front.dispatch:Dispatcher._keep_client_id", _unbounded_client_id),)},
    {"name": "software-as-told", "breaks": "client software of any length and number is told apart", "tests": NAMES,
     "patches": (("minikafka.broker.front.dispatch:Dispatcher._note_software", _unbounded_software),)},
    {"name": "sessions-without-end", "breaks": "fetch sessions hold any number of partitions", "tests": NAMES,
     "patches": (("minikafka.core.fetch_session:FetchSessionCache._has_room", _returns(True)),)},
    {"name": "observers-without-end", "breaks": "the quorum's leader tracks any number of replicas", "tests": QUORUM,
     "patches": (("minikafka.core.raft.progress:Progress.limit_observers", _returns(None)),)},
    {"name": "topology-in-one-step", "breaks": "a large topology is configured in one step", "tests": STREAMS,
     "patches": (("minikafka.core.group.streams.heartbeat:configure_steps", _in_one_step),)},
    {"name": "topology-unprepared", "breaks": "a large topology is configured while its heartbeat's plan is made", "tests": STREAMS,
     "patches": (("minikafka.core.group.streams.heartbeat:HeartbeatPlanner.preparing", _returns(None)),)},
    {"name": "topology-unbounded", "breaks": "a topology may have any number of entries", "tests": STREAMS,
     "patches": (("minikafka.core.group.streams.checks:check_size", _returns(None)),)},
    {"name": "client-texts-unbounded", "breaks": "a client's tags, rack and process id may have any length", "tests": STREAMS,
     "patches": (("minikafka.core.group.streams.checks:_check_client", _returns(None)),)},
    {"name": "offsets-in-one-step", "breaks": "offsets that members report are examined in one step", "tests": STREAMS,
     "patches": (("minikafka.core.group.streams.sticky_assignor:_Assignment._look_back", _in_one_step),)},
    {"name": "followed-on-the-loop", "breaks": "what others write is unpacked on the event loop, and replayed in one step",
     "tests": RUNTIME,
     "patches": (("minikafka.broker.coordinators.runtime:CoordinatorRuntime._following", _blocking_steps),)},
    {"name": "retention-in-one-step", "breaks": "retention removes any number of segments in one step", "tests": LOG_DIR,
     "patches": (("minikafka.storage.retention:deletable_segments", _without_most),)},
    {"name": "old-name-forgotten", "breaks": "a moved log counts as durable before the name of the one before is durably gone",
     "tests": LOG_DIR, "patches": (("minikafka.storage.durability:Durability.supersedes", _returns(None)),)},
    {"name": "copy-not-relocated", "breaks": "a moved log looks for its files under the old name", "tests": LOG_DIR,
     "patches": (("minikafka.storage.log_segments:LogSegments.relocate", _returns(None)),)},
    {"name": "all-segments-pinned", "breaks": "the cleaner opens any number of segments at a time", "tests": CLEANER,
     "patches": (("minikafka.storage.cleaner:PINNED_MAX", lambda original: 1 << 30),)},
    {"name": "groups-deleted-at-once", "breaks": "groups of many offsets are deleted in one step",
     "tests": ("tests/core/group/test_shard.py",),
     "patches": (("minikafka.core.group.offsets:OffsetStore.has_few", _returns(True)),)},
    {"name": "share-sessions-end-at-once", "breaks": "what members of expired sessions hold is released in one step", "tests": SHARE,
     "patches": (("minikafka.broker.share.leader:ShareLeader.release", _release_at_once),)},
    {"name": "share-fetch-in-one-step", "breaks": "a fetch of very many share partitions takes one step", "tests": SHARE,
     "patches": (("minikafka.broker.share.fetch_operation:Pace.is_over", _returns(False)),)},
    {"name": "decision-in-one-step", "breaks": "the controller decides on very many partitions in one step", "tests": CONTROLLER,
     "patches": (("minikafka.core.controller.partitions:paced", _unpaced),)},
    {"name": "replay-in-one-step", "breaks": "the controller replays a large batch in one step", "tests": CONTROLLER,
     "patches": (("minikafka.core.controller.state:paced", _unpaced),)},
    {"name": "events-side-by-side", "breaks": "events of the controller are carried out side by side", "tests": CONTROLLER,
     "patches": (("minikafka.broker.quorum.controller_events:ControllerEvents.add", _carried_out_at_once),)},
    {"name": "first-come-first-served", "breaks": "clients of the controller do not take turns", "tests": CONTROLLER,
     "patches": (("minikafka.broker.quorum.controller_events:_Turns.add", _of_one_client),)},
    {"name": "waiting-requests-end-at-once", "breaks": "requests that wait for the controller and time out together end in one turn",
     "tests": FORWARDED, "patches": (("minikafka.broker.front.client_turns:EXPIRED_IN_A_TURN", lambda original: 1 << 30),)},
    {"name": "forwarded-requests-fail-at-once", "breaks": "forwarded requests that fail together are answered in one turn",
     "tests": FORWARDED, "patches": (("minikafka.broker.front.forwarding:Turns", _turns_at_once),)},
    {"name": "long-before-short", "breaks": "a short forwarded request waits behind long ones", "tests": FORWARDED,
     "patches": (("minikafka.broker.front.forwarding:LONG_REQUEST_BYTES", lambda original: 1 << 30),)},
    {"name": "short-overtakes-long", "breaks": "short forwarded requests overtake long ones of their connection", "tests": FORWARDED,
     "patches": (("minikafka.broker.front.connection_order:_left_of", _at_once),)},
    {"name": "parts-without-a-place", "breaks": "a request in parts loses its place among those of its client", "tests": FORWARDED,
     "patches": (("minikafka.broker.front.client_turns:ClientTurns._arrival", _of_no_request),)},
    {"name": "first-of-all-that-wait", "breaks": "a turn at the controller costs more the more requests of a client wait",
     "tests": FORWARDED,
     "patches": (("minikafka.broker.front.client_turns:_Client.first", lambda original: lambda self: min(self.waiting)),)},
    {"name": "producer-ids-together", "breaks": "all that wait for producer ids go on in one turn",
     "tests": ("tests/broker/test_producer_ids.py",),
     "patches": (("minikafka.broker.coordinators.producer_ids:WOKEN_IN_A_TURN", lambda original: 1 << 30),)},
    {"name": "controller-full-of-clients", "breaks": "any number of client requests are at the controller", "tests": FORWARDED,
     "patches": (("minikafka.broker.front.client_turns:FORWARDED_AT_ONCE_OF_ALL", lambda original: 1 << 30),)},
    {"name": "delivery-in-one-step", "breaks": "a large batch of the metadata log is delivered in one step", "tests": DELIVERY,
     "patches": (("minikafka.broker.quorum.raft_delivery:paced", _unpaced),)},
    {"name": "snapshot-in-one-step", "breaks": "a large snapshot of the metadata is read in one step", "tests": DELIVERY,
     "patches": (("minikafka.broker.quorum.snapshots:paced", _unpaced),)},
    {"name": "transaction-in-one-step", "breaks": "a metadata transaction of very many records is replayed in one step at its end",
     "tests": DELIVERY,
     "patches": (("minikafka.broker.quorum.metadata_log:MetadataHost._is_long", lambda original: lambda self: False),)},
    {"name": "batch-in-parts", "breaks": "a large batch of the metadata log is published in parts", "tests": DELIVERY,
     "patches": (("minikafka.broker.quorum.metadata_log:MetadataHost.on_part", _published_part),)},
    {"name": "fetch-looks-at-all", "breaks": "a fetch of very many partitions looks at all of them when one changes", "tests": FETCHES,
     "patches": (("minikafka.broker.partitions.fetch_operation:FetchOperation.is_due_by", _returns(None)),)},
    {"name": "answers-not-kept", "breaks": "what a follower appends in a later turn of the loop may have changed since it was received",
     "options": STEPS,
     "patches": (("minikafka.broker.partitions.fetcher:Fetcher._keep_records", _returns(None)),)},
    {"name": "answers-not-finished", "breaks": "a follower drops the rest of an answer that did not fit into a turn", "options": STEPS,
     "patches": (("minikafka.broker.partitions.fetcher:Fetcher._take_more", _returns(None)),)},
    {"name": "markers-not-finished", "breaks": "markers that did not fit into a turn are not written", "options": STEPS,
     "patches": (("minikafka.broker.coordinators.transaction_markers:MarkerWriter._next_turn", _returns(None)),)},
    {"name": "coordinators-not-finished", "breaks": "a coordinator drops what did not fit into a turn", "tests": COORDINATORS,
     "patches": (("minikafka.broker.coordinators.runtime:CoordinatorRuntime._next_turn", _returns(None)),)},
    {"name": "markers-in-one-step", "breaks": "the markers of a transaction of many partitions are sent in one step", "tests": COORDINATORS,
     "patches": (("minikafka.core.transaction.effects:Markers.parts", lambda original: lambda markers: iter([markers])),)},
    {"name": "large-values-in-one-step", "breaks": "a coordinator that loads replays any number of bytes in a step",
     "tests": COORDINATORS, "patches": (("minikafka.broker.coordinators.loader:STEP_VALUE_BYTES", lambda original: 1 << 40),)},
    {"name": "proposals-together", "breaks": "very many proposals of in-sync sets go in several requests",
     "tests": ("tests/broker/test_alter_partition.py",),
     "patches": (("minikafka.broker.partitions.alter_partition:PROPOSALS_AT_ONCE", lambda original: 1 << 30),)},
    {"name": "time-outs-end-at-once", "breaks": "very many requests that time out together end in one turn", "tests": WAITING,
     "patches": (("minikafka.core.purgatory:Purgatory.on_deadline", _without_shares),)},
    {"name": "unsynced-records-count", "breaks": "the high watermark does not wait for the leader's syncs (flush.messages)",
     "tests": COUNTED,
     "patches": (("minikafka.core.partition.leader:PartitionLeader.hold", _returns(None)),)},
    {"name": "unsynced-records-answered", "breaks": "a produce with acks=1 is answered before its sync (flush.messages)", "tests": COUNTED,
     "patches": (("minikafka.storage.log:Log.counted_end", lambda original: property(lambda self: 1 << 62)),)},
    {"name": "unsynced-records-fetched", "breaks": "a follower's next fetch does not wait for its sync (flush.messages)",
     "tests": ("tests/broker/test_rolls_beside.py",),
     "patches": (("minikafka.broker.partitions.fetcher:Fetcher._sync_counted", _returns(None)),)},
    {"name": "counted-once", "breaks": "records that come during a sync are not synced by the next (flush.messages)", "tests": COUNTED,
     "patches": (("minikafka.broker.partitions.partition:Partition.count_synced", _returns(None)),)},
    {"name": "flush-ms-unread", "breaks": "logs are synced as flush.ms says", "tests": ("tests/broker/test_timed_flushes.py",),
     "patches": (("minikafka.broker.partitions.log_upkeep:LogUpkeep._look_for_overdue", _returns(None)),)},
    {"name": "flush-ms-of-records-below", "breaks": "a part of a log that is synced does not count as the whole (flush.ms)",
     "tests": ("tests/broker/test_timed_flushes.py",),
     "patches": (("minikafka.storage.durability:Durability.should_sync_ahead", lambda original: property(lambda self: False)),)},
    {"name": "shutdown-by-the-clock", "breaks": "a broker that stops waits as long as its leaderships move",
     "tests": ("tests/core/test_broker_lifecycle.py",),
     "patches": (("minikafka.core.broker_lifecycle:_Shutdown.moved", _returns(None)),)},
    {"name": "all-join-together", "breaks": "of very many partitions, a follower names some in a fetch",
     "tests": ("tests/core/partition/test_follower.py",),
     "patches": (("minikafka.core.partition.follower:JOINING_MAX", lambda original: 1 << 30),)},
    {"name": "cold-reads-on-the-loop", "breaks": "look-ups read what is not in memory on the event loop", "tests": COLD,
     "patches": (("minikafka.storage.cold_reads:Look.__enter__", _returns(None)),)},
    {"name": "cold-inodes-on-the-loop", "breaks": "look-ups open files that are not in memory on the event loop", "tests": COLD,
     "patches": (("minikafka.storage.cold_reads:before_opening", _returns(None)),)},
    {"name": "cold-records-sent", "breaks": "records that are not in memory are read by sendfile, on the event loop", "tests": COLD,
     "patches": (("minikafka.storage.types:ReadResult.is_cold", lambda original: lambda self: False),)},
    {"name": "scans-on-the-loop", "breaks": "a search by timestamp scans any part of a segment on the event loop", "tests": COLD,
     "patches": (("minikafka.storage.timestamp_lookup:SCANNED_AT_ONCE_BYTES", lambda original: 1 << 40),)},
    {"name": "replicas-not-finished", "breaks": "replicas that could not be made in one turn are never made", "options": STEPS,
     "patches": (("minikafka.broker.partitions.replica_manager:ReplicaManager._place_late_soon", _returns(None)),)},
]  # fmt: skip
