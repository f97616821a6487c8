"""Registration, broker epochs, incarnations, sessions (KIP-631, KIP-841, KIP-903)."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.controller_core import ControllerDriver, directory_of

from minikafka.core.controller.sessions import (
    CONNECTS_GRANTED,
    DISCONNECT_GRACE_MS,
    GRACE_STALL_MS,
    LOSS_WINDOW_MS,
    LOSSES_TOLERATED,
    STALL_MS,
    STALLS_GRANTED,
    SUCCESSION_GRACE_MS,
    BrokerSessions,
)
from minikafka.core.metadata.image import DIRECTORY_MIGRATING
from minikafka.core.metadata.versions import DIRECTORIES
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from minikafka.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from minikafka.wire.messages.broker_registration import BrokerRegistrationRequest
from minikafka.wire.messages.controller_registration import ControllerRegistrationRequest
from minikafka.wire.messages.unregister_broker import UnregisterBrokerRequest
from minikafka.wire.messages.unregister_controller import UnregisterControllerRequest
from minikafka.wire.messages.update_features import UpdateFeaturesRequest
from minikafka.wire.records.metadata_records import FeatureLevelRecord


def code_of(action: Any, *arguments: Any, **keywords: Any) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        action(*arguments, **keywords)
    return caught.value.code


def test_the_broker_epoch_is_the_offset_of_the_registration() -> None:
    driver = ControllerDriver()
    assert driver.register(1) == len(driver.log) - 1
    assert driver.register(2) == len(driver.log) - 1
    assert driver.image.brokers[1].fenced


def test_a_broker_is_unfenced_when_it_has_seen_its_own_registration() -> None:
    driver = ControllerDriver()
    epoch = driver.register(1)
    behind = driver.heartbeat(1, offset=epoch - 1)
    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    wants_fence = driver.heartbeat(1, offset=epoch, want_fence=True)
    assert (wants_fence.is_caught_up, wants_fence.is_fenced) == (True, True)
    there = driver.heartbeat(1, offset=epoch)
    assert (there.is_caught_up, there.is_fenced) == (True, False)
    assert len(driver.last_records) == 1
    driver.heartbeat(1)
    assert driver.last_records == []


def test_a_heartbeat_from_before_the_fencing_does_not_bring_a_broker_back() -> None:
    """What a process had sent before it died may come late: a broker that is gone was unfenced by it and elected (simulator, seed 1049)."""
    driver = ControllerDriver()
    driver.start(1, 2)
    before = len(driver.log) - 1
    driver.fence(1)
    fenced_at = driver.image.brokers[1].unfence_offset
    assert driver.image.brokers[1].fenced and fenced_at > before
    late = driver.heartbeat(1, offset=before)
    assert late.is_fenced and driver.image.brokers[1].fenced
    assert not driver.heartbeat(1, offset=fenced_at).is_fenced, "who knows of it is there"


def test_heartbeats_with_another_epoch_are_stale() -> None:
    driver = ControllerDriver()
    epoch = driver.register(1)
    assert code_of(driver.heartbeat, 1, broker_epoch=epoch - 1) is ErrorCode.STALE_BROKER_EPOCH
    driver.register(2)
    assert code_of(driver.heartbeat, 2, broker_epoch=epoch) is ErrorCode.STALE_BROKER_EPOCH
    request = AllocateProducerIdsRequest(broker_id=7, broker_epoch=epoch)
    assert code_of(driver.do, request) is ErrorCode.STALE_BROKER_EPOCH


def test_the_same_incarnation_keeps_its_epoch() -> None:
    """KAFKA-16952."""
    driver = ControllerDriver()
    driver.start(1)
    epoch = driver.image.brokers[1].epoch
    assert driver.register(1) == epoch
    assert not driver.image.brokers[1].fenced


def test_another_incarnation_waits_until_the_session_has_ended() -> None:
    driver = ControllerDriver()
    driver.start(1, 2)
    assert code_of(driver.register, 1, incarnation=2) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    driver.stay_alive(10_000, 2)
    assert driver.register(1, incarnation=2) == driver.image.brokers[1].epoch


def test_a_restarted_broker_need_not_wait_when_it_holds_the_directory_of_a_disconnected_one() -> None:
    driver = ControllerDriver()
    driver.start(1)
    epoch = driver.image.brokers[1].epoch
    driver.core.broker_disconnected(1, epoch - 1, driver.now_ms)
    assert code_of(driver.register, 1, incarnation=2) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    driver.core.broker_disconnected(1, epoch, driver.now_ms)
    stranger = {"incarnation": 2, "log_dirs": [directory_of(77)]}
    assert code_of(driver.register, 1, **stranger) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    driver.heartbeat(1)
    assert code_of(driver.register, 1, incarnation=2) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    driver.core.broker_disconnected(1, epoch, driver.now_ms)
    assert driver.register(1, incarnation=2) > epoch


def test_registrations_that_are_refused() -> None:
    driver = ControllerDriver()
    driver.register(1)
    assert code_of(driver.register, 2, cluster_id="another") is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert code_of(driver.register, 2, log_dirs=[]) is ErrorCode.INVALID_REGISTRATION
    assert code_of(driver.register, 2, log_dirs=[bytes(16)]) is ErrorCode.INVALID_REGISTRATION
    assert code_of(driver.register, 2, log_dirs=[directory_of(2)] * 2) is ErrorCode.INVALID_REGISTRATION
    assert code_of(driver.register, 2, log_dirs=[directory_of(1)]) is ErrorCode.INVALID_REGISTRATION
    feature = BrokerRegistrationRequest.Feature(name="metadata.version", min_supported_version=7, max_supported_version=20)
    assert code_of(driver.register, 2, features=[feature]) is ErrorCode.UNSUPPORTED_VERSION
    assert code_of(driver.register, 2, features=[]) is ErrorCode.INVALID_REGISTRATION
    assert list(driver.image.brokers) == [1]


def test_sessions_end_after_their_time_and_not_before() -> None:
    driver = ControllerDriver(broker_session_timeout_ms=500)
    driver.start(1)
    driver.advance(499)
    assert not driver.image.brokers[1].fenced
    driver.advance(1)
    assert driver.image.brokers[1].fenced
    driver.heartbeat(1)
    assert not driver.image.brokers[1].fenced


def test_a_broken_connection_ends_the_session_soon_unless_the_broker_comes_back() -> None:
    driver = ControllerDriver()
    driver.start(1, 2)
    epoch = driver.image.brokers[1].epoch
    driver.core.broker_disconnected(1, epoch - 1, driver.now_ms)
    driver.advance(DISCONNECT_GRACE_MS)
    assert not driver.image.brokers[1].fenced, "an older incarnation's connection says nothing"
    driver.core.broker_disconnected(1, epoch, driver.now_ms)
    driver.advance(DISCONNECT_GRACE_MS - 1)
    driver.heartbeat(1)
    driver.advance(1000)
    assert not driver.image.brokers[1].fenced, "it came back in time"
    driver.core.broker_disconnected(1, epoch, driver.now_ms)
    driver.advance(DISCONNECT_GRACE_MS)
    assert driver.image.brokers[1].fenced
    assert not driver.image.brokers[2].fenced
    driver.heartbeat(1)
    assert not driver.image.brokers[1].fenced, "a broker that was fenced by mistake is back with its next heartbeat"


def test_the_last_broker_in_service_keeps_its_session_until_another_is_back() -> None:
    """Nobody could lead in its place, and a client that is told of no broker may forget every address (librdkafka does)."""
    driver = ControllerDriver(broker_session_timeout_ms=3_000)
    driver.start(1, 2)
    for broker_id in (1, 2):
        driver.core.broker_disconnected(broker_id, driver.image.brokers[broker_id].epoch, driver.now_ms)
    driver.advance(DISCONNECT_GRACE_MS)
    assert driver.image.brokers[1].fenced and not driver.image.brokers[2].fenced
    driver.advance(2_000)
    assert not driver.image.brokers[2].fenced
    driver.heartbeat(1)
    driver.advance(DISCONNECT_GRACE_MS)
    assert driver.image.brokers[2].fenced and not driver.image.brokers[1].fenced, "there is somebody who can lead again"


@pytest.mark.parametrize("other", ["fenced", "shutting down"])
def test_the_last_broker_in_service_is_fenced_at_the_end_of_its_session(other: str) -> None:
    driver = ControllerDriver(broker_session_timeout_ms=3_000)
    driver.start(1, 2)
    driver.heartbeat(2, want_fence=other == "fenced", want_shut_down=other == "shutting down")
    driver.core.broker_disconnected(1, driver.image.brokers[1].epoch, driver.now_ms)
    driver.advance(2_900)
    assert not driver.image.brokers[1].fenced
    driver.advance(100)
    assert driver.image.brokers[1].fenced


def test_a_broker_that_does_not_come_back_at_once_keeps_its_session() -> None:
    """Apache Kafka's connect again when their next heartbeat is due, after two seconds: a closed connection says nothing of them."""
    driver = ControllerDriver()
    driver.start(1, 2)
    epoch = driver.image.brokers[1].epoch
    driver.core.broker_disconnected(1, epoch, driver.now_ms, None)
    driver.advance(8_000)
    assert not driver.image.brokers[1].fenced
    assert driver.register(1, incarnation=2) > epoch, "its next process need not wait all the same"


