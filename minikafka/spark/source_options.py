"""The options of `format("minikafka")`, with the names of Spark's own Kafka connector."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from minikafka.spark.security import Security

Key = tuple[str, int]
#: A timestamp in milliseconds for all partitions, or one for each; None: offsets are not chosen by time.
Times = int | tuple[tuple[Key, int], ...] | None
#: Default number of tasks for log directories that only executors see.
SHARES = 16
#: How often and at which interval a driver retries if offsets are unavailable or went back, like the connector's fetchOffset.numRetries
#: and fetchOffset.retryIntervalMs.
RETRIES, RETRY_MS = 3, 1000


def _times(everywhere: str | None, each: str | None) -> Times:
    """startingTimestamp or, without it, startingOffsetsByTimestamp. Raises ValueError, AttributeError, TypeError."""
    if everywhere:
        return int(everywhere)
    if not each:
        return None
    return tuple(((topic, int(number)), int(time)) for topic, numbers in json.loads(each).items() for number, time in numbers.items())


class OptionError(ValueError):
    """A wrong or missing option; the text names it."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options, named as in Spark's Kafka source; keys are in lower case. `share`: (i, n), read only every n-th partition, from i."""

    bootstrap: str = ""
    log_dirs: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[Key, ...] = ()
    starting: str = ""
    ending: str = "latest"
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
        get = {key.lower(): value for key, value in options.items()}.get
        bootstrap, paths = get("kafka.bootstrap.servers", "") or "", get("logdirs") or get("path") or ""
        if bool(bootstrap) == bool(paths):
            raise OptionError("give either kafka.bootstrap.servers or logDirs (comma separated; also as load(path))")
        chosen = [name for name in ("assign", "subscribe", "subscribepattern") if get(name)]
        if len(chosen) > 1 or (bootstrap and not chosen):
            raise OptionError("give one of assign, subscribe and subscribePattern")
        isolation = (get("kafka.isolation.level") or "read_uncommitted").lower()
        if isolation not in {"read_uncommitted", "read_committed"}:
            raise OptionError(f"kafka.isolation.level {isolation}: expected read_uncommitted or read_committed")
        where = (get("logdirson") or "driver").lower()
        if where not in {"driver", "executors"} or (where == "executors" and not paths):
            raise OptionError(f"logDirsOn {where}: expected driver, or with logDirs executors")
        strategy = (get("startingoffsetsbytimestampstrategy") or "error").lower()
        if strategy not in {"error", "latest"}:
            raise OptionError(f"startingOffsetsByTimestampStrategy {strategy}: expected error or latest")
        mode = (get("mode") or "records").lower()
        if mode not in {"records", "batches"}:
            raise OptionError(f"mode {mode}: expected records or batches")
        kafka = {key.lower()[6:]: value for key, value in options.items() if key.lower().startswith("kafka.")}
        try:
            assigned = tuple((topic, int(number)) for topic, numbers in json.loads(get("assign") or "{}").items() for number in numbers)
            per_trigger, pieces = int(get("maxoffsetspertrigger") or 0), int(get("minpartitions") or 0)
            retries, retry_ms = int(get("fetchoffset.numretries") or RETRIES), int(get("fetchoffset.retryintervalms") or RETRY_MS)
            security = Security.from_properties(kafka)
            starting = _times(get("startingtimestamp"), get("startingoffsetsbytimestamp"))
            ending = _times(get("endingtimestamp"), get("endingoffsetsbytimestamp"))
        except (ValueError, AttributeError, TypeError) as error:
            raise OptionError(f"an option cannot be read: {error}") from error
        return cls(
            bootstrap, tuple(part.strip() for part in paths.split(",") if part.strip()),
            tuple(part.strip() for part in (get("subscribe") or "").split(",") if part.strip()), get("subscribepattern") or "", assigned,
            get("startingoffsets") or "", get("endingoffsets") or "latest", (get("includeheaders") or "false").lower() == "true", mode,
            (get("failondataloss") or "true").lower() == "true", per_trigger, pieces, security,
            isolation == "read_committed", starting, ending, strategy == "latest", where == "executors",
            (get("kafka.check.crcs") or "true").lower() == "true", retries, retry_ms,
        )  # fmt: skip

    def shares(self) -> list[SourceOptions]:
        """Options for `minPartitions` tasks, each of which lists its own share of the partitions."""
        count = self.min_partitions or SHARES
        return [replace(self, share=(number, count), min_partitions=0) for number in range(count)]

    @property
    def named(self) -> list[str]:
        """The topics that must exist."""
        return sorted(set(self.topics) | {topic for topic, _ in self.assigned})

    def includes(self, key: Key) -> bool:
        number, count = self.share
        return zlib.crc32(f"{key[0]}-{key[1]}".encode()) % count == number and self._names(key)

    def _names(self, key: Key) -> bool:
        if self.assigned:
            return key in self.assigned
        if self.topics:
            return key[0] in self.topics
        if self.pattern:
            return re.fullmatch(self.pattern, key[0]) is not None
        return not key[0].startswith("__")
