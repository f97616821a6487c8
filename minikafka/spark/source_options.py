"""The options of `format("minikafka")`, with the names of Spark's own Kafka connector."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from minikafka.spark.claims import COORDINATOR_TOPICS
from minikafka.spark.metadata_log import METADATA_TOPIC
from minikafka.spark.security import Security

Key = tuple[str, int]
#: A timestamp in milliseconds for all partitions, or one for each; None: offsets are not chosen by time.
Times = int | tuple[tuple[Key, int], ...] | None
#: Default number of tasks for log directories that only executors see.
SHARES = 16
#: How often and at which interval a driver retries if offsets are unavailable or went back, like the connector's fetchOffset.numRetries
#: and fetchOffset.retryIntervalMs.
RETRIES, RETRY_MS = 3, 1000
EARLIEST, LATEST = -2, -1
#: The key of a stream's offsets under which a topic's id stands, beside its partitions' numbers.
TOPIC_ID = "id"
INTERNAL_TOPICS = COORDINATOR_TOPICS | {METADATA_TOPIC}
#: Properties of consumers and producers that Spark's connector refuses, and what to do instead.
READER_REFUSES = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "keys are bytes; convert them in the query",
    "value.deserializer": "values are bytes; convert them in the query",
    "enable.auto.commit": "a query keeps its own offsets",
    "interceptor.classes": "an interceptor could change records",
}
SINK_REFUSES = {"key.serializer": "keys are written as bytes", "value.serializer": "values are written as bytes"}


def _times(everywhere: str, each: str) -> Times:
    """startingTimestamp or, without it, startingOffsetsByTimestamp. Raises ValueError, AttributeError, TypeError."""
    if everywhere:
        return int(everywhere)
    if not each:
        return None
    return tuple(((topic, int(number)), int(time)) for topic, numbers in json.loads(each).items() for number, time in numbers.items())


class OptionError(ValueError):
    """A wrong or missing option; the text names it."""


class Given:
    """Options as they were given. Names may be in any case, as in Spark. Values that the connector refuses are never guessed at: a
    failOnDataLoss of "yes" that counted as false would lose records silently."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    @property
    def kafka(self) -> dict[str, str]:
        """The properties of the client, without their prefix."""
        return {name[6:]: value for name, value in self._options.items() if name.startswith("kafka.")}

    def has(self, name: str) -> bool:
        return name.lower() in self._options

    def text(self, name: str) -> str:
        """"" without the option."""
        return self._options.get(name.lower()) or ""

    def is_set(self, name: str, default: bool) -> bool:
        """A boolean. Raises OptionError."""
        said = self._options.get(name.lower())
        if said is None:
            return default
        said = said.strip() if name.startswith("kafka.") else said  # Kafka's clients take spaces off, Spark does not
        if said.lower() not in {"true", "false"}:
            raise OptionError(f"{name} {said!r}: expected true or false")
        return said.lower() == "true"

    def whole(self, name: str, least: int | None = None) -> int:
        """A whole number; 0 without the option. Raises OptionError."""
        said = self._options.get(name.lower())
        if said is None:
            return 0
        if not re.fullmatch(r"[-+]?[0-9]+", said):
            raise OptionError(f"an option cannot be read: {name} is {said!r}")
        if least is not None and int(said) < least:
            raise OptionError(f"{name} {said}: must be at least {least}")
        return int(said)

    def one_of(self, name: str, values: tuple[str, ...]) -> str:
        """One of these words; without the option the first one. Raises OptionError."""
        said = (self.text(name) or values[0]).lower()
        if said not in values:
            raise OptionError(f"{name} {said}: expected {' or '.join(values)}")
        return said


def check_kafka_options(given: Given, refused: Mapping[str, str]) -> None:
    """Refuse properties of Kafka's clients that Spark's connector refuses, because they would change what is read or written. Raises
    OptionError."""
    for name, why in refused.items():
        if given.has(f"kafka.{name}"):
            raise OptionError(f"kafka.{name} is not supported: {why}")


def _chosen(given: Given, is_required: bool) -> tuple[tuple[str, ...], str, tuple[Key, ...] | None]:
    """(topics, pattern, assigned partitions), of which one is given at most. Raises OptionError."""
    chosen = [name for name in ("assign", "subscribe", "subscribePattern") if given.has(name)]
    if len(chosen) > 1 or (is_required and not chosen):
        raise OptionError("give one of assign, subscribe and subscribePattern")
    topics = tuple(part.strip() for part in given.text("subscribe").split(",") if part.strip())
    pattern = given.text("subscribePattern").strip()
    if chosen in (["subscribe"], ["subscribePattern"]) and not topics and not pattern:
        raise OptionError(f"{chosen[0]} names no topic")
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError(f"subscribePattern {pattern!r}: {error}") from error
    if chosen != ["assign"]:
        return topics, pattern, None
    try:
        said = json.loads(given.text("assign"))
        if not all(isinstance(numbers, list) for numbers in said.values()):
            raise ValueError("expected a list of partitions for each topic")
        return topics, pattern, tuple((topic, int(number)) for topic, numbers in said.items() for number in numbers)
    except (ValueError, AttributeError, TypeError) as error:
        raise OptionError(f"an option cannot be read: assign: {error}") from error