def test_a_broker_whose_connections_take_long_has_longer_to_come_back() -> None:
    driver = ControllerDriver()
    driver.start(1, 2)
    driver.core.broker_disconnected(1, driver.image.brokers[1].epoch, driver.now_ms, 150)
    driver.advance(CONNECTS_GRANTED * 150 - 1)
    assert not driver.image.brokers[1].fenced
    driver.advance(1)
    assert driver.image.brokers[1].fenced


@pytest.mark.parametrize("reconnect_ms", [0, 300])
def test_the_time_to_come_back_is_a_property(reconnect_ms: int) -> None:
    driver = ControllerDriver(minikafka_heartbeat_reconnect_ms=reconnect_ms)
    driver.start(1, 2)
    driver.core.broker_disconnected(1, driver.image.brokers[1].epoch, driver.now_ms)
    driver.advance(299)
    assert not driver.image.brokers[1].fenced
    driver.advance(1)
    assert driver.image.brokers[1].fenced is (reconnect_ms > 0)
    driver.heartbeat(1)
    driver.fail_over(predecessor=2)
    driver.advance(599)
    assert not driver.image.brokers[2].fenced
    driver.advance(1)
    assert driver.image.brokers[2].fenced is (reconnect_ms > 0), "the suspicion of a new controller is off with it"


