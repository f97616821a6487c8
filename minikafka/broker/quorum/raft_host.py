"""Hosts the metadata quorum on every node, as voter (controller) or observer (broker)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from minikafka.broker.quorum import raft_wire
from minikafka.broker.quorum.metadata_batch import MetadataBatch, batches_of
from minikafka.broker.quorum.quorum_settings import quorum_config, static_voters
from minikafka.broker.quorum.raft_delivery import SHORTAGE_RETRY_S, Delivery, RaftListener, SnapshotId
from minikafka.broker.quorum.raft_figures import RaftFigures
from minikafka.broker.quorum.raft_log import CorruptMetadata, MetadataLog, SyncTask
from minikafka.broker.quorum.raft_peers import RaftPeers
from minikafka.broker.quorum.raft_snapshots import SnapshotInstalling, SnapshotWriting
from minikafka.broker.quorum.raft_truncation import LogTruncating
from minikafka.core.raft import events as ev
from minikafka.core.raft import messages as m
from minikafka.core.raft.quorum import Quorum
from minikafka.core.raft.roles import Resigned
from minikafka.core.raft.types import NO_NODE, Endpoint, InvariantViolated, OffsetAndEpoch, ReplicaKey
from minikafka.net.tasks import within
from minikafka.steps import at_once
from minikafka.storage.errors import ResourceShortage, StorageError
from minikafka.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from minikafka.broker.config.broker_config import BrokerConfig
    from minikafka.broker.environment import Environment
    from minikafka.broker.quorum.snapshots import SnapshotContent
    from minikafka.net.channel import ChannelSecurity
    from minikafka.storage.log_dir import LogDirectory

logger = logging.getLogger("minikafka.raft")

__all__ = ["NotLeader", "RaftHost", "RaftListener", "SnapshotId"]


class NotLeader(ApiError):
    """This node does not lead the quorum, or no longer; its error code is NOT_LEADER_OR_FOLLOWER."""

    def __init__(self, message: str = "this node is not the leader of the metadata quorum") -> None:
        super().__init__(ErrorCode.NOT_LEADER_OR_FOLLOWER, message)


class RaftHost:
    """One node's part in `__cluster_metadata`.

    Attributes to read: node_id, leader_id (None if unknown), leader_epoch, is_leader, high_watermark (exclusive, 0 if unknown),
    log_end_offset, log_start_offset, kraft_version (0 static voters, 1 KIP-853), failure (why this node had to stop, else None).
    """

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        environment: Environment,
        log_directory: LogDirectory,
        *,
        cluster_id: str,
        is_controller: bool,
        listeners: Sequence[tuple[str, str, int]] = (),
        on_failure: Callable[[BaseException], None] | None = None,
        security: ChannelSecurity | None = None,
    ) -> None:
        """`log_directory` is the opened metadata log directory. `listeners`: this controller's advertised endpoints
        (listener name, host, port) with the actual ports; `set_listeners` may set them before `start`. `on_failure` is called when the
        disk failed or an invariant broke, and the process must stop. `security` secures connections to other controllers."""
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.is_controller = is_controller
        self.failure: BaseException | None = None
        self._config = config
        self._environment = environment
        self._clock = environment.clock
        self._loop = environment.loop
        self._log_directory = log_directory
        self._endpoints = tuple(Endpoint(*listener) for listener in listeners)
        self._on_failure = on_failure
        self._log = MetadataLog(log_directory, config, environment.clock.wall_ms)
        self._quorum: Quorum | None = None
        self._peers = RaftPeers(environment, f"raft-client-{node_id}", config.controller_quorum_request_timeout_ms, security)
        self._delivery = Delivery(environment.loop, environment.shares, self._log, self._delivered, self._fail)
        self._snapshots = SnapshotWriting(environment, self._log, self._snapshot_written, self._fail)
        self._installing = SnapshotInstalling(environment, self._log, self._delivery, self._snapshot_installed, self._fail)
        self._truncating = LogTruncating(environment, self._log, self._drain, self._fail)
        self._events: deque[ev.Event] = deque()
        #: Effects of the core that are not carried out yet, in order. The core gets no further event before all are done.
        self._effects: deque[ev.Effect] = deque()
        self._running = False
        #: Whether the next effect waits for descriptors or memory.
        self._is_short = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._sync: asyncio.Task[None] | None = None
        self._commit_waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._state_changed = asyncio.Event()
        self._stopping = False
        self._halted = False
        self._on_doubt: list[Callable[[bool], None]] = []
        self._is_observer = not is_controller
        self.figures = RaftFigures()

    def set_listeners(self, listeners: Sequence[tuple[str, str, int]]) -> None:
        """Set this controller's endpoints when its port is bound, before `start`."""
        self._endpoints = tuple(Endpoint(*listener) for listener in listeners)

    # -- state

    @property
    def quorum(self) -> Quorum:
        """The core. For handlers and tests."""
        assert self._quorum is not None, "the raft host has not been started"
        return self._quorum

    @property
    def peers(self) -> RaftPeers:
        """The connections to other replicas of the metadata log, with their byte counts."""
        return self._peers

    @property
    def metadata_log(self) -> MetadataLog:
        return self._log

    @property
    def leader_id(self) -> int | None:
        quorum = self._quorum
        if quorum is None or quorum.leader_id == NO_NODE or isinstance(quorum.role, Resigned):
            return None
        return quorum.leader_id

    @property
    def leader_epoch(self) -> int:
        return self._quorum.epoch if self._quorum is not None else 0

    @property
    def is_leader(self) -> bool:
        return self._quorum is not None and self._quorum.is_leader

    @property
    def is_in_doubt(self) -> bool:
        """Whether this leader may have been replaced without knowing it. Then it must not give answers that only the leader may give."""
        return self._quorum is not None and self._quorum.is_in_doubt(self._now())

    @property
    def high_watermark(self) -> int:
        return max(self._quorum.high_watermark, 0) if self._quorum is not None else 0

    @property
    def log_end_offset(self) -> int:
        return self.quorum.log.end_offset

    @property
    def log_start_offset(self) -> int:
        return self.quorum.log.start_offset

    @property
    def kraft_version(self) -> int:
        return self.quorum.history.kraft_version

    def leader_endpoint(self) -> tuple[str, int] | None:
        """(host, port) of the leader's controller listener; None if no leader is known."""
        endpoint = None if self.leader_id is None else self.quorum.leader_endpoint()
        return None if endpoint is None else (endpoint.host, endpoint.port)

    def voter_endpoints(self) -> list[tuple[int, str, int]]:
        """(node id, host, port) of each voter."""
        voters = [voter for voter in self.quorum.voters.voters() if voter.endpoints]
        return [(voter.key.node_id, voter.endpoints[0].host, voter.endpoints[0].port) for voter in voters]

    # -- start and stop

    async def start(self) -> None:
        """Load the log, snapshot and election state, and replay everything known to be committed. A lone voter leads when this returns,
        and everything before its epoch has been delivered. Raises StorageError."""
        self._log.load(static_voters(self._config, self.node_id, self._endpoints), is_observer=self._is_observer)
        config = self._config
        meta = self._log_directory.meta
        assert meta is not None
        snapshot = self._log.state.latest_snapshot
        # A snapshot holds only committed records.
        committed = snapshot.offset if snapshot is not None and snapshot.offset > 0 else -1
        self._quorum = Quorum(
            ReplicaKey(self.node_id, meta.directory_id),
            quorum_config(config),
            self._environment.random,
            self._log.state,
            self._log.history,
            self._log.election,
            endpoints=self._endpoints,
            bootstrap_servers=config.bootstrap_controllers,
            can_be_voter=self.is_controller,
            high_watermark=committed,
            has_lost_promises=self._log.lost_promises is not None,
            promised_before=self._log.lost_promises.before if self._log.lost_promises is not None else None,
        )
        if committed > 0:
            self._delivery.advance(committed)
        await self._delivery.in_turns(self._delivery.bring_up(self._delivery.subscriptions, self._log.state))
        self._carry_out(self._quorum.start(self._now()))
        if self._quorum.is_voter and self._quorum.voters.is_only_voter(self._quorum.local):
            while self._sync is not None and self.failure is None:
                await self._sync
            while self.failure is None and not self._delivery.is_caught_up:
                self._state_changed.clear()
                await self._state_changed.wait()
        if self.failure is not None:
            raise self.failure

    async def stop(self, timeout_ms: int = 5000) -> None:
        """Resign (EndQuorumEpoch) if leading, then sync and close the log."""
        if self._stopping:
            return
        self._stopping = True
        quorum = self._quorum
        if quorum is not None and self.failure is None:
            self._carry_out(quorum.shutdown(self._now()))
            deadline = self._loop.time() + min(timeout_ms, 1000) / 1000
            while not quorum.is_handover_done and self.failure is None and self._loop.time() < deadline:
                self._state_changed.clear()
                with contextlib.suppress(TimeoutError):
                    await within(max(deadline - self._loop.time(), 0), self._state_changed.wait())
        self._halt(NotLeader("this node is stopping"))
        if self._sync is not None:
            await asyncio.wait([self._sync])
        await asyncio.gather(self._snapshots.finish(), self._installing.finish(), self._truncating.finish())
        if quorum is not None:
            self._log.close() if self.failure is None else self._log.close_files()

    def abandon(self) -> None:
        """Stop at once without writing anything, as in a crash."""
        self._stopping = True
        self._halt(NotLeader("this node is stopping"))
        if self._quorum is not None:
            self._log.close_files()

    def _halt(self, reason: Exception) -> None:
        self._halted = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._delivery.stop()
        self._peers.close()
        self._fail_waiters(reason)

    # -- calls from this node

    def append(self, records: Sequence[Any] | MetadataBatch, *, atomic: bool = True, epoch: int | None = None) -> int:
        """Append one batch of metadata records (messages of wire.records.metadata_records, or framed bytes). Returns the last
        offset. Raises ResourceShortage, and NotLeader if this node does not lead (in `epoch`, if given). The batch is committed when
        `on_commit` delivers it. With `atomic=False`, records too large for one batch are split."""
        quorum = self.quorum
        if not quorum.is_leader or quorum.is_shut_down or (epoch is not None and epoch != quorum.epoch):
            raise NotLeader
        if self.failure is not None:
            raise NotLeader("the metadata log has failed")
        if not records:
            return quorum.log.end_offset - 1
        for batch in batches_of(records, atomic):
            try:
                appended = self._log.append_batch(batch, quorum.epoch)
            except StorageError as error:
                if isinstance(error, ResourceShortage):
                    raise
                self._fail(error)
                raise NotLeader("the metadata log has failed") from error
            self.figures.note_appended(len(batch), appended.end_offset, self._now())
            self._feed(appended)
        return appended.end_offset - 1

    def resign(self, epoch: int) -> None:
        """Give up the leadership of `epoch`, because the active controller cannot continue. Do not call it from callbacks of this class."""
        if not self._halted:
            self._carry_out(self.quorum.resign(epoch, self._now()))

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> str | None:
        """Change from static to dynamic voters (KIP-853). Returns why this is impossible, or None if it is in the log (or could be)."""
        quorum = self.quorum
        fault = quorum.upgrade_fault(level)
        if fault is None and not validate_only:
            self._carry_out(quorum.upgrade_kraft_version(level, self._now()))
        return fault

    def subscribe(self, listener: RaftListener) -> None:
        """Add a listener before or after `start`. A late one first gets the latest snapshot and the log."""
        subscription = self._delivery.add(listener)
        if self._quorum is not None:
            quorum = self._quorum
            at_once(self._delivery.bring_up([subscription], quorum.log))
            is_leader = quorum.is_leader
            start = getattr(quorum.role, "epoch_start", -1)
            leader_id = NO_NODE if self.leader_id is None else self.leader_id
            subscription.leader = ev.LeaderChanged(leader_id, quorum.epoch, is_leader, start)
            self._delivery.deliver()

    def subscribe_doubt(self, callback: Callable[[bool], None]) -> None:
        """Call back with True when this leader has not heard from a majority for long, and with False when it has again, but not when it
        stops leading."""
        self._on_doubt.append(callback)

    async def wait_committed(self, offset: int, timeout_ms: int = 30_000) -> None:
        """Wait until the high watermark is beyond `offset` and the listeners have seen it. Raises NotLeader when the leadership is lost,
        TimeoutError."""
        if self.high_watermark > offset and self._delivery.offset > offset:
            return
        if not self.is_leader:
            raise NotLeader
        entry = (offset, self.leader_epoch, self._loop.create_future())
        self._commit_waiters.append(entry)
        try:
            await within(timeout_ms / 1000, entry[2])
        finally:
            if entry in self._commit_waiters:
                self._commit_waiters.remove(entry)

    def write_snapshot(self, snapshot_id: SnapshotId, records: Iterable[Any], last_timestamp_ms: int) -> None:
        """Write `%020d-%010d.checkpoint`, a listener's state at `snapshot_id.end_offset`, which must not be beyond the high
        watermark, in a thread, and then free the log before it by metadata.max.retention.*."""
        self._snapshots.start(OffsetAndEpoch(snapshot_id.end_offset, snapshot_id.epoch), records, last_timestamp_ms, self.quorum)

    def _snapshot_written(self, snapshot: OffsetAndEpoch) -> None:
        quorum = self.quorum
        if self._halted or snapshot in quorum.log.snapshots:
            return
        if snapshot.offset < quorum.log.start_offset:
            # A newer one was fetched, or the log was cut, meanwhile.
            self._log.drop_snapshot(snapshot)
            return
        # A listener that has not received the log up to the new snapshot still needs it.
        start = self._log.clean(quorum.high_watermark, self._delivery.offset, sorted([*quorum.log.snapshots, snapshot]))
        self._feed(ev.SnapshotWritten(snapshot, start))

    # -- requests of peers (broker/quorum/raft_requests.py)

    def request(self, request: m.Request, respond: Callable[[m.Reply], None]) -> None:
        """Accept a peer's request. `respond` is called once, now or later."""
        if self._quorum is None or self._halted:
            error = ErrorCode.BROKER_NOT_AVAILABLE
            reply = m.FetchReply(error) if isinstance(request, m.FetchRequest) else m.Reply(error)
            respond(Quorum.reply_to(self._quorum, request, error) if self._quorum is not None else reply)
            return
        self._feed(ev.Received(respond, request))

    def disconnected(self, respond: Callable[[m.Reply], None]) -> None:
        """The connection of the request with this `respond` has ended."""
        if self._quorum is not None and not self._halted:
            self._feed(ev.Disconnected(respond))

    def found_corrupt(self, error: CorruptMetadata) -> None:
        """This leader's copy of what a replica asks for is corrupt. If there is another voter, this node ends, so that another voter leads.
        It does not matter who read it, and whether that was on another thread."""
        if len(self.quorum.voters) == 1:
            logger.error("%s", error)
        elif not self._halted:
            self._fail(error)

    # -- events and effects

    def _now(self) -> int:
        return self._clock.now_ms()

    def _feed(self, event: ev.Event) -> None:
        self._events.append(event)
        if not self._running:
            self._drain()

    def _carry_out(self, effects: list[ev.Effect]) -> None:
        self._effects.extend(effects)
        if not self._running:
            self._drain()

    @property
    def _is_waiting(self) -> bool:
        return self._is_short or self._installing.is_going_on or self._truncating.is_going_on

    def _drain(self) -> None:
        """Process events. Events that effects cause come right after the effects of their cause, before any event from outside."""
        quorum = self.quorum
        if self._is_waiting or self._halted:
            return
        self._running = True
        try:
            while (self._effects or self._events) and not self._is_waiting and not self._halted:
                if not self._effects:
                    self._effects.extend(quorum.step(self._events.popleft(), self._now()))
                while self._effects and not self._is_waiting and not self._halted:
                    _APPLY[type(self._effects[0])](self, self._effects[0])
                    self._effects.popleft()
        except ResourceShortage as error:
            self._wait_for_resources(error)
            return
        except Exception as error:
            self._fail(error)
        finally:
            self._running = False
        if not self._halted:
            if self.figures.note_role(quorum.role, self._now()):
                logger.info("epoch %d of the metadata quorum: this node stands for election, because %s", quorum.epoch, self.figures.why)
            self._sync_soon()
            self._arm()
            self._state_changed.set()

    def _wait_for_resources(self, error: ResourceShortage) -> None:
        """Wait for descriptors or memory. The disk is well and nothing was written; all effects wait, because their order matters."""
        logger.warning("the metadata quorum waits: %s", error)
        self._is_short = True
        self._environment.supervisor.call_later(SHORTAGE_RETRY_S, "the metadata quorum", self._go_on)

    def _go_on(self) -> None:
        self._is_short = False
        self._drain()

    def _persist(self, effect: ev.Persist) -> None:
        quorum = self.quorum
        self._log.persist(effect.state, quorum.history.kraft_version, quorum.voters.node_ids)

    def _regained(self, effect: ev.PromisesRegained) -> None:
        self._log.regain_promises()

    def _truncate(self, effect: ev.Truncate) -> None:
        self._truncating.start(effect.offset)

    def _leader_change(self, effect: ev.AppendLeaderChange) -> None:
        self._events.appendleft(self._log.append_leader_change(effect))

    def _voters(self, effect: ev.AppendVoters) -> None:
        self._events.appendleft(self._log.append_voters(effect.epoch, effect.voter_set, effect.kraft_version))

    def _fetched(self, effect: ev.AppendFetched) -> None:
        batches = self._log.append_fetched(memoryview(effect.records), effect.epoch)
        if batches is None:
            self._events.appendleft(ev.FetchedAppended(is_refused=True))
            return
        self.figures.fetched.record(sum(batch.end_offset - batch.base_offset for batch in batches), self._now())
        appended: list[ev.Event] = [*batches, ev.FetchedAppended()]
        self._events.extendleft(reversed(appended))

    def _chunk(self, effect: ev.WriteSnapshotChunk) -> None:
        self._log.write_chunk(effect.snapshot, effect.position, bytes(effect.data))

    def _install(self, effect: ev.InstallSnapshot) -> None:
        self._installing.start(effect.snapshot)

    def _snapshot_installed(self, snapshot: OffsetAndEpoch, content: SnapshotContent | None) -> None:
        if content is None:
            self._events.appendleft(ev.SnapshotInstalled(OffsetAndEpoch(-1, -1), None, 0))
        else:
            self._events.appendleft(ev.SnapshotInstalled(snapshot, content.voters_of_version, content.kraft_version))
        self._drain()

    def _send(self, effect: ev.Send) -> None:
        request_id, request = effect.request_id, effect.request
        wire_request = raft_wire.to_wire(request, self.cluster_id)

        def answered(response: Any, error: Exception | None) -> None:
            if self._halted:
                return
            if error is not None:
                self._feed(ev.Failed(request_id, isinstance(error, ConnectionRefusedError)))
            else:
                self._feed(ev.Answered(request_id, raft_wire.reply_from_wire(request, response)))

        self._peers.send(effect.endpoint.host, effect.endpoint.port, wire_request, answered, timeout_ms=effect.timeout_ms)

    def _respond(self, effect: ev.Respond) -> None:
        effect.token(effect.reply)

    def _high_watermark_moved(self, effect: ev.HighWatermarkMoved) -> None:
        self._log.log.update_high_watermark(effect.offset)
        self.figures.note_committed(effect.offset, self._now())
        self._delivery.advance(effect.offset)

    def _leader_changed(self, effect: ev.LeaderChanged) -> None:
        leader_id = NO_NODE if isinstance(self.quorum.role, Resigned) else effect.leader_id
        logger.info("epoch %d of the metadata quorum has %s", effect.epoch, f"leader {leader_id}" if leader_id >= 0 else "no leader")
        if not effect.is_self:
            self._fail_waiters(NotLeader())
        self._delivery.leader_changed(ev.LeaderChanged(leader_id, effect.epoch, effect.is_self, effect.epoch_start))

    def _doubt_changed(self, effect: ev.DoubtChanged) -> None:
        text = "a majority is silent, and may have another leader" if effect.is_in_doubt else "a majority follows this leader"
        logger.info("epoch %d of the metadata quorum: %s", self.leader_epoch, text)
        for callback in self._on_doubt:
            callback(effect.is_in_doubt)

    # -- disk

    def _sync_soon(self) -> None:
        quorum = self.quorum
        if self._sync is None and not self._is_observer and quorum.log.flushed_offset < quorum.log.end_offset:
            self._sync = self._environment.supervisor.start(self._sync_all(), "syncing of the metadata log")

    async def _sync_all(self) -> None:
        """Sync the log, one sync at a time. Records appended meanwhile are part of the next sync (group commit)."""
        quorum = self.quorum
        try:
            while not self._halted and quorum.log.flushed_offset < quorum.log.end_offset:
                try:
                    flushed = await self._sync_once(self._log.prepare_sync())
                except ResourceShortage as error:
                    logger.warning("the metadata log will be synced later: %s", error)
                    await asyncio.sleep(SHORTAGE_RETRY_S)
                    continue
                if flushed <= quorum.log.flushed_offset and not self._stopping:
                    # The log was truncated meanwhile; its present contents must be synced again.
                    continue
                self._feed(ev.Flushed(flushed))
        except StorageError as error:
            # Never retry a failed sync: the pages may be lost although the next sync succeeds.
            self._fail(error)
        finally:
            self._sync = None

    async def _sync_once(self, task: SyncTask) -> int:
        try:
            await self._environment.run_blocking(task.run)
        except OSError as error:
            raise task.failed(error) from error
        return task.finish()

    def _fail(self, error: BaseException) -> None:
        if self.failure is not None:
            return
        self.failure = error
        logger.error("the metadata quorum stops on this node: %s", error)
        self._events.clear()
        self._halt(NotLeader(f"the metadata log has failed: {error}"))
        self._state_changed.set()
        if isinstance(error, Exception) and not isinstance(error, (StorageError, InvariantViolated)):
            self._environment.supervisor.caught("the metadata quorum", error)
        if self._on_failure is not None:
            self._on_failure(error)

    # -- timers

    def _arm(self) -> None:
        if self._halted:
            return
        deadline = self.quorum.next_deadline()
        if deadline is None:
            return
        if self._timer is not None:
            # An early wake-up costs little, and most deadlines only move later.
            if self._timer_at is not None and self._timer_at <= deadline:
                return
            self._timer.cancel()
        delay = max(deadline - self._now(), 1)
        self._timer_at = self._now() + delay
        self._timer = self._environment.supervisor.call_later(delay / 1000, "the metadata quorum", self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self.failure is None and not self._is_waiting:
            self._carry_out(self.quorum.on_deadline(self._now()))

    # -- waiting

    def _delivered(self) -> None:
        self._release_waiters()
        self._state_changed.set()

    def _release_waiters(self) -> None:
        if not self._commit_waiters:
            return
        reached = min(self._delivery.offset, self.high_watermark)
        waiting = []
        for entry in self._commit_waiters:
            if entry[0] < reached:
                if not entry[2].done():
                    entry[2].set_result(None)
            else:
                waiting.append(entry)
        self._commit_waiters = waiting

    def _fail_waiters(self, reason: Exception) -> None:
        waiters, self._commit_waiters = self._commit_waiters, []
        for _, _, future in waiters:
            if not future.done():
                future.set_exception(reason)


_APPLY: dict[type, Any] = {
    ev.Persist: RaftHost._persist,
    ev.PromisesRegained: RaftHost._regained,
    ev.Truncate: RaftHost._truncate,
    ev.AppendLeaderChange: RaftHost._leader_change,
    ev.AppendVoters: RaftHost._voters,
    ev.AppendFetched: RaftHost._fetched,
    ev.WriteSnapshotChunk: RaftHost._chunk,
    ev.InstallSnapshot: RaftHost._install,
    ev.Send: RaftHost._send,
    ev.Respond: RaftHost._respond,
    ev.HighWatermarkMoved: RaftHost._high_watermark_moved,
    ev.LeaderChanged: RaftHost._leader_changed,
    ev.DoubtChanged: RaftHost._doubt_changed,
}
