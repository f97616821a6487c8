"""Mutations that break bounds: on memory, on work in a turn, on descriptors, on names that peers send."""

from __future__ import annotations

from typing import Any


def _returns(value: Any) -> Any:
    return lambda original: lambda *arguments, **options: value


def _without_bound(original: Any) -> Any:
    def windows(codec: Any, data: Any, size_max: int) -> Any:
        return original(codec, data, 1 << 40)

    return windows




def _never_paid_back(original: Any) -> Any:
    def charge(self: Any, amount: int) -> None:
        original(self, max(amount, 0))

    return charge


def _all_pass(original: Any) -> Any:
    return lambda self, reader: True


def _unbounded_client_id(original: Any) -> Any:
    def keep(self: Any, raw: bytes) -> str:
        found = self._client_ids[raw] = raw.decode("utf-8", "replace")
        return found

    return keep


def _unbounded_software(original: Any) -> Any:
    def note(self: Any, context: Any, name: str, version: str) -> None:
        self.software[context.connection] = (context.listener, name, version)

    return note


def _tried_at_once(original: Any) -> Any:
    def failed(self: Any, error: OSError) -> None:
        self.failed_accepts_total += 1

    return failed


def _each_line(original: Any) -> Any:
    def log(self: Any, level: int, kind: str, peer: str, text: str, *arguments: object, error: Any = None) -> None:
        self._logger.log(level, text, *arguments)

    return log


CODECS = ("tests/wire/test_compression.py",)
NET = ("tests/net/test_bounds.py",)
NAMES = ("tests/broker/test_names_of_peers.py",)
BOMBS = ("tests/broker/test_bombs.py",)
CONNECTION = "minikafka.net.connection:SocketConnection"
BOUNDS_MUTATIONS: list[dict[str, Any]] = [
    {"name": "bomb-without-bound", "breaks": "decompression stops at the caller's bound", "tests": CODECS,
     "patches": (("minikafka.wire.compression:decompressed_windows", _without_bound),)},
    {"name": "bomb-at-once", "breaks": "decompression gives windows, and who stops asking has paid for no more", "tests": CODECS,
     "patches": (("minikafka.wire.compression:_zstd_windows", lambda original: lambda data: iter([b"".join(original(data))])),)},
    {"name": "heavy-on-the-loop", "breaks": "a batch that takes long is prepared beside the loop", "tests": BOMBS,
     "patches": (("minikafka.storage.log_append:LogAppender.is_heavy", _returns(False)),)},
    {"name": "look-up-on-the-loop", "breaks": "a look-up by time that takes long is made beside the loop", "tests": BOMBS,
     "patches": (("minikafka.storage.timestamp_lookup:TimestampCandidate.is_heavy", _returns(False)),)},
    {"name": "no-order-beside-the-loop", "breaks": "requests of a connection wait for the one that is prepared", "tests": BOMBS,
     "patches": ((f"{CONNECTION}.hold", _returns(None)), (f"{CONNECTION}.go_on", _returns(None)))},
    {"name": "memory-for-all", "breaks": "nobody is read from when the memory for requests is spent", "tests": NET,
     "patches": (("minikafka.net.memory_budget:MemoryBudget.admits", _all_pass),)},
    {"name": "memory-never-free", "breaks": "memory of answered requests is free again", "tests": NET,
     "patches": (("minikafka.net.memory_budget:MemoryBudget.charge", _never_paid_back),)},
    {"name": "read-without-end", "breaks": "no more is read while many answers wait", "tests": NET,
     "patches": ((f"{CONNECTION}._is_full", _returns(False)),)},
    {"name": "turn-without-end", "breaks": "a connection with much to do lets others have their turn", "tests": NET,
     "patches": ((f"{CONNECTION}._is_turn_over", _returns(False)),)},
    {"name": "patience-without-end", "breaks": "who does not finish a request is disconnected", "tests": NET,
     "patches": ((f"{CONNECTION}.is_stuck", _returns("")),)},
    {"name": "accept-spins", "breaks": "accepting pauses when descriptors run out", "tests": NET,
     "patches": (("minikafka.net.server:SocketListener._could_not_accept", _tried_at_once),)},
    {"name": "lines-without-end", "breaks": "lines of the log that a peer can cause are limited", "tests": NET,
     "patches": (("minikafka.net.peer_lines:PeerLines.log", _each_line),)},
    {"name": "long-client-ids", "breaks": "client ids are kept up to a length and a number", "tests": NAMES,
     "patches": (("minikafka.broker.front.dispatch:Dispatcher._keep_client_id", _unbounded_client_id),)},
    {"name": "software-as-told", "breaks": "software of clients is told apart up to a length and a number", "tests": NAMES,
     "patches": (("minikafka.broker.front.dispatch:Dispatcher._note_software", _unbounded_software),)},
    {"name": "sessions-without-end", "breaks": "sessions of fetches have room for so many partitions", "tests": NAMES,
     "patches": (("minikafka.core.fetch_session:FetchSessionCache._has_room", _returns(True)),)},
]  # fmt: skip