def test_a_flapping_connection_is_given_more_and_more_time() -> None:
    driver = ControllerDriver()
    driver.start(1, 2)
    epoch = driver.image.brokers[1].epoch
    for _ in range(LOSSES_TOLERATED):
        driver.core.broker_disconnected(1, epoch, driver.now_ms)
        driver.advance(DISCONNECT_GRACE_MS)
        assert driver.image.brokers[1].fenced
        driver.heartbeat(1)
    for doubled in (2, 4, 8):
        driver.core.broker_disconnected(1, epoch, driver.now_ms)
        driver.advance(DISCONNECT_GRACE_MS * doubled - 1)
        assert not driver.image.brokers[1].fenced
        driver.heartbeat(1)
    driver.stay_alive(LOSS_WINDOW_MS, 1, 2)
    driver.core.broker_disconnected(1, epoch, driver.now_ms)
    driver.advance(DISCONNECT_GRACE_MS)
    assert driver.image.brokers[1].fenced, "what was a minute ago is forgotten"


def test_a_controller_that_was_busy_does_not_take_its_own_delay_for_a_dead_broker() -> None:
    driver = ControllerDriver()
    driver.start(1, 2)
    driver.core.broker_disconnected(1, driver.image.brokers[1].epoch, driver.now_ms)
    driver.now_ms += DISCONNECT_GRACE_MS + GRACE_STALL_MS + 1
    driver.advance(0)
    assert not driver.image.brokers[1].fenced
    driver.advance(DISCONNECT_GRACE_MS)
    assert driver.image.brokers[1].fenced


