"""Lines of produces while leaderships move, as stories on virtual time: what is held, handed on, served or refused; when it may go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from minikafka.core.partition.handover_lines import (
    CATCH_UP_MS_MAX,
    DRAIN_MS_MAX,
    HELD_BYTES_MAX,
    QUIET_MS,
    RETRY_MS,
    Drained,
    Effect,
    Entry,
    Fail,
    Finish,
    HandOn,
    HandoverLines,
    Hold,
    Leadership,
    Notice,
    PartitionStatus,
    Prepared,
    Release,
    Serve,
    Target,
    WaitForFollowers,
)
from minikafka.wire.errors import ErrorCode

KEY, OTHER = (b"t" * 16, 0), (b"t" * 16, 1)
WINDOW_MS = 1_000
APPENDING, HELD, NOBODY = PartitionStatus(is_appending=True), PartitionStatus(is_held=True), PartitionStatus()


def led(epoch: int = 5, port: int = 2) -> PartitionStatus:
    return PartitionStatus(target=Target("host", port, epoch))


@dataclass(frozen=True)
class Request:
    name: str
    size: int = 10
    source: str = "client"


class Story:
    """A broker's lines on virtual time. `said`: what became of requests, in order, in words."""

    def __init__(self, window_ms: int = WINDOW_MS) -> None:
        self.now_ms = 5_000
        self.lines = HandoverLines(window_ms)
        self.said: list[str] = []
        self.sent: list[tuple[Entry, Target]] = []
        self.others: list[Effect] = []

    def tell(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, HandOn):
                self.sent.append((effect.entry, effect.target))
                self.said.append(f"{effect.entry.held.name} to {effect.target.port}")
            elif isinstance(effect, Serve):
                self.said.append(f"{effect.held.name} served")
            elif isinstance(effect, Fail):
                self.said.append(f"{effect.held.name} {effect.code.name}")
            elif isinstance(effect, Finish):
                self.said.append(f"{effect.held.name} {effect.answer}{' with hint' if effect.hint else ''}")
            elif not isinstance(effect, Notice):
                self.others.append(effect)

    def lose(self) -> None:
        self.lines.leadership_lost(KEY, False, self.now_ms)

    def produce(self, *names: str, status: PartitionStatus = NOBODY) -> None:
        for name in names:
            assert self.lines.accepts(KEY, status, self.now_ms), name
            self.tell(self.lines.take(KEY, Request(name), status, self.now_ms))

    def change(self, status: PartitionStatus) -> None:
        self.tell(self.lines.status_changed(KEY, status, self.now_ms))

    def answer(self, code: ErrorCode | None = ErrorCode.NONE, status: PartitionStatus | None = None) -> None:
        entry, target = self.sent.pop(0)
        current = PartitionStatus(target=target) if status is None else status
        self.tell(self.lines.answered(entry, target, code, "gone" if code is None else code.name, current, self.now_ms))

    def pass_to_deadline(self) -> int:
        deadline_ms = self.lines.next_deadline()
        assert deadline_ms is not None
        assert not self.lines.on_deadline(deadline_ms - 1), "nothing is done before its time"
        passed_ms, self.now_ms = deadline_ms - self.now_ms, deadline_ms
        self.tell(self.lines.on_deadline(deadline_ms))
        return passed_ms

    def take_others(self) -> list[Effect]:
        others, self.others = self.others, []
        return others


def leaving(*, behind: bool = False) -> Story:
    story = Story()
    story.tell(story.lines.prepare([Leadership(KEY, False, 3, behind)], story.now_ms))
    return story


def test_one_at_a_time_until_the_new_leader_has_answered_as_one() -> None:
    story = Story()
    story.lose()
    story.produce("a", "b", "c")
    assert story.said == []
    story.change(led())
    assert story.said == ["a to 2"]
    story.answer()
    assert story.said[1:] == ["a NONE", "b to 2", "c to 2"]
    story.produce("d", status=led())
    assert story.said[-1] == "d to 2"
    for _ in range(3):
        story.answer()
    assert story.lines.waiting == 0 and story.lines.bytes == 0 and story.lines.outcomes["handed_on"] == 4


