"""Mutations that break rules about bit rot: checksums that are not checked, and a voter that forgets its promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from minikafka.broker.quorum.raft_rot import Rot
from minikafka.sim.mutations import unchecked_batches
from minikafka.sim.replacements import nothing
from minikafka.storage.batch_scan import batches
from minikafka.storage.filesystem import read_all
from minikafka.wire.batch import RecordBatch, iterate_batches

RAFT_LOG = "minikafka.broker.quorum.raft_log"
APPENDS = "minikafka.storage.log_append:LogAppender._whole_batches"
TESTS = ("tests/broker/test_rot.py",)
HEADER_TESTS = ("tests/broker/test_header_rot.py",)
LOSS_TESTS = ("tests/core/raft/test_simulation.py", "tests/broker/test_raft_network.py")


class _Trusted(RecordBatch):
    """A batch whose checksum is never checked."""

    __slots__ = ()

    def check(self) -> None:
        """Accept any bytes."""


def _trusted(original: Any) -> Any:
    def iterate(*arguments: Any) -> Iterator[RecordBatch]:
        for batch in original(*arguments):
            yield _Trusted(batch._view, batch.position)

    return iterate


def _no_rot(original: Any) -> Any:
    return lambda *_: None


def _never_certain(original: Any) -> Any:
    def find_rot(*arguments: Any) -> Rot | None:
        found = original(*arguments)
        return None if found is None else found._replace(is_certain=False)

    return find_rot


def _none_behind(original: Any) -> Any:
    return lambda view, position, offset: None


def _any_epoch(original: Any) -> Any:
    return lambda *_: True


def _headers_unchecked(original: Any) -> Any:
    def checked(log: Any, data: bytes, offset: int) -> Iterator[RecordBatch]:
        for batch in iterate_batches(data):
            batch.check()
            yield batch

    return checked


def _metadata_unchecked(original: Any) -> Any:
    unchecked = unchecked_batches(original)
    return lambda self, records: (unchecked if self._disk.name == "__cluster_metadata-0" else original)(self, records)


def _any_length(original: Any) -> Any:
    def valid(file: Any, size: int, base_offset: int) -> Iterator[Any]:
        for position, batch_size, header in batches(file, 0, size):
            yield position, batch_size, header, memoryview(read_all(file, batch_size, position))

    return valid


def _whole(original: Any) -> Any:
    def begin(self: Any, *arguments: Any, has_lost_promises: bool = False, **options: Any) -> None:
        original(self, *arguments, **options)

    return begin


def _regained_at_once(original: Any) -> Any:
    def on_appended(replica: Any, *arguments: Any) -> None:
        replica.regain_promises(0, is_end=True)
        original(replica, *arguments)

    return on_appended


def _regained_at_a_cut(original: Any) -> Any:
    def cut(replica: Any, diverging: Any) -> None:
        replica.regain_promises(replica.log.end_offset, is_end=False)
        original(replica, diverging)

    return cut


def _as_far_as_it_is_valid(original: Any) -> Any:
    return lambda filesystem, directory, rot, *, is_clean: rot.offset


def _refusal_counts(original: Any) -> Any:
    return lambda replica, is_refused, now_ms: original(replica, False, now_ms)


ROT_MUTATIONS: list[dict[str, Any]] = [
    {
        "name": "recovery-takes-anything",
        "breaks": "recovery checks only lengths, not checksums",
        "profile": "crashes",
        "patches": (("minikafka.storage.segment:valid_batches", _any_length),),
        "options": (("shape", "combined"), ("min_isr", 2)),
    },
    {
        "name": "metadata-takes-anything",
        "breaks": "a node acts on whatever its metadata log contains",
        "profile": "rot",
        "patches": ((f"{RAFT_LOG}:iterate_batches", _trusted), (f"{RAFT_LOG}:find_rot", _no_rot)),
        "options": (("shape", "separate"),),
    },
    {
        "name": "metadata-rot-spreads",
        "breaks": "metadata with a wrong checksum is passed on and stored",
        "profile": "rot",
        "patches": ((f"{RAFT_LOG}:iterate_batches", _trusted), (APPENDS, _metadata_unchecked)),
        "options": (("shape", "quorum"),),
    },
    {
        "name": "voter-cuts-rot",
        "breaks": "a voter truncates its log at a corrupt batch and forgets what it promised",
        "tests": TESTS,
        "patches": ((f"{RAFT_LOG}:find_rot", _never_certain),),
    },
    {
        "name": "wrong-length-is-torn",
        "breaks": "a voter mistakes a batch with a rotten length for a torn write",
        "tests": HEADER_TESTS,
        "patches": (("minikafka.broker.quorum.raft_rot:_next_valid", _none_behind),),
    },
    {
        "name": "metadata-epochs-unlooked",
        "breaks": "a rotten leader epoch in the metadata log goes unnoticed",
        "tests": HEADER_TESTS,
        "patches": (("minikafka.broker.quorum.raft_rot:_may_follow", _any_epoch),),
    },
    {
        "name": "headers-read-unlooked",
        "breaks": "metadata is read without checking offsets and epochs",
        "tests": HEADER_TESTS,
        "patches": ((f"{RAFT_LOG}:MetadataLog._checked", _headers_unchecked),),
    },
    {
        "name": "loser-votes",
        "breaks": "a voter that lost its promises votes at once",
        "tests": LOSS_TESTS,
        "patches": (("minikafka.core.raft.replica:Replica.__init__", _whole),),
    },
    {
        "name": "regained-early",
        "breaks": "a voter that lost its promises votes as soon as it has fetched something",
        "tests": ("tests/core/raft/test_quorum.py",),
        "patches": (("minikafka.core.raft.following:on_appended", _regained_at_once),),
    },
    {
        "name": "promises-underrated",
        "breaks": "a voter assumes that it promised no more than what is left",
        "tests": HEADER_TESTS,
        "patches": (("minikafka.broker.quorum.raft_promises:end_offset_max", _as_far_as_it_is_valid),),
    },
    {
        "name": "regained-beside",
        "breaks": "a voter that lost its promises votes after a leader refuses its log",
        "tests": ("tests/core/raft/test_quorum.py",),
        "patches": (("minikafka.core.raft.following:_truncate_diverging", _regained_at_a_cut),),
    },
    {
        "name": "loss-not-noted",
        "breaks": "a voter truncates its log at a corrupt batch without a note of it",
        "tests": LOSS_TESTS[1:],
        "patches": (("minikafka.broker.quorum.raft_promises:note_lost", nothing),),
    },
    {
        "name": "refusal-counts",
        "breaks": "a leader that sends corrupt batches counts as alive and is asked again without a pause",
        "patches": (("minikafka.core.raft.following:on_appended", _refusal_counts),),
        "tests": ("tests/core/raft/test_quorum.py",),
    },
    {
        "name": "coordinators-load-anything",
        "breaks": "a coordinator loads batches with a wrong checksum",
        "tests": TESTS,
        "patches": (("minikafka.broker.coordinators.loader:iterate_batches", _trusted),),
    },
    {
        "name": "compaction-takes-anything",
        "breaks": "compaction gives a corrupt batch a new, valid checksum",
        "patches": (("minikafka.storage.batch_scan:_check", nothing),),
        "tests": ("tests/storage/test_cleaner.py",),
    },
]