def offsets_of(text: str) -> str | dict[Key, int]:
    """`earliest`, `latest`, or the offsets in JSON. Raises OptionError."""
    if (word := text.strip().lower()) in {"earliest", "latest"}:
        return word
    try:
        return from_json(json.loads(text))
    except (ValueError, AttributeError, TypeError) as error:
        raise OptionError(f"{text!r} is neither earliest, latest nor JSON of topics, partitions and offsets") from error


def from_json(said: Mapping[str, Mapping[str, int | str]]) -> dict[Key, int]:
    """Offsets from {topic: {"id": topic id, partition: offset}}. Raises ValueError, AttributeError, TypeError."""
    return {(topic, int(number)): int(offset) for topic, each in said.items() for number, offset in each.items() if number != TOPIC_ID}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options, named as in Spark's Kafka source; keys are in lower case. `share`: (i, n), read only every n-th partition, from i."""

    bootstrap: str = ""
    log_dirs: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[Key, ...] | None = None
    starting: str = ""
    ending: str = ""
    include_headers: bool = False
    mode: str = "records"
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int = 0
    min_partitions: int = 0
    security: Security = field(default_factory=Security)
    committed: bool = False
    starting_times: Times = None
    ending_times: Times = None
    latest_without_match: bool = False
    on_executors: bool = False
    check_crcs: bool = True
    retries: int = RETRIES
    retry_ms: int = RETRY_MS
    share: tuple[int, int] = (0, 1)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Parse Spark's options. Raises OptionError."""
        given = Given(options)
        get = given.text
        bootstrap, paths = get("kafka.bootstrap.servers"), get("logdirs") or get("path")
        if bool(bootstrap) == bool(paths):
            raise OptionError("give either kafka.bootstrap.servers or logDirs (comma separated; also as load(path))")
        topics, pattern, assigned = _chosen(given, bool(bootstrap))
        check_kafka_options(given, READER_REFUSES)
        where = (get("logDirsOn") or "driver").lower()
        if where not in {"driver", "executors"} or (where == "executors" and not paths):
            raise OptionError(f"logDirsOn {where}: expected driver, or with logDirs executors")
        try:
            retries, retry_ms = int(get("fetchoffset.numretries") or RETRIES), int(get("fetchoffset.retryintervalms") or RETRY_MS)
            security = Security.from_properties(given.kafka)
            starting = _times(get("startingtimestamp"), get("startingoffsetsbytimestamp"))
            ending = _times(get("endingtimestamp"), get("endingoffsetsbytimestamp"))
        except (ValueError, AttributeError, TypeError) as error:
            raise OptionError(f"an option cannot be read: {error}") from error
        least, most = given.whole("minOffsetsPerTrigger"), given.whole("maxOffsetsPerTrigger")
        if given.has("minOffsetsPerTrigger") and given.has("maxOffsetsPerTrigger") and least > most:
            raise OptionError(f"minOffsetsPerTrigger {least} is larger than maxOffsetsPerTrigger {most}")
        given.whole("maxRecordsPerPartition", least=1)
        return cls(
            bootstrap, tuple(part.strip() for part in paths.split(",") if part.strip()), topics, pattern, assigned,
            get("startingoffsets"), get("endingoffsets"), given.is_set("includeHeaders", False),
            given.one_of("mode", ("records", "batches")), given.is_set("failOnDataLoss", True), most, given.whole("minPartitions", least=1),
            security, given.one_of("kafka.isolation.level", ("read_uncommitted", "read_committed")) == "read_committed", starting, ending,
            given.one_of("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest", where == "executors",
            given.is_set("kafka.check.crcs", True), retries, retry_ms,
        )  # fmt: skip

    def shares(self) -> list[SourceOptions]:
        """Options for `minPartitions` tasks, each of which lists its own share of the partitions."""
        count = self.min_partitions or SHARES
        return [replace(self, share=(number, count), min_partitions=0) for number in range(count)]

    @property
    def named(self) -> list[str]:
        """The topics that must exist."""
        return sorted(set(self.topics) | {topic for topic, _ in self.assigned or ()})

    def includes(self, key: Key) -> bool:
        number, count = self.share
        return zlib.crc32(f"{key[0]}-{key[1]}".encode()) % count == number and self.names(key)

    def names(self, key: Key) -> bool:
        """Whether the query reads a partition, in this share of it or another one. As the connector does, a pattern may match any part of
        a name, and matches no internal topic."""
        if self.assigned is not None:
            return key in self.assigned
        if self.topics:
            return key[0] in self.topics
        if self.pattern:
            return key[0] not in INTERNAL_TOPICS and re.search(self.pattern, key[0]) is not None
        return not key[0].startswith("__")

    def check_batch(self) -> None:
        """Refuse what has no meaning in a batch query. Raises OptionError."""
        for name, text, times, wrong in (
            ("startingOffsets", self.starting, self.starting_times, LATEST), ("endingOffsets", self.ending, self.ending_times, EARLIEST)
        ):  # fmt: skip
            said = offsets_of(text) if text and times is None else {}
            word = "latest" if wrong == LATEST else "earliest"
            if said == word:
                raise OptionError(f"{name} cannot be {word} in a batch query")
            for (topic, number), offset in said.items() if isinstance(said, dict) else ():
                if offset == wrong:
                    raise OptionError(f"{name} of {topic}-{number} cannot be {word} ({wrong}) in a batch query")

    def check_stream(self) -> None:
        """Refuse what has no meaning in a stream. Raises OptionError."""
        if self.ending or self.ending_times is not None:
            raise OptionError("a stream has no end: leave out endingOffsets, endingOffsetsByTimestamp and endingTimestamp")
