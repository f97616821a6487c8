"""A broker's life as stories: what it asks the controller and when, on virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from minikafka.core.broker_lifecycle import (
    CONTROLLER_SILENCE_MS_MAX,
    LATE_ANSWERS_MAX,
    LATE_PART,
    REGISTRATION_BACKOFF_MS,
    REGISTRATION_BACKOFF_MS_MAX,
    SHUTDOWN_HEARTBEAT_MS,
    SHUTDOWN_MS_MAX,
    BrokerLifecycle,
    Effect,
    Heartbeat,
    InService,
    LifecycleConfig,
    MayGo,
    Notice,
    OutOfService,
    Refused,
    Register,
    Registered,
    Unheard,
    cordoned_to_report,
)
from minikafka.core.metadata.versions import CORDONS
from minikafka.wire.errors import ErrorCode

INTERVAL_MS, SESSION_MS = 2_000, 9_000
HALF_MS = SESSION_MS // 2
RECONNECT_MS = 100
EPOCH = 7


class Story:
    """One broker on virtual time. `effects` are those of the last event, `notices` all lines of the log."""

    def __init__(self, reconnect_ms: int = RECONNECT_MS) -> None:
        self.now_ms = 1_000
        self.core = BrokerLifecycle(LifecycleConfig(1, INTERVAL_MS, SESSION_MS, 60_000, reconnect_ms), self.now_ms)
        self.effects: list[Effect] = []
        self.notices: list[str] = []

    def tell(self, effects: Sequence[Effect]) -> list[Effect]:
        self.notices += [effect.text for effect in effects if isinstance(effect, Notice)]
        self.effects = [effect for effect in effects if not isinstance(effect, Notice)]
        return self.effects

    def start(self) -> list[Effect]:
        return self.tell(self.core.start(self.now_ms))

    def register(self, code: ErrorCode = ErrorCode.NONE, epoch: int = EPOCH) -> list[Effect]:
        return self.tell(self.core.registration_answered(code, epoch, self.now_ms))

    def answer(self, code: ErrorCode = ErrorCode.NONE, *, fenced: bool = False, go: bool = False) -> list[Effect]:
        return self.tell(self.core.heartbeat_answered(code, fenced, go, self.now_ms))

    def no_answer(self, *, is_timeout: bool = False) -> list[Effect]:
        return self.tell(self.core.heartbeat_unanswered("gone", is_timeout, self.now_ms))

    def lose(self) -> list[Effect]:
        return self.tell(self.core.connection_lost(self.now_ms))

    def is_in_doubt(self, now_ms: int | None = None) -> bool:
        return self.core.in_doubt_since_ms(self.now_ms if now_ms is None else now_ms) is not None

    def image(self, epoch: int = EPOCH, *, fenced: bool = False) -> list[Effect]:
        return self.tell(self.core.registration_changed(epoch, fenced, self.now_ms))

    def shut_down(self, timeout_ms: int = 5_000, work_ms: int = 0, leaderships: int = 0) -> list[Effect]:
        return self.tell(self.core.shut_down(timeout_ms, self.now_ms, work_ms, leaderships))

    def answer_all(self) -> None:
        """Also the heartbeats that follow at once."""
        while self.answer():
            pass

    def rest(self) -> tuple[int, list[Effect]]:
        """Let time pass to the next deadline: (ms that passed, what is done)."""
        deadline_ms = self.core.next_deadline()
        assert deadline_ms is not None
        assert not self.core.on_deadline(deadline_ms - 1), "nothing is done before its time"
        passed_ms, self.now_ms = deadline_ms - self.now_ms, deadline_ms
        return passed_ms, self.tell(self.core.on_deadline(deadline_ms))


def heartbeat(*, leaving: bool = False, epoch: int = EPOCH, timeout_ms: int = HALF_MS) -> Heartbeat:
    return Heartbeat(epoch, leaving, timeout_ms)


def in_service(reconnect_ms: int = RECONNECT_MS) -> Story:
    story = Story(reconnect_ms)
    story.start()
    story.register()
    story.image()
    assert story.answer() == [InService(), heartbeat()], "the metadata had news while the heartbeat was under way"
    assert story.answer() == []
    return story


def test_a_broker_is_in_service_once_controller_and_metadata_agree() -> None:
    story = Story()
    assert story.start() == [Register(60_000)]
    assert story.start() == [], "once"
    assert story.register() == [Registered(EPOCH), heartbeat()]
    assert story.answer(fenced=True) == [] and story.core.trouble(story.now_ms) == "fenced by the controller"
    assert story.image(fenced=True) == [heartbeat()], "it has caught up with its own registration: the controller should know"
    assert story.answer() == [] and story.core.trouble(story.now_ms) is None
    assert story.image() == [InService(), heartbeat()]


def test_metadata_of_its_former_life_say_nothing() -> None:
    story = Story()
    story.start()
    story.image(epoch=3)
    story.register()
    assert story.answer() == []
    assert story.image(epoch=3) == [] and story.image() == [InService(), heartbeat()]


def test_a_broker_whose_registration_lacks_directories_registers_again_in_place_of_a_heartbeat() -> None:
    """After an upgrade from before 3.7: it stays in service meanwhile, under the same epoch."""
    story = in_service()
    assert story.tell(story.core.directories_are_missing(story.now_ms)) == [Register(60_000)]
    assert story.tell(story.core.directories_are_missing(story.now_ms)) == [], "the request is under way"
    assert story.image() == []
    assert story.register() == [Registered(EPOCH), Register(60_000)], "it may not have been of use yet"
    assert story.register() == [Registered(EPOCH), heartbeat()]
    assert story.tell(story.core.directories_are_missing(story.now_ms)) == [], "after the heartbeat that is under way"
    assert story.answer() == [Register(60_000)] and story.core.trouble(story.now_ms) is None


def test_a_registration_that_is_refused_for_now_is_tried_again_ever_more_slowly() -> None:
    story = Story()
    story.start()
    pauses = []
    for _ in range(6):
        assert story.register(ErrorCode.DUPLICATE_BROKER_REGISTRATION) == []
        pause_ms, effects = story.rest()
        assert effects == [Register(60_000)]
        pauses.append(pause_ms)
    assert pauses == [min(REGISTRATION_BACKOFF_MS << n, REGISTRATION_BACKOFF_MS_MAX) for n in range(6)]
    assert story.notices == ["broker 1 cannot register yet: DUPLICATE_BROKER_REGISTRATION"], "said once"
    story.tell(story.core.registration_unanswered(story.now_ms))
    assert story.notices[1:] == ["broker 1 cannot register yet: REQUEST_TIMED_OUT"]
    assert story.rest() == (REGISTRATION_BACKOFF_MS_MAX, [Register(60_000)])


def test_news_do_not_cut_the_back_off_short() -> None:
    story = Story()
    story.start()
    story.register(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    assert not story.core.heartbeat_at_once(story.now_ms)
    assert story.rest() == (REGISTRATION_BACKOFF_MS, [Register(60_000)])


@pytest.mark.parametrize("code", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION, ErrorCode.UNSUPPORTED_VERSION])
def test_a_permanently_refused_registration_ends_the_broker(code: ErrorCode) -> None:
    story = Story()
    story.start()
    (refused,) = story.register(code)
    assert isinstance(refused, Refused) and code.name in refused.reason and not refused.was_registered
    assert story.core.next_deadline() is None and not story.core.heartbeat_at_once(story.now_ms)
    assert story.shut_down() == [MayGo(False)]


def test_a_controller_that_does_not_serve_registrations_ends_it() -> None:
    story = Story()
    story.start()
    (refused,) = story.tell(story.core.registration_unsupported("too old"))
    assert isinstance(refused, Refused) and "too old" in refused.reason


def test_heartbeats_follow_each_other_by_the_interval_one_at_a_time() -> None:
    story = in_service()
    for _ in range(3):
        assert story.rest() == (INTERVAL_MS, [heartbeat()])
        assert story.core.next_deadline() == story.now_ms + HALF_MS // LATE_PART, "one is under way"
        assert story.answer() == []


def test_news_for_the_controller_triggers_a_heartbeat_at_once() -> None:
    story = in_service()
    assert story.tell(story.core.heartbeat_at_once(story.now_ms)) == [heartbeat()]
    assert not story.core.heartbeat_at_once(story.now_ms) and not story.core.heartbeat_at_once(story.now_ms)
    assert story.answer() == [heartbeat()], "one for all that came while one was under way"
    assert story.answer() == []
    assert story.tell(story.core.another_shuts_down(story.now_ms)) == [heartbeat()]
    assert story.answer() == [] and not story.core.topics_changed(story.now_ms)


def test_a_fenced_broker_does_not_hurry_another_that_shuts_down() -> None:
    story = in_service()
    story.rest()
    assert story.answer(fenced=True) == [OutOfService()]
    assert not story.core.another_shuts_down(story.now_ms)


def test_a_heartbeat_without_an_answer_is_not_the_last_one() -> None:
    story = in_service()
    story.rest()
    assert story.no_answer() == [] and story.core.unanswered == 1
    assert story.rest() == (INTERVAL_MS, [heartbeat()])
    assert story.no_answer(is_timeout=True) == [heartbeat(timeout_ms=2 * HALF_MS)], "there is no time for a pause"


def test_answers_that_are_always_late_get_more_time_and_quick_ones_less() -> None:
    story = in_service()
    story.rest()
    limits = [HALF_MS]
    for _ in range(6):
        story.now_ms += limits[-1]
        (again,) = story.no_answer(is_timeout=True)
        assert isinstance(again, Heartbeat)
        limits.append(again.timeout_ms)
    assert limits == [HALF_MS << min(n, LATE_ANSWERS_MAX) for n in range(7)]
    story.now_ms += limits[-1] // 2
    story.answer()
    assert story.rest()[1] == [heartbeat(timeout_ms=limits[-1])], "it was answered, but late"
    for doublings in (3, 2, 1, 0, 0):
        story.answer()
        assert story.rest()[1] == [heartbeat(timeout_ms=HALF_MS << doublings)]


def test_silence_is_a_trouble_after_a_session() -> None:
    story = in_service()
    story.now_ms += SESSION_MS
    assert story.core.trouble(story.now_ms) is None
    story.now_ms += 1
    assert str(story.core.trouble(story.now_ms)).startswith(f"no controller has answered a heartbeat for {SESSION_MS + 1} ms")
    assert story.core.silence_ms(story.now_ms) == SESSION_MS + 1


def test_a_session_lasts_from_when_a_heartbeat_was_sent_however_late_its_answer_is_read() -> None:
    """A process that was stopped finds an answer that came long ago."""
    story = in_service()
    story.rest()
    sent_ms = story.now_ms
    story.now_ms += 10 * SESSION_MS
    assert story.is_in_doubt()
    story.answer()
    assert story.is_in_doubt(), "that heartbeat was sent before"
    assert not story.is_in_doubt(sent_ms + SESSION_MS)
    story.rest()
    story.answer()
    assert not story.is_in_doubt(story.now_ms + SESSION_MS)
    assert story.is_in_doubt(story.now_ms + SESSION_MS + 1)


def test_the_session_of_a_fenced_broker_is_over_until_the_controller_takes_it_back() -> None:
    story = in_service()
    assert not story.is_in_doubt()
    story.rest()
    story.answer(fenced=True)
    assert story.is_in_doubt()
    story.image(fenced=True)
    story.answer()
    assert not story.is_in_doubt()


def test_a_lost_connection_leaves_a_broker_in_doubt_long_before_its_session_ends() -> None:
    """The controller fences it minikafka.heartbeat.reconnect.ms after it has seen the end of the connection."""
    story = in_service()
    story.rest()
    story.answer()
    lost_ms = story.now_ms = story.now_ms + 10
    assert story.lose() == [Unheard(), heartbeat()]
    assert story.core.is_unheard
    assert not story.is_in_doubt(lost_ms + RECONNECT_MS // 2)
    assert story.core.in_doubt_since_ms(lost_ms + RECONNECT_MS // 2 + 1) == lost_ms
    story.now_ms += 5
    story.lose()
    assert story.core.in_doubt_since_ms(lost_ms + RECONNECT_MS) == lost_ms, "the controller counts from the first loss"
    story.answer()
    assert story.core.is_unheard, "that heartbeat was sent before the connection was lost again"
    story.answer()
    assert not story.core.is_unheard
    assert not story.is_in_doubt(lost_ms + SESSION_MS)


def test_an_answer_of_a_lost_connection_is_no_sign_of_life() -> None:
    story = in_service()
    story.rest()
    story.lose()
    assert story.answer() == [heartbeat()], "another one at once, over another connection"
    assert story.is_in_doubt(story.now_ms + RECONNECT_MS)
    story.answer()
    assert not story.is_in_doubt(story.now_ms + RECONNECT_MS)


def test_a_late_answer_leaves_a_broker_in_doubt() -> None:
    """The connection may have ended at the controller's side alone."""
    story = in_service()
    story.rest()
    late_ms, effects = story.rest()
    assert (late_ms, effects) == (HALF_MS // LATE_PART, [Unheard()])
    assert story.core.next_deadline() is None, "it is told once"
    assert not story.is_in_doubt(story.now_ms + RECONNECT_MS // 2)
    assert story.core.in_doubt_since_ms(story.now_ms + RECONNECT_MS) == story.now_ms
    story.answer()
    assert not story.core.is_unheard
    assert not story.is_in_doubt(story.now_ms + RECONNECT_MS)


def test_where_the_controller_grants_a_session_a_lost_connection_says_nothing() -> None:
    story = in_service(reconnect_ms=0)
    story.lose()
    assert not story.is_in_doubt(story.now_ms + SESSION_MS)
    assert story.is_in_doubt(story.now_ms + SESSION_MS + 1)


def test_a_fenced_broker_is_back_with_the_controllers_next_word() -> None:
    story = in_service()
    story.rest()
    assert story.answer(fenced=True) == [OutOfService()]
    assert story.image(fenced=True) == [heartbeat()]
    assert story.answer() == [], "the metadata still have it fenced"
    assert story.image() == [InService(), heartbeat()]


def test_a_broker_that_the_controller_does_not_know_registers_again() -> None:
    story = in_service()
    story.rest()
    assert story.answer(ErrorCode.STALE_BROKER_EPOCH) == [OutOfService(), Register(60_000)]
    assert story.register(epoch=9) == [Registered(9), heartbeat(epoch=9)]
    story.image(epoch=9)
    assert story.answer()[0] == InService()


def test_one_that_was_in_service_and_is_refused_says_so() -> None:
    story = in_service()
    story.rest()
    story.answer(ErrorCode.STALE_BROKER_EPOCH)
    (refused,) = story.register(ErrorCode.INCONSISTENT_CLUSTER_ID)
    assert isinstance(refused, Refused) and refused.was_registered


def test_another_error_of_the_controller_is_logged_and_heartbeats_go_on() -> None:
    story = in_service()
    story.rest()
    assert story.answer(ErrorCode.BROKER_ID_NOT_REGISTERED) == []
    assert story.notices[-1] == "the controller answered a heartbeat with BROKER_ID_NOT_REGISTERED"
    assert story.rest() == (INTERVAL_MS, [heartbeat()])


def test_a_controlled_shutdown_ends_when_the_controller_says_so() -> None:
    story = in_service()
    assert story.shut_down() == [heartbeat(leaving=True)]
    assert story.answer() == []
    assert story.rest() == (SHUTDOWN_HEARTBEAT_MS, [heartbeat(leaving=True)])
    assert not story.core.topics_changed(story.now_ms)
    assert story.answer() == [heartbeat(leaving=True)], "leaderships have moved meanwhile"
    assert story.answer(fenced=True, go=True) == [MayGo(True)], "the fencing is the shutdown's"
    assert story.core.next_deadline() is None


def test_a_controller_that_has_forgotten_a_broker_that_leaves_lets_it_go() -> None:
    story = in_service()
    story.shut_down()
    assert story.answer(ErrorCode.STALE_BROKER_EPOCH) == [MayGo(True)]


def test_a_shutdown_does_not_wait_for_a_silent_controller() -> None:
    story = in_service()
    story.shut_down()
    assert story.rest() == (CONTROLLER_SILENCE_MS_MAX, [MayGo(False)])
    assert story.notices[-1].startswith("no controller answers")


def test_a_shutdown_waits_for_a_controller_that_decides_on_very_many_partitions() -> None:
    """A broker of 9,000 stopped without moving its leaderships, because the answer took more than a second."""
    story = in_service()
    begun_ms = story.now_ms
    story.shut_down(5_000, work_ms=9_000)
    while MayGo(False) not in story.rest()[1]:
        pass
    assert story.now_ms - begun_ms == CONTROLLER_SILENCE_MS_MAX + 9_000
    assert story.notices[-1].startswith("no controller answers")


def test_a_controlled_shutdown_does_not_outlast_its_timeout() -> None:
    story = in_service()
    end_ms = story.now_ms + 5_000
    story.shut_down(5_000)
    reported: list[Effect] = []
    while MayGo(False) not in reported:
        story.answer()
        reported = story.rest()[1]
    assert story.now_ms == end_ms and "in time" in story.notices[-1]


def test_a_controlled_shutdown_goes_on_as_long_as_leaderships_move() -> None:
    """A broker of 9,000 partitions stopped unreleased after 14 s on a busy machine, whatever had moved by then."""
    story = in_service()
    begun_ms, moved_ms = story.now_ms, 0
    story.shut_down(5_000, leaderships=9_000)
    for left in (6_000, 3_000, 2_999):
        until_ms = story.now_ms + 4_900
        while story.now_ms < until_ms:
            story.answer_all()
            assert MayGo(False) not in story.rest()[1]
        story.tell(story.core.topics_changed(story.now_ms, left))
        moved_ms = story.now_ms
    story.core.topics_changed(story.now_ms + 1, 2_999)
    while MayGo(False) not in story.effects:
        story.answer_all()
        story.rest()
    assert story.now_ms == moved_ms + 5_000 > begun_ms + 19_000
    assert story.notices[-1].endswith("it stops anyway, with 2,999 of its 9,000 leaderships")


def test_a_controlled_shutdown_ends_some_time() -> None:
    story = in_service()
    end_ms, left = story.now_ms + SHUTDOWN_MS_MAX, 1_000_000
    story.shut_down(5_000, leaderships=left)
    while MayGo(False) not in story.effects:
        left -= 1
        story.tell(story.core.topics_changed(story.now_ms, left))
        story.answer_all()
        story.rest()
    assert story.now_ms == end_ms and "in time" in story.notices[-1]


def test_leaderships_that_move_show_that_a_controller_is_there() -> None:
    story = in_service()
    story.shut_down(5_000, leaderships=9)
    story.tell(story.core.heartbeat_unanswered("gone", True, story.now_ms))
    story.now_ms += CONTROLLER_SILENCE_MS_MAX - 1
    story.core.topics_changed(story.now_ms, 8)
    assert story.core.next_deadline() == story.now_ms + CONTROLLER_SILENCE_MS_MAX
    story.now_ms += CONTROLLER_SILENCE_MS_MAX
    assert MayGo(False) in story.core.on_deadline(story.now_ms)


def test_a_broker_that_never_registered_goes_at_once() -> None:
    story = Story()
    assert story.shut_down() == [MayGo(False)]
    story.start()
    assert story.shut_down() == [MayGo(False)]


def test_nothing_late_moves_a_broker_that_has_stopped() -> None:
    story = in_service()
    story.rest()
    story.core.stop()
    assert story.answer() == [] and story.no_answer() == [] and story.register() == [] and story.core.next_deadline() is None
    assert not story.core.registration_unanswered(story.now_ms) and not story.core.registration_unsupported("late")


def test_cordoned_directories_are_named_when_it_changes_something_that_everybody_understands() -> None:
    ours = [b"D" * 16]
    assert cordoned_to_report(CORDONS - 1, ours, ()) is None
    assert cordoned_to_report(CORDONS, ours, ()) == ours
    assert cordoned_to_report(CORDONS, [], ours) == []
    assert cordoned_to_report(CORDONS, [], ()) is None
