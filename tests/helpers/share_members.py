"""Members of a share group in processes of their own, Apache Kafka's VerifiableShareConsumer, and what they say about each record."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any

from helpers.apache_kafka import NEXT, java, wait_until

#: (topic, partition, offset) of a record.
Place = tuple[str, int, int]


class ShareMember:
    """One member that acknowledges what it reads; a context manager that ends it."""

    def __init__(self, bootstrap: str, group: str, topic: str, output: Path, mode: str = "sync") -> None:
        """`mode`: of acknowledging, `auto`, `sync` or `async`."""
        self._path = output
        arguments = ["--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group, "--acknowledgement-mode", mode]
        arguments += ["--offset-reset-strategy", "earliest"]
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                [*java(heap_mb=128, version=NEXT), "org.apache.kafka.tools.VerifiableShareConsumer", *arguments],
                stdout=file, stderr=file,
            )  # fmt: skip

    def __enter__(self) -> ShareMember:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """It acknowledges what it has read, and leaves the group."""
        self.process.terminate()
        self.process.wait(30)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def output(self) -> str:
        """What it has printed."""
        return self._path.read_text(errors="replace")

    def events(self) -> list[dict[str, Any]]:
        """What it has said, but for a last line that is not yet whole."""
        return [json.loads(line) for line in self.output().splitlines() if line.startswith("{") and line.endswith("}")]

    def places(self, name: str) -> list[tuple[int, Place]]:
        """(time in ms, record) of each record that its events `name` are about."""
        found = []
        for event in self.events():
            if event["name"] == name and event.get("success", True):
                for entry in event["partitions"]:
                    found += [(event["timestamp"], (entry["topic"], entry["partition"], offset)) for offset in entry["offsets"]]
        return found


class ShareMembers:
    """All members of one group that there have been."""

    def __init__(self, bootstrap: str, group: str, topic: str, directory: Path) -> None:
        self._given = bootstrap, group, topic
        self._directory = directory
        self.members: list[ShareMember] = []

    def add(self, mode: str = "sync") -> ShareMember:
        """A member more."""
        member = ShareMember(*self._given, self._directory / f"share-member-{len(self.members)}.txt", mode)
        self.members.append(member)
        return member

    def __enter__(self) -> ShareMembers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for member in self.members:
            member.kill()
            if error is not None:
                print(member.output()[-3000:])

    def acknowledged(self) -> dict[Place, int]:
        """Each acknowledged record, and when its member knew of that (ms)."""
        found: dict[Place, int] = {}
        for member in self.members:
            for time_ms, place in member.places("offsets_acknowledged"):
                found[place] = min(time_ms, found.get(place, time_ms))
        return found

    def deliveries(self) -> Counter[Place]:
        """How often each record was read."""
        return Counter(place for member in self.members for _, place in member.places("records_consumed"))

    def wait_for_more(self, count: int = 200, timeout_s: float = 60.0) -> None:
        """Until `count` further records have been acknowledged."""
        goal = len(self.acknowledged()) + count
        wait_until(lambda: len(self.acknowledged()) >= goal, timeout_s, f"{count} more records acknowledged by the share group")

    def delivered_after_acknowledgement(self) -> list[Place]:
        """Records that a member read although another, or it itself, knew that they are acknowledged: there must be none."""
        known = self.acknowledged()
        read = [(time_ms, place) for member in self.members for time_ms, place in member.places("records_consumed")]
        return [place for time_ms, place in read if place in known and time_ms > known[place]]
