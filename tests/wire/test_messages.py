"""Every message in every version: declaration, reference grammar, compiled codecs, and independent judges."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from helpers.wire_values import all_messages, message_versions, random_message

from minikafka.wire.compiler import NUMBERS_AT_ONCE, STEP_ELEMENTS
from minikafka.wire.errors import NotEncodable, WireError
from minikafka.wire.grammar import from_container, grammar, to_container
from minikafka.wire.header import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    skip_tagged_fields,
)
from minikafka.wire.message import Message
from minikafka.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from minikafka.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from minikafka.wire.registry import Api, api, apis
from minikafka.wire.types import STRING_BYTES_MAX, TAGGED_FIELDS_MAX, Array, Fixed, Versions
from minikafka.wire.varint import unsigned_varint

GOLDEN = Path(__file__).parent.parent / "golden"
MESSAGES = all_messages()
CUTS_MAX = 60


def frames(name: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / "wire" / f"{name}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def snake(name: str) -> str:
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.__name__)
def test_compiled_codecs_equal_the_grammar(message: type[Message]) -> None:
    for version in range(message.MIN_VERSION, message.MAX_VERSION + 1):
        tree = grammar(message, version)
        for seed in range(3):
            value = random_message(message, version, seed)
            data = value.encode(version)
            assert data == tree.build(to_container(tree, value)), f"v{version}: built otherwise than the grammar"
            decoded, end = message.decode_from(version, data + b"trailing")
            assert (decoded, end) == (value, len(data)), f"v{version}: round trip"
            assert from_container(tree, tree.parse(data)) == value, f"v{version}: the grammar reads otherwise"
            assert message.decode_from(version, memoryview(b"\x55" * 7 + data), 7) == (value, len(data) + 7)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.__name__)
def test_codecs_in_steps_read_and_write_the_same(message: type[Message]) -> None:
    for version in range(message.MIN_VERSION, message.MAX_VERSION + 1):
        for seed in range(3):
            value = random_message(message, version, seed)
            data = value.encode(version)
            assert through(message.decode_in_steps(version, b"\x55" * 7 + data, 7)) == value, f"v{version}"
            pieces: list[bytes] = []
            through(value.encode_in_steps(version, pieces))
            assert b"".join(pieces) == data, f"v{version}"
        for cut in range(min(len(data), 40)):
            with pytest.raises(WireError):
                through(message.decode_in_steps(version, data[:cut]))


def through(steps: Generator[int, None, Any]) -> Any:
    """Drive a codec in steps to its end."""
    while True:
        try:
            next(steps)
        except StopIteration as over:
            return over.value


@pytest.mark.parametrize(("kind", "field", "element"), [
    (FindCoordinatorRequest, "coordinator_keys", "k"), (DescribeLogDirsRequest, "topics", None), (DescribeLogDirsRequest, "partitions", 7),
])  # fmt: skip
def test_steps_are_of_bounded_length(kind: Any, field: str, element: Any) -> None:
    many = 20 * NUMBERS_AT_ONCE
    topic = DescribeLogDirsRequest.DescribableLogDirTopic
    if field == "partitions":
        value = kind(topics=[topic(topic="t", partitions=[element] * many)])
    else:
        value = kind(**{field: [topic(topic="t") if element is None else element] * many})
    version = kind.MAX_VERSION
    data, pieces = value.encode(version), []
    decoding = list(kind.decode_in_steps(version, data))
    encoding = list(value.encode_in_steps(version, pieces))
    for steps in (decoding, encoding):
        assert len(steps) >= 20 and max(later - before for before, later in itertools.pairwise(steps)) <= 2 * STEP_ELEMENTS
    assert b"".join(pieces) == data


def test_sections_of_tagged_fields_and_texts_have_bounds() -> None:
    section = unsigned_varint(TAGGED_FIELDS_MAX) + b"\x09\0" * TAGGED_FIELDS_MAX
    assert skip_tagged_fields(section, 0) == len(section)
    assert FindCoordinatorRequest.decode(4, b"\0\1" + section) == FindCoordinatorRequest()
    section = unsigned_varint(TAGGED_FIELDS_MAX + 1) + b"\x09\0" * (TAGGED_FIELDS_MAX + 1)
    with pytest.raises(WireError, match="tagged fields"):
        skip_tagged_fields(section, 0)
    with pytest.raises(WireError, match="tagged fields"):
        FindCoordinatorRequest.decode(4, b"\0\1" + section)

    for text in (b"x" * STRING_BYTES_MAX, b"\xff" * (STRING_BYTES_MAX // 3)):
        decoded = FindCoordinatorRequest.decode(3, unsigned_varint(len(text) + 1) + text + b"\0\0")
        assert len(decoded.encode(3)) <= STRING_BYTES_MAX + 5
    for text in (b"x" * (STRING_BYTES_MAX + 1), b"\xff" * (STRING_BYTES_MAX // 3 + 1)):
        with pytest.raises(WireError, match="more than 32767 bytes"):
            FindCoordinatorRequest.decode(3, unsigned_varint(len(text) + 1) + text + b"\0\0")
    with pytest.raises(NotEncodable, match="more than 32767 bytes"):
        FindCoordinatorRequest(key="x" * (STRING_BYTES_MAX + 1)).encode(3)
    encoded = FindCoordinatorResponse(error_message="é" * STRING_BYTES_MAX).encode(3)
    assert FindCoordinatorResponse.decode(3, encoded).error_message == "é" * ((STRING_BYTES_MAX - 3) // 2)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.__name__)
def test_cut_and_random_bytes_raise_nothing_but_wire_errors(message: type[Message]) -> None:
    for version in range(message.MIN_VERSION, message.MAX_VERSION + 1):
        draw = random.Random(f"{message.__name__}{version}")
        data = random_message(message, version, 1).encode(version)
        cuts = range(len(data)) if len(data) <= CUTS_MAX else sorted(draw.sample(range(len(data)), CUTS_MAX))
        for cut in cuts:
            with pytest.raises(WireError):
                message.decode(version, data[:cut])
        for _ in range(20):
            noise = bytearray(data or b"\0")
            for _ in range(draw.randrange(1, 4)):
                noise[draw.randrange(len(noise))] = draw.randrange(256)
            for buffer in (bytes(noise), draw.randbytes(draw.randrange(80))):
                try:
                    message.decode(version, buffer)
                except WireError:
                    continue


def test_lengths_are_checked_before_anything_is_allocated() -> None:
    metadata = api(3)
    assert metadata is not None
    for claim in (b"\x7f\xff\xff\xff", b"\x00\x00\x00\x0a"):
        with pytest.raises(WireError, match="more elements than bytes"):
            metadata.request.decode(1, claim + b"\x00\x01")
    with pytest.raises(WireError, match="more elements than bytes"):
        metadata.request.decode(9, b"\xff\xff\xff\xff\x0f" + b"\0" * 8)
    with pytest.raises(WireError, match="more tagged fields than bytes"):
        metadata.request.decode(9, b"\x01\x00\x00\x00\xff\xff\xff\xff\x00")


def test_a_field_that_the_version_lacks_must_hold_its_default() -> None:
    heartbeat = api(12)
    assert heartbeat is not None
    with pytest.raises(NotEncodable, match="group_instance_id"):
        heartbeat.request(group_instance_id="x").encode(0)  # type: ignore[call-arg]
    fetch = api(1)
    assert fetch is not None
    assert fetch.request(session_epoch=3).encode(4) == fetch.request().encode(4), "an ignorable field is left out"  # type: ignore[call-arg]


# -- the declarations against Kafka's, as data ---------------------------------------------------------------------------


def _declared() -> dict[str, dict[str, Any]]:
    groups = json.loads((GOLDEN / "messages.json").read_text())
    return {m["name"]: m for entries in groups.values() for m in entries}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: m.__name__)
def test_declarations_are_kafkas(message: type[Message]) -> None:
    schema = _declared()[message.__name__]
    span = Versions.parse(schema["validVersions"])
    assert (span.low, span.high) == (message.MIN_VERSION, message.MAX_VERSION)
    flexible = Versions.parse(schema.get("flexibleVersions", "none"))
    assert (flexible.low if flexible.low <= flexible.high else None) == message.FLEXIBLE_FROM
    commons = {entry["name"]: entry["fields"] for entry in schema.get("commonStructs", [])}
    _compare(message, schema["fields"], commons)


@pytest.mark.parametrize("entry", apis(), ids=lambda entry: entry.name)
def test_the_table_of_apis_says_what_its_messages_say(entry: Api) -> None:
    request, response = entry.request, entry.response
    assert (entry.key, entry.key) == (request.API_KEY, response.API_KEY)
    unstable = request.LATEST_UNSTABLE
    assert (entry.min_version, entry.max_version + unstable) == (request.MIN_VERSION, request.MAX_VERSION)
    assert (response.MIN_VERSION, response.MAX_VERSION) == (request.MIN_VERSION, request.MAX_VERSION)
    assert entry.flexible_from == request.FLEXIBLE_FROM == response.FLEXIBLE_FROM
    assert set(entry.listeners) == set(request.LISTENERS)


def _compare(owner: Any, fields: list[dict[str, Any]], commons: dict[str, Any]) -> None:
    assert [f.name for f in owner.FIELDS] == [snake(f["name"]) for f in fields]
    for declared, schema in zip(owner.FIELDS, fields, strict=True):
        kind = schema["type"]
        element = declared.type.element if isinstance(declared.type, Array) else (declared.type or declared.struct)
        assert isinstance(declared.type, Array) == kind.startswith("[]"), declared.name
        assert declared.versions == Versions.parse(schema.get("versions", schema.get("taggedVersions", "0+"))), declared.name
        assert declared.nullable == Versions.parse(schema.get("nullableVersions")), declared.name
        assert declared.tag == schema.get("tag"), declared.name
        assert declared.ignorable == (schema.get("ignorable") is True), declared.name
        assert declared.map_key == bool(schema.get("mapKey")), declared.name
        bare = kind.removeprefix("[]")
        if isinstance(element, type):
            _compare(element, schema.get("fields") or commons[bare], commons)
        else:
            assert element.name == bare, declared.name
        if "default" in schema and isinstance(declared.type, Fixed) and bare != "bool":
            assert declared.default_value() == type(declared.default_value())(int(str(schema["default"]), 0)), declared.name


def test_every_api_of_kafka_is_declared() -> None:
    keys = {
        m["apiKey"]
        for m in json.loads((GOLDEN / "messages.json").read_text())["rpc"]
        if m.get("validVersions") not in (None, "none") and "apiKey" in m
    }
    assert {entry.key for entry in apis()} == keys
    assert all(entry.request.API_KEY == entry.response.API_KEY == entry.key for entry in apis())


# -- what a real Apache Kafka 4.3 sent and answered ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["apis", "conversations"])
def test_frames_of_apache_kafka_decode_and_encode_to_the_same_bytes(name: str) -> None:
    count = 0
    for frame in frames(name):
        entry = api(frame["api_key"])
        if entry is None or not frame.get("request_hex"):
            continue
        version = frame["api_version"]
        request = memoryview(bytes.fromhex(frame["request_hex"]))
        header, position = decode_request_header(request)
        assert (header.api_key, header.api_version) == (frame["api_key"], version)
        assert encode_request_header(header.api_key, version, header.correlation_id, header.client_id) == request[:position]
        decoded, end = entry.request.decode_from(version, request, position)
        assert end == len(request)
        assert decoded.encode(version) == request[position:]
        count += 1
        if frame.get("response_hex"):
            response = memoryview(bytes.fromhex(frame["response_hex"]))
            correlation_id, position = decode_response_header(response, entry.key, version)
            assert correlation_id == header.correlation_id
            assert encode_response_header(entry.key, version, correlation_id) == response[:position]
            answered, end = entry.response.decode_from(version, response, position)
            assert end == len(response)
            assert answered.encode(version) == response[position:]
    assert count > 100


# -- an independent codec ------------------------------------------------------------------------------------------------


def _kio_class(message: type[Message], version: int) -> Any:
    import importlib

    kind = "request" if message.__name__.endswith("Request") else "response"
    name = snake(message.__name__.removesuffix("Request").removesuffix("Response"))
    try:
        module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    except ModuleNotFoundError:
        return None
    return getattr(module, message.__name__, None)


@pytest.mark.parametrize("entry", apis(), ids=lambda entry: entry.name)
def test_kio_reads_what_we_write_and_writes_the_same(entry: Any) -> None:
    import io

    from kio.serial import entity_reader, entity_writer

    compared = 0
    for message in (entry.request, entry.response):
        for version in range(message.MIN_VERSION, message.MAX_VERSION + 1):
            kio = _kio_class(message, version)
            if kio is None:
                continue
            for seed in range(2):
                data = _for_kio(message, version, seed)
                try:
                    instance, size = entity_reader(kio)(data, 0)
                except Exception as error:
                    # kio types times and error codes: values that Kafka would never send do not exist there.
                    if type(error).__name__ in ("ValueError", "OverflowError", "OutOfBoundValue", "DecodeError", "TypeError"):
                        continue
                    raise
                assert size == len(data), f"{message.__name__} v{version}"
                written = io.BytesIO()
                entity_writer(kio)(written, instance)
                assert written.getvalue() == data, f"{message.__name__} v{version}"
                compared += 1
    assert compared or _kio_class(entry.request, entry.request.MAX_VERSION) is None


def _for_kio(message: type[Message], version: int, seed: int) -> bytes:
    value = random_message(message, version, 100 + seed)
    _tame(value)
    return value.encode(version)


def _tame(value: Any) -> None:
    """Values that a typed codec accepts as well: real error codes, times within its range."""
    for declared in value.FIELDS:
        held = getattr(value, declared.name)
        if held == declared.default_value():
            continue
        if isinstance(held, list):
            for item in held:
                if hasattr(item, "FIELDS"):
                    _tame(item)
            if isinstance(declared.type, Array) and declared.name.endswith("error_codes"):
                setattr(value, declared.name, [0] * len(held))
        elif hasattr(held, "FIELDS"):
            _tame(held)
        elif declared.name.endswith("error_code"):
            setattr(value, declared.name, 3)
        elif isinstance(held, int) and not isinstance(held, bool) and isinstance(declared.type, Fixed) and declared.type.size == 8:
            setattr(value, declared.name, abs(held) % 1_000_000_000_000)
        elif isinstance(held, int) and not isinstance(held, bool) and declared.name.endswith("_ms"):
            setattr(value, declared.name, abs(held) % 100_000)


def test_message_versions_are_many() -> None:
    assert sum(1 for _ in message_versions()) > 500
