"""Every decoder of what comes from outside (peers, files), as a function of bytes that may only do what is said: refuse in its own way, or
give something that holds. Fuzzed by chance with the tests (tests/broker/test_decoders.py), and guided by coverage
(tests/bench/fuzz_decoders.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
import time
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

from helpers.memory_filesystem import MemoryFileSystem

from minikafka.broker.client_metrics import otlp
from minikafka.broker.observe.http import HEAD_BYTES_MAX, HttpServer
from minikafka.broker.quorum import snapshots
from minikafka.broker.quorum.quorum_state import decode as decode_quorum_state
from minikafka.core.group.subscriptions import parse_subscription
from minikafka.core.scram import SHA_256
from minikafka.security.errors import SecurityError
from minikafka.security.jaas import parse_jaas
from minikafka.security.java_key_store import read_java_key_store
from minikafka.security.mechanisms import PlainServer, SaslRefused
from minikafka.security.scram import ScramClient, ScramServer
from minikafka.storage import checkpoint, producer_snapshot
from minikafka.storage.batch_scan import valid_batches
from minikafka.storage.epoch_cache import EpochCache
from minikafka.storage.errors import CorruptFile, NotFormatted
from minikafka.storage.filesystem import write_all
from minikafka.storage.log_dir import read_meta_properties
from minikafka.storage.sparse_index import OffsetIndex, TimeIndex
from minikafka.storage.txn_index import TransactionIndex
from minikafka.wire.batch import OVERHEAD, build_batch, iterate_batches, refresh_crc
from minikafka.wire.compression import CompressionType, compress, decompress, decompressed_windows
from minikafka.wire.control import control_type, decode_control
from minikafka.wire.crc import crc32c
from minikafka.wire.errors import NotEncodable, WireError
from minikafka.wire.header import decode_request_header, decode_response_header
from minikafka.wire.record_scan import scan_records
from minikafka.wire.records import frame
from minikafka.wire.registry import apis

#: What is decompressed at most; a decoder that makes more of its input has no bound.
PLAIN_BYTES_MAX = 1 << 20
Target = Callable[[bytes], None]
TARGETS: dict[str, Target] = {}
SEEDS: dict[str, list[bytes]] = {}


def target(*seeds: bytes) -> Callable[[Target], Target]:
    """Register a target with what its corpus begins with."""

    def register(function: Target) -> Target:
        TARGETS[function.__name__] = function
        SEEDS[function.__name__] = [*seeds, b"", b"\0" * 64]
        return function

    return register


# -- the wire ------------------------------------------------------------------------------------------------------------


@cache
def _messages() -> list[tuple[Any, int]]:
    kinds = [(kind, one) for one in apis() for kind in (one.request, one.response)]
    return [(kind, version) for kind, one in kinds for version in range(one.min_version, one.max_version + 1)]


def _of(data: bytes, choices: list[Any]) -> tuple[Any, bytes]:
    """One of the choices by the first two bytes, and the rest."""
    return choices[int.from_bytes(data[:2].ljust(2, b"\0")) % len(choices)], data[2:]


@target()
def messages(data: bytes) -> None:
    """Both decoders agree, and what they give is encoded to what gives it again."""
    (kind, version), body = _of(data, _messages())
    found = [None, None]
    try:
        found[0], end = kind.decode_from(version, body)
        assert 0 <= end <= len(body)
    except WireError:
        pass
    try:
        steps = kind.decode_in_steps(version, body)
        while True:
            try:
                next(steps)
            except StopIteration as over:
                found[1] = over.value
                break
    except WireError:
        pass
    assert (found[0] is None) == (found[1] is None), "the two decoders disagree"
    if found[0] is None:
        return
    try:
        again = found[0].encode(version)
    except NotEncodable:
        return
    # An unknown tagged field is dropped, and a NaN is not itself: so what is encoded again is compared.
    assert kind.decode(version, again).encode(version) == again == found[1].encode(version)


@target(bytes.fromhex("00120003000000010004746573740000"))
def headers(data: bytes) -> None:
    for decode in (decode_request_header, lambda view: decode_response_header(view, *struct.unpack_from(">hh", view.ljust(4, b"\0")))):
        try:
            decode(data)
        except WireError:
            continue


def _batch(codec: CompressionType, **more: Any) -> bytes:
    return bytes(build_batch([(0, 5, b"key", b"value" * 9, (("h", b"1"),)), (1, 6, None, None, ())], compression=codec, **more))


@target(*(_batch(codec) for codec in CompressionType), _batch(CompressionType.NONE, producer_id=7, is_transactional=True))
def batches(data: bytes) -> None:
    """Records decoded and walked over are the same ones; the checksum is made right, or little would be seen."""
    buffer = bytearray(data)
    if len(buffer) >= OVERHEAD and len(buffer) < 1 << 31:
        struct.pack_into(">i", buffer, 8, len(buffer) - 12)
        refresh_crc(buffer)
    try:
        found = list(iterate_batches(buffer))
    except WireError:
        return
    for batch in found:
        outlines = records = None
        try:
            batch.check()
            records = list(batch.records(PLAIN_BYTES_MAX))
            for record in records if batch.is_control else ():
                control_type(record), decode_control(record)
            batch.find_record(5, 0, PLAIN_BYTES_MAX)
        except WireError:
            pass
        with contextlib.suppress(WireError):
            outlines = list(scan_records(batch.attributes & 7, batch.view[OVERHEAD:], batch.records_count, PLAIN_BYTES_MAX))
        if records is not None and outlines is not None:
            assert [one.offset_delta for one in outlines] == [record.offset - batch.base_offset for record in records]


@target(*(bytes([codec]) + compress(codec, b"some text, some text, some text" * 30) for codec in list(CompressionType)[1:]))
def compressed(data: bytes) -> None:
    """Decompressed at once and in windows: the same, and never more than may be."""
    codec, body = CompressionType(1 + data[0] % 4) if data else CompressionType.GZIP, data[1:]
    found: list[bytes | None] = []
    for read in (
        lambda: decompress(codec, body, PLAIN_BYTES_MAX),
        lambda: b"".join(decompressed_windows(codec, body, PLAIN_BYTES_MAX)),
    ):
        try:
            found.append(read())
        except WireError:
            found.append(None)
    assert found[0] == found[1]
    assert found[0] is None or len(found[0]) <= PLAIN_BYTES_MAX


@target()
def metadata_records(data: bytes) -> None:
    classes = sorted(frame.metadata_record_classes())
    kind, body = _of(data, classes)
    for framed in (data, bytes([1, kind, 0]) + body, bytes([1, kind, 1]) + body):
        try:
            record, version = frame.decode_metadata_record_versioned(framed)
            again = frame.encode_metadata_record(record, version)
            assert frame.encode_metadata_record(frame.decode_metadata_record(again), version) == again
        except (WireError, NotEncodable):
            continue


@target(b"\0\0\x02\0\x01\0\x01g\0\x01t\0\0\0\0\0\0" + bytes(40))
def coordinator_records(data: bytes) -> None:
    decoders = [
        (frame.decode_group_key, frame.decode_group_value), (frame.decode_transaction_key, frame.decode_transaction_value),
        (frame.decode_share_key, frame.decode_share_value),
    ]  # fmt: skip
    for decode_key, decode_value in decoders:
        for cut in {2 + data[0] % 16 if data else 2, len(data) // 2}:
            try:
                key = decode_key(data[:cut])
                if key is not None:
                    decode_value(key, data[cut:])
            except WireError:
                continue


@target(struct.pack(">hih", 1, 1, 1) + b"t" + bytes(8))
def subscriptions(data: bytes) -> None:
    names = parse_subscription(data)
    assert names is None or sum(map(len, names)) <= len(data)


# -- files -----------------------------------------------------------------------------------------------------------------


def _disk(data: bytes) -> tuple[MemoryFileSystem, str]:
    filesystem = MemoryFileSystem()
    filesystem.mkdir("/d")
    file = filesystem.open("/d/f", create=True)
    write_all(file, data, 0)
    file.close()
    return filesystem, "/d/f"


@target(struct.pack(">ii", 3, 100) + struct.pack(">ii", 9, 4096), struct.pack(">qi", 5, 3) + struct.pack(">qi", 7, 9))
def indexes(data: bytes) -> None:
    for kind in (OffsetIndex, TimeIndex):
        filesystem, path = _disk(data)
        index = kind(filesystem, path, 100, 1 << 12)
        for prepare in (index.open_at_rest, index.activate):
            try:
                prepare()
                assert all(len(one) == 2 for one in index.all_entries())
                for value in (-1, 105, 1 << 62):
                    if isinstance(index, OffsetIndex):
                        index.position_for(value)
                        index.offset_at_or_after(value)
                    else:
                        index.offset_for(value)
            except (CorruptFile, OSError):
                break


@target(struct.pack(">hqqqq", 0, 7, 0, 9, 8), struct.pack(">hqqqq", 0, 7, 100, 109, 108) * 2)
def transaction_index(data: bytes) -> None:
    index = TransactionIndex(*_disk(data))
    try:
        index.check(0)
    except CorruptFile:
        return
    assert [entry.last_offset for entry in index.entries] == sorted({entry.last_offset for entry in index.entries})


@target(producer_snapshot.encode_snapshot([producer_snapshot.ProducerSnapshotEntry(1, 2, 3, 4, 5, 6, 7, 8)]))
def producer_snapshots(data: bytes) -> None:
    body = bytearray(data)
    if len(body) >= 6:  # the checksum is made right
        struct.pack_into(">I", body, 2, crc32c(memoryview(body)[6:]))
    try:
        entries = producer_snapshot.decode_snapshot(bytes(body))
    except CorruptFile:
        return
    assert sorted(producer_snapshot.decode_snapshot(producer_snapshot.encode_snapshot(entries))) == sorted(entries)


_QUORUM_STATE = (
    b'{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)
_META = b"version=1\nnode.id=1\ncluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n"


@target(
    b"0\n1\n9999999999 0\n", b"0\n1\n0 99999999999999999999\n", "0\n\u00b2\n0 0\n".encode(), b"0\n" + b"1" * 5000 + b"\n0 0\n",
    b"0\n1\n" + b"1" * 5000 + b" 0\n", b'{"version":0,"brokerEpoch":99999999999999999999}', b"[" * 100_000,
    _QUORUM_STATE.replace(b"1,", b"99999999999,"), b"0\n2\n0 0\n3 17\n",
    b"0\n1\nt 0 5\n", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", b'{"version":0,"brokerEpoch":3}',
    b"a=b\\:c\n#x\n", _QUORUM_STATE, _META,
)  # fmt: skip
def checkpoints(data: bytes) -> None:
    filesystem, path = _disk(data)
    epochs = EpochCache(filesystem, path)
    readers: list[Callable[[], Any]] = [
        epochs.load,
        lambda: checkpoint.read_offset_checkpoint(filesystem, path),
        lambda: checkpoint.read_partition_metadata(filesystem, path),
        lambda: checkpoint.is_torn_metadata(filesystem, path),
        lambda: checkpoint.read_properties(filesystem, path),
        lambda: (checkpoint.read_clean_shutdown(filesystem, path) or 0).to_bytes(8, signed=True),
        lambda: decode_quorum_state(data).epoch.to_bytes(4, signed=True),
    ]
    for read in readers:
        try:
            read()
        except CorruptFile:
            continue
    assert all(-1 <= epoch < 1 << 31 and 0 <= start < 1 << 63 for epoch, start in epochs.entries)
    filesystem.rename(path, "/d/meta.properties")
    try:
        read_meta_properties(filesystem, "/d")
    except NotFormatted:
        return


@target(b"".join(snapshots.encode_snapshot([], epoch=1, wall_ms=5, last_timestamp_ms=5, kraft_version=0, voters=None)))
def metadata_snapshots(data: bytes) -> None:
    buffer = bytearray(data)
    position = 0
    while len(buffer) - position >= OVERHEAD:  # checksums are made right
        size = max(struct.unpack_from(">i", buffer, position + 8)[0], OVERHEAD - 12) + 12
        if position + size > len(buffer):
            break
        refresh_crc(memoryview(buffer)[position : position + size])
        position += size
    try:
        snapshots.decode_snapshot(bytes(buffer))
    except CorruptFile:
        return


@target(_batch(CompressionType.NONE) * 2)
def log_files(data: bytes) -> None:
    filesystem, path = _disk(data)
    file = filesystem.open(path)
    end = 0
    for position, size, *_ in valid_batches(file, len(data), 0):
        assert position == end and size > 0
        end = position + size
    assert end <= len(data)


# -- security ----------------------------------------------------------------------------------------------------------------

@target(b"\0alice\0secret", b"alice\0alice\0secret")
def sasl_plain(data: bytes) -> None:
    server = PlainServer({"alice": "secret"})
    try:
        server.evaluate(data)
    except SaslRefused:
        assert not server.complete
        return
    assert server.user == "alice"


@target(b"n,,n=alice,r=abc\nc=biws,r=abcdef,p=" + b"A" * 43 + b"=", b"n,a=b,n=b,r=x,tokenauth=true\n")
def scram_server(data: bytes) -> None:
    server = ScramServer(SHA_256, lambda user: None, "def", b"s" * 20)
    for token in data.split(b"\n")[:3]:
        try:
            server.evaluate(token)
        except SaslRefused:
            break
    assert not server.complete, "nobody knows a password"


@target(b"r=noncedef,s=c2FsdA==,i=4096\nv=AAAA", b"e=other-error")
def scram_client(data: bytes) -> None:
    client = ScramClient(SHA_256, "alice", "secret", "nonce")
    client.first()
    for token in data.split(b"\n")[:2]:
        if b",i=" in token and len(token.rpartition(b"i=")[2]) > 4:
            return  # a million rounds are allowed, and take long
        try:
            assert client.next(token) is not None, "the server cannot know the password"
        except SaslRefused:
            return


@target(b'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" user_a="b";')
def jaas(data: bytes) -> None:
    try:
        parse_jaas(data.decode("utf-8", "replace"))
    except SecurityError:
        return


@target(bytes.fromhex("feedfeed0000000200000001000000020001610000000000000000") + b"\0\x05X.509\0\0\0\x01x" + bytes(20))
def java_key_stores(data: bytes) -> None:
    for password in (None, "changeit"):
        try:
            read_java_key_store(data, password)
        except ValueError:
            continue


# -- others --------------------------------------------------------------------------------------------------------------------


class _Writer:
    def __init__(self) -> None:
        self.sent = bytearray()
        self.transport = SimpleNamespace(get_write_buffer_size=lambda: 0, abort=lambda: None, set_write_buffer_limits=lambda high: None)

    def write(self, data: bytes) -> None:
        self.sent += data

    async def drain(self) -> None:
        return

    def close(self) -> None:
        return


def _http_server() -> HttpServer:
    server = HttpServer.__new__(HttpServer)
    never = SimpleNamespace(done=lambda: False)
    values: dict[str, Any] = {
        "_open": 0, "_waiting": {}, "refused_total": 0, "_names": set(),
        "_node": SimpleNamespace(failed=never, ready=asyncio.Event(), broker=None),
        "_metrics": SimpleNamespace(steps=lambda: iter([b"m"])),
    }  # fmt: skip
    for name, value in values.items():
        setattr(server, name, value)
    return server


@target(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:80\r\n\r\n", b"HEAD /readyz?a=%zz HTTP/1.0\r\nHost: [::1]\r\n\r\n", b"POST / x\r\n\r\n")
def http_requests(data: bytes) -> None:
    async def ask() -> None:
        reader = asyncio.StreamReader(HEAD_BYTES_MAX)
        reader.feed_data(data)
        reader.feed_eof()
        writer = _Writer()
        await _http_server()._serve(reader, writer)  # type: ignore[arg-type]
        assert not writer.sent or writer.sent.startswith(b"HTTP/1.1 ")

    if not any(path in data for path in (b"/v1/", b"/ui")):  # those ask the cluster
        asyncio.run(ask())


@target(b"\0", bytes([0]) + bytes.fromhex("0a140a00121012 0e0a016d 2a091207 31000000000000f03f".replace(" ", "")))
def telemetry(data: bytes) -> None:
    otlp.load()
    try:
        found = otlp.read(data[0] % 6 if data else 0, data[1:], PLAIN_BYTES_MAX)
    except otlp.Unreadable:
        return
    assert len(found.points) <= otlp.MESSAGES_MAX


#: Processor time of one input.
SECONDS_MAX = 1.0


def run(name: str, data: bytes) -> None:
    """Raises what the target raises, and AssertionError when it takes long."""
    began_s = time.thread_time()
    TARGETS[name](data)
    took_s = time.thread_time() - began_s
    assert took_s < SECONDS_MAX, f"{took_s:.1f} s for {len(data)} bytes"


def drawn(name: str, draw: random.Random) -> bytes:
    """An input: a seed with some bytes changed, cut, doubled or put in, or any bytes."""
    if draw.random() < 0.1:
        return draw.randbytes(draw.choice((3, 20, 100, 400)))
    data = bytearray(draw.choice(SEEDS[name]))
    if draw.random() < 0.3:
        data[:2] = draw.randbytes(2)
    for _ in range(draw.choice((0, 1, 1, 3))):
        at, kind = draw.randrange(len(data) + 1), draw.randrange(4)
        if kind == 0:
            data[at : at + 1] = bytes([draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.getrandbits(8)))])
        elif kind == 1:
            del data[at : at + draw.choice((1, 4, 1000))]
        elif kind == 2:
            data[at:at] = draw.randbytes(draw.choice((1, 4, 100)))
        else:
            data[at:at] = data[: draw.randrange(len(data) + 1)]
    return bytes(data)