def test_a_new_leader_that_does_not_know_yet_is_asked_again_until_the_time_is_up() -> None:
    story = Story()
    story.lose()
    story.produce("a", "b", status=led())
    asked = 0
    while story.lines.waiting:
        if story.sent:
            story.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            asked += 1
        assert story.pass_to_deadline() <= RETRY_MS
    assert asked > WINDOW_MS // RETRY_MS and story.now_ms >= 5_000 + WINDOW_MS
    assert story.said[-2:] == ["a NOT_LEADER_OR_FOLLOWER", "b NOT_LEADER_OR_FOLLOWER"]
    assert story.lines.next_deadline() is None


def test_batches_in_flight_when_the_connection_broke_are_never_resent() -> None:
    story = Story()
    story.lose()
    story.produce("a", "b", status=led())
    story.answer(None)
    assert story.said == ["a to 2", "a REQUEST_TIMED_OUT", "b NOT_LEADER_OR_FOLLOWER"]
    assert not story.lines.accepts(KEY, led(), story.now_ms), "its client had better ask the new leader itself"
    story.lose()
    assert story.lines.accepts(KEY, NOBODY, story.now_ms), "another leadership, another chance"


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])
def test_an_answer_that_is_not_for_the_client_sends_all_back_in_order(code: ErrorCode) -> None:
    story = Story()
    story.lose()
    story.produce("a", "b", status=led())
    story.answer(code)
    assert story.said[1:] == ["a NOT_LEADER_OR_FOLLOWER", "b NOT_LEADER_OR_FOLLOWER"] and story.lines.waiting == 0


def test_leaderships_that_no_other_broker_can_take_are_not_held() -> None:
    story = Story()
    leaderships = [Leadership(KEY, True, 3, True), Leadership(OTHER, False, 1, True)]
    story.tell(story.lines.prepare(leaderships, story.now_ms))
    assert story.take_others() == [Prepared(0, None)]
    off = Story(window_ms=0)
    off.tell(off.lines.prepare([Leadership(KEY, False, 3, True)], off.now_ms))
    off.tell(off.lines.drain(off.now_ms))
    assert off.take_others() == [Prepared(0, None), Drained()]
    off.lose()
    assert not off.lines.accepts(KEY, HELD, off.now_ms)


def test_the_controller_is_asked_when_every_follower_has_everything() -> None:
    story = Story()
    story.tell(story.lines.prepare([Leadership(KEY, False, 3, True), Leadership(OTHER, False, 2, True)], story.now_ms))
    waits = [WaitForFollowers(KEY, CATCH_UP_MS_MAX), WaitForFollowers(OTHER, CATCH_UP_MS_MAX)]
    assert story.take_others() == [Hold(KEY), Hold(OTHER), *waits]
    story.now_ms += 7
    story.tell(story.lines.caught_up(OTHER, story.now_ms))
    story.tell(story.lines.caught_up(OTHER, story.now_ms))
    assert story.take_others() == []
    story.tell(story.lines.caught_up(KEY, story.now_ms))
    assert story.take_others() == [Prepared(2, 7)]
    assert leaving().take_others() == [Hold(KEY), Prepared(1, 0)], "nobody is behind"


@pytest.mark.parametrize("behind", [False, True])
def test_nothing_is_prepared_before_the_last_of_very_many_leaderships(behind: bool) -> None:
    story = Story()
    story.tell(story.lines.prepare([Leadership(KEY, False, 3, behind)], story.now_ms, is_last=False))
    story.tell(story.lines.caught_up(KEY, story.now_ms))
    assert story.take_others() == [Hold(KEY), *([WaitForFollowers(KEY, CATCH_UP_MS_MAX)] if behind else [])]
    story.now_ms += 4
    story.tell(story.lines.prepare([Leadership(OTHER, False, 2, False)], story.now_ms))
    assert story.take_others() == [Hold(OTHER), Prepared(2, 4)]


def test_a_leadership_that_stays_serves_what_it_held_late_rather_than_never() -> None:
    story = leaving()
    story.take_others()
    story.produce("a", "b", status=HELD)
    assert story.pass_to_deadline() == WINDOW_MS
    assert story.take_others() == [Release(KEY)]
    story.change(APPENDING)
    assert story.said == ["a served", "b served"] and story.lines.outcomes["served"] == 2