@pytest.mark.parametrize("turn_ms", [GRACE_STALL_MS + 10, 200, STALL_MS + 10, 1200, 3000])
@pytest.mark.parametrize("hint", ["disconnected", "suspect", "silence"])
def test_a_controller_that_is_always_late_fences_the_dead_and_only_them(turn_ms: int, hint: str) -> None:
    """On a tenth of a core every look at the deadlines was late, and a broker that was killed led its partitions for ever."""
    timeout_ms = 1500
    sessions = BrokerSessions(timeout_ms)
    sessions.touch(1, 5, 0)
    sessions.touch(2, 6, 0)
    if hint == "disconnected":
        sessions.disconnected(1, 5, 0)
    elif hint == "suspect":
        sessions.suspect(1, 0)
    now_ms, ended = 0, []
    while not ended and now_ms < 60_000:
        now_ms += turn_ms
        if now_ms >= (sessions.next_deadline() or 0):
            ended = list(sessions.expired(now_ms, lambda broker_id: False))
        sessions.touch(2, 6, now_ms)
    assert ended == [(1, 5)] and sessions.is_valid(2, 6)
    bound_ms = timeout_ms + turn_ms if turn_ms <= STALL_MS else timeout_ms + (STALLS_GRANTED + 1) * (turn_ms + STALL_MS)
    assert now_ms <= bound_ms + turn_ms


def test_the_broker_of_the_last_controllers_node_must_speak_soon() -> None:
    driver = ControllerDriver()
    driver.start(1, 2)
    driver.fail_over(predecessor=1)
    driver.advance(SUCCESSION_GRACE_MS - 1)
    assert not driver.image.brokers[1].fenced
    driver.advance(1)
    assert driver.image.brokers[1].fenced
    assert not driver.image.brokers[2].fenced


def test_a_controller_that_slept_does_not_fence_brokers_for_it() -> None:
    """KAFKA-15019."""
    driver = ControllerDriver()
    driver.start(1, 2)
    driver.now_ms += 60_000
    assert list(driver.core.on_deadline(driver.now_ms)) == []
    driver.heartbeat(1)
    driver.stay_alive(12_000, 1)
    assert not driver.image.brokers[1].fenced
    assert driver.image.brokers[2].fenced


def test_a_new_controller_gives_everybody_a_whole_session() -> None:
    driver = ControllerDriver()
    driver.start(1)
    driver.advance(8000)
    driver.fail_over()
    driver.advance(8999)
    assert not driver.image.brokers[1].fenced
    driver.advance(1)
    assert driver.image.brokers[1].fenced


def test_unregistering_takes_the_broker_out_of_isrs() -> None:
    driver = ControllerDriver()
    driver.start(1, 2)
    driver.create("t", [[1, 2]])
    with pytest.raises(ApiError, match="Broker ID 77 is not currently registered"):
        driver.do(UnregisterBrokerRequest(broker_id=77))
    driver.do(UnregisterBrokerRequest(broker_id=1))
    assert list(driver.image.brokers) == [2]
    assert (driver.partition("t").leader, driver.partition("t").isr) == (2, (2,))


def test_producer_ids_come_in_blocks_that_never_repeat() -> None:
    driver = ControllerDriver()
    driver.start(1)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=driver.image.brokers[1].epoch)
    starts = [(answer.producer_id_start, answer.producer_id_len) for answer in (driver.do(request) for _ in range(3))]
    driver.fail_over()
    starts.append((driver.do(request).producer_id_start, 1000))
    assert starts == [(0, 1000), (1000, 1000), (2000, 1000), (3000, 1000)]