def test_a_leadership_that_comes_back_serves_after_what_is_under_way() -> None:
    story = Story()
    story.lose()
    story.produce("a", "b", status=led())
    story.change(APPENDING)
    assert story.said == ["a to 2"]
    story.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, APPENDING)
    story.pass_to_deadline()
    assert story.said[1:] == ["a served", "b served"]


def test_no_request_waits_longer_than_the_window() -> None:
    story = Story()
    story.lose()
    story.produce("a")
    assert story.pass_to_deadline() == WINDOW_MS
    assert story.said == ["a NOT_LEADER_OR_FOLLOWER"] and not story.lines.accepts(KEY, NOBODY, story.now_ms)
    assert story.lines.next_deadline() is None, "nothing is remembered"


def test_a_broker_may_stop_when_there_was_no_late_request_for_a_while() -> None:
    story = leaving()
    story.lose()
    story.produce("a", status=led())
    story.take_others()
    story.tell(story.lines.drain(story.now_ms))
    story.now_ms += QUIET_MS
    assert not story.lines.on_deadline(story.now_ms), "one is under way"
    story.answer()
    assert story.take_others() == [Release(KEY), Drained()]


def test_a_broker_without_late_requests_stops_after_the_quiet_time() -> None:
    story = Story()
    story.lose()
    story.produce("a", status=led())
    story.answer()
    story.tell(story.lines.drain(story.now_ms))
    assert story.take_others() == [] and story.pass_to_deadline() == QUIET_MS and story.take_others() == [Drained()]
    quiet = Story()
    quiet.tell(quiet.lines.drain(quiet.now_ms))
    assert quiet.take_others() == [Drained()], "there was nothing"


def test_late_requests_are_refused_and_finally_abandoned() -> None:
    """A producer that is at it all the time: handed on for so long, refused for so long."""
    story = Story()
    story.lose()
    story.produce("first", status=led())
    story.answer()
    begun_ms = story.now_ms
    story.tell(story.lines.drain(story.now_ms))
    handed_on = refused = 0
    while Drained() not in story.others:
        if story.lines.accepts(KEY, led(), story.now_ms):
            story.tell(story.lines.take(KEY, Request("late"), led(), story.now_ms))
            story.answer()
            handed_on += 1
        else:
            refused += 1
        story.now_ms += 10
        story.tell(story.lines.on_deadline(story.now_ms))
    assert handed_on == DRAIN_MS_MAX // 10 and refused == DRAIN_MS_MAX // 10
    assert story.now_ms == begun_ms + 2 * DRAIN_MS_MAX


def test_memory_and_internal_topics_have_their_bounds() -> None:
    story = Story()
    story.lose()
    assert not story.lines.accepts(OTHER, PartitionStatus(is_internal=True, is_held=True), story.now_ms)
    story.tell(story.lines.take(KEY, Request("big", HELD_BYTES_MAX - 1), NOBODY, story.now_ms))
    story.produce("small")
    assert not story.lines.accepts(KEY, NOBODY, story.now_ms), "64 MiB are held"
    story.change(APPENDING)
    assert story.lines.accepts(KEY, NOBODY, story.now_ms)


def test_requests_that_wait_at_the_end_are_refused_and_those_under_way_get_one_answer() -> None:
    story = Story()
    story.lose()
    story.produce("a", "b", status=led())
    story.tell(story.lines.close())
    assert story.said[1:] == ["b NOT_LEADER_OR_FOLLOWER"] and not story.lines.accepts(KEY, HELD, story.now_ms)
    story.answer(None)
    assert story.said[2:] == ["a REQUEST_TIMED_OUT"] and story.lines.waiting == 0 and story.lines.next_deadline() is None


def test_the_hint_waits_for_a_client_without_other_requests() -> None:
    story = Story()
    story.lose()
    story.produce("a", "b", status=led())
    story.answer()
    story.answer()
    assert [line for line in story.said if "NONE" in line] == ["a NONE", "b NONE"]
    story.produce("c", status=led())
    story.answer()
    assert story.said[-1] == "c NONE with hint"


def test_a_held_is_anything_with_a_size_and_a_source() -> None:
    story = Story()
    story.lose()
    story.tell(story.lines.take(KEY, SimpleNamespace(name="x", size=3, source=object()), NOBODY, story.now_ms))
    assert story.lines.bytes == 3 and story.lines.waiting_keys() == [KEY]