def test_an_offline_directory_fails_over_its_partitions_only() -> None:
    driver = ControllerDriver()
    good, bad = directory_of(1), directory_of(101)
    driver.register(1, log_dirs=[good, bad])
    driver.heartbeat(1)
    driver.start(2)
    driver.create("t", [[1, 2], [1, 2]])
    epoch = driver.image.brokers[1].epoch
    topic_id = driver.image.topics_by_name["t"].topic_id
    for index, directory in enumerate((good, bad)):
        partitions = [AssignReplicasToDirsRequest.PartitionData(partition_index=index)]
        topics = [AssignReplicasToDirsRequest.TopicData(topic_id=topic_id, partitions=partitions)]
        directories = [AssignReplicasToDirsRequest.DirectoryData(id=directory, topics=topics)]
        driver.do(AssignReplicasToDirsRequest(broker_id=1, broker_epoch=epoch, directories=directories))
    assert driver.partition("t", 1).directories[0] == bad

    driver.heartbeat(1, offline_log_dirs=[bad])
    assert (driver.partition("t", 0).leader, driver.partition("t", 0).isr) == (1, (1, 2))
    assert (driver.partition("t", 1).leader, driver.partition("t", 1).isr) == (2, (2,))
    assert driver.image.brokers[1].log_dirs == (good,)
    driver.heartbeat(1, offline_log_dirs=[bad])
    assert driver.last_records == []


def test_a_broker_with_a_new_disk_may_lead_once_it_has_said_where_its_replicas_are() -> None:
    """Until then the metadata have the replica on the disk that was replaced, and nothing there can lead."""
    driver = ControllerDriver()
    driver.start(1, 2)
    driver.create("t", [[1, 2]])
    driver.alter_isr("t", [1])
    driver.fence(1)
    driver.register(1, incarnation=2, log_dirs=[directory_of(77)])
    driver.heartbeat(1)
    assert driver.partition("t").leader == -1
    partitions = [AssignReplicasToDirsRequest.PartitionData(partition_index=0)]
    topics = [AssignReplicasToDirsRequest.TopicData(topic_id=driver.image.topics_by_name["t"].topic_id, partitions=partitions)]
    directories = [AssignReplicasToDirsRequest.DirectoryData(id=directory_of(77), topics=topics)]
    driver.do(AssignReplicasToDirsRequest(broker_id=1, broker_epoch=driver.image.brokers[1].epoch, directories=directories))
    partition = driver.partition("t")
    assert (partition.directory(1), partition.leader) == (directory_of(77), 1)


def _assignment(driver: ControllerDriver, broker_id: int, directory: bytes) -> AssignReplicasToDirsRequest:
    """The broker says that its replica of t-0 is in `directory`."""
    kind = AssignReplicasToDirsRequest
    topics = [kind.TopicData(topic_id=driver.image.topics_by_name["t"].topic_id, partitions=[kind.PartitionData(partition_index=0)])]
    directories = [kind.DirectoryData(id=directory, topics=topics)]
    return kind(broker_id=broker_id, broker_epoch=driver.image.brokers[broker_id].epoch, directories=directories)


def test_below_3_7_registrations_have_no_directories_and_their_replicas_stay_in_sync() -> None:
    """metadata.version 3.6-IV2: records lose the directories, which says nothing about disks (KAFKA-16162)."""
    driver = ControllerDriver(features={"metadata.version": DIRECTORIES - 3})
    driver.register(1, log_dirs=[])
    driver.heartbeat(1)
    driver.start(2)
    driver.create("t", [[1, 2]])
    assert driver.image.brokers[2].log_dirs == () and driver.partition("t").directories == (DIRECTORY_MIGRATING,) * 2
    assert code_of(driver.do, _assignment(driver, 2, directory_of(2))) is ErrorCode.UNSUPPORTED_VERSION
    driver.heartbeat(2, offline_log_dirs=[directory_of(2)])
    driver.stay_alive(10_000, 2)
    assert (driver.partition("t").leader, driver.partition("t").isr) == (2, (2,))
    driver.alter_isr("t", [2])
    driver.heartbeat(1)
    driver.alter_isr("t", [1, 2])
    assert driver.partition("t").isr == (1, 2)


def test_after_the_upgrade_to_3_7_a_broker_without_directories_may_lead_until_it_registers_them() -> None:
    driver = ControllerDriver(features={"metadata.version": DIRECTORIES - 3})
    driver.start(1, 2)
    driver.create("t", [[1, 2]])
    driver.do(_to("metadata.version", DIRECTORIES))
    driver.do(_assignment(driver, 1, directory_of(1)))
    assert (driver.partition("t").directory(1), driver.partition("t").isr) == (directory_of(1), (1, 2))
    driver.stay_alive(10_000, 1)
    driver.stay_alive(2_000, 1, 2)
    driver.alter_isr("t", [1, 2])
    driver.register(1)
    driver.register(2)
    broker = driver.image.brokers[1]
    assert (broker.fenced, broker.log_dirs, driver.partition("t").leader) == (False, (directory_of(1),), 1)
    driver.do(_assignment(driver, 2, directory_of(2)))
    assert (driver.partition("t").directory(2), driver.partition("t").isr) == (directory_of(2), (1, 2))


def test_features_a_broker_lacks_cannot_be_finalized_over_it() -> None:
    driver = ControllerDriver()
    driver.register(1)
    assert driver.image.brokers[1].features["transaction.version"] == (0, 2)


def test_controllers_register_from_3_7_on() -> None:
    driver = ControllerDriver()
    features = [
        ControllerRegistrationRequest.Feature(name="metadata.version", min_supported_version=7, max_supported_version=30),
        ControllerRegistrationRequest.Feature(name="group.version", min_supported_version=0, max_supported_version=0),
    ]
    listeners = [ControllerRegistrationRequest.Listener(name="CONTROLLER", host="c2", port=9093, security_protocol=0)]
    request = ControllerRegistrationRequest(controller_id=2, incarnation_id=bytes(16), listeners=listeners, features=features)
    driver.write([FeatureLevelRecord(name="metadata.version", feature_level=14)])
    with pytest.raises(ApiError, match="too old to support controller registrations") as refused:
        driver.do(request)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    driver.write([FeatureLevelRecord(name="metadata.version", feature_level=15)])
    driver.do(request)
    assert driver.image.controllers[2].listeners == {"CONTROLLER": ("c2", 9093, 0)}
    # What a controller does not know is not finalized.
    driver.write([FeatureLevelRecord(name="group.version", feature_level=0)])
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="group.version", max_version_level=1)
    with pytest.raises(ApiError, match="Controller 2 only supports versions 0-0"):
        driver.do(UpdateFeaturesRequest(feature_updates=[update]))


def test_a_controller_that_is_gone_is_unregistered_and_holds_back_no_feature() -> None:
    """KIP-1312; errors and words are those of Apache Kafka 4.4.0 at 4.4-IV2 and at 4.3-IV0."""
    driver = ControllerDriver()
    for number in (0, 2):
        kind, group_version = ControllerRegistrationRequest.Feature, 1 if number == 0 else 0
        features = [kind(name="metadata.version", min_supported_version=7, max_supported_version=33)]
        features.append(kind(name="group.version", min_supported_version=0, max_supported_version=group_version))
        driver.do(ControllerRegistrationRequest(controller_id=number, incarnation_id=bytes(16), features=features))

    def refused(controller_id: int) -> tuple[ErrorCode, str | None]:
        with pytest.raises(ApiError) as caught:
            driver.do(UnregisterControllerRequest(controller_id=controller_id))
        return caught.value.code, caught.value.message

    too_old = (ErrorCode.UNSUPPORTED_VERSION, "The current MetadataVersion is too old to support controller unregistration.")
    active = (ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active.")
    assert [refused(2), refused(99), refused(0)] == [too_old, too_old, active]
    driver.do(_to("metadata.version", 33))
    unknown = (ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "Controller ID 99 is not currently registered.")
    assert [refused(99), refused(0)] == [unknown, active]
    driver.do(_to("group.version", 0, 2))
    with pytest.raises(ApiError, match="Controller 2 only supports versions 0-0"):
        driver.do(_to("group.version", 1))
    assert driver.do(UnregisterControllerRequest(controller_id=2)).error_message is None
    assert list(driver.image.controllers) == [0]
    driver.do(_to("group.version", 1))
    driver.fail_over()
    assert list(driver.image.controllers) == [0]


def _to(name: str, level: int, kind: int = 1) -> UpdateFeaturesRequest:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    return UpdateFeaturesRequest(feature_updates=[update])
