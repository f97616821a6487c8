"""The first batch of a transaction needs the coordinator's word (KIP-890): what a leader's log lets in, and what comes too late."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from helpers.batches import T0, batch, marker

from minikafka.storage.log import Log
from minikafka.storage.producer_state import Verification
from minikafka.wire.errors import ApiError, ErrorCode

PRODUCER = 7


def send(log: Log, sequence: int, epoch: int, verification: Verification | None) -> None:
    data = batch(b"v", producer=(PRODUCER, epoch, sequence), attributes=0x10)
    log.append_as_leader(memoryview(data), 0, T0, verification=verification)


def refused(log: Log, sequence: int, epoch: int, verification: Verification | None, code: ErrorCode) -> None:
    end = log.log_end_offset
    with pytest.raises(ApiError) as raised:
        send(log, sequence, epoch, verification)
    assert raised.value.code is code and log.log_end_offset == end


def asked(log: Log, epoch: int, sequence: int = 0, *, version_2: bool = True) -> Verification | None:
    return log.producer_state.begin_verification(PRODUCER, epoch, sequence, T0, must_begin_at_zero=version_2)


def end(log: Log, epoch: int) -> None:
    data = marker(PRODUCER, epoch, abort=True, coordinator_epoch=0)
    log.append_as_leader(memoryview(data), 0, T0, origin="coordinator")


def test_a_transaction_begins_with_a_verified_batch_and_goes_on_without(open_log: Callable[..., Log]) -> None:
    log = open_log()
    refused(log, 0, 0, None, ErrorCode.INVALID_TXN_STATE)
    word = asked(log, 0)
    send(log, 0, 0, word)
    assert asked(log, 0) is None
    send(log, 1, 0, None)
    refused(log, 0, 1, None, ErrorCode.INVALID_TXN_STATE)


@pytest.mark.parametrize("version_2", [False, True])
def test_a_batch_that_comes_after_the_marker_begins_nothing(open_log: Callable[..., Log], version_2: bool) -> None:
    log = open_log()
    word = asked(log, 0, version_2=version_2)
    end(log, 1 if version_2 else 0)
    refused(log, 0, 0, word, ErrorCode.INVALID_TXN_STATE)


def test_the_next_transaction_may_wait_for_the_marker_that_has_its_epoch(open_log: Callable[..., Log]) -> None:
    log = open_log()
    send(log, 0, 0, asked(log, 0))
    word = asked(log, 1)
    end(log, 1)
    send(log, 0, 1, word)


def test_a_transaction_does_not_begin_in_the_middle(open_log: Callable[..., Log]) -> None:
    log = open_log()
    refused(log, 5, 0, asked(log, 0, 5), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    first, second = asked(log, 0, 5, version_2=False), asked(log, 0, 6, version_2=False)
    assert first is second
    log.producer_state.expire(T0 + log.config.producer_id_expiration_ms, 0)
    refused(log, 0, 0, first, ErrorCode.INVALID_TXN_STATE)
    word = asked(log, 0, 5, version_2=False)
    refused(log, 6, 0, word, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    send(log, 5, 0, word)


def test_a_batch_outside_transactions_is_held_to_the_first_sequence_that_was_announced(open_log: Callable[..., Log]) -> None:
    log = open_log()
    asked(log, 0, 1, version_2=False)
    data = batch(b"v", producer=(PRODUCER, 0, 2))
    with pytest.raises(ApiError) as raised:
        log.append_as_leader(memoryview(data), 0, T0)
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and log.log_end_offset == 0
    log.append_as_leader(memoryview(batch(b"v", producer=(PRODUCER, 0, 1))), 0, T0)
    assert log.log_end_offset == 1


def test_a_newer_epoch_that_nobody_confirmed_does_not_refuse_the_producer(open_log: Callable[..., Log]) -> None:
    log = open_log()
    before, stranger, after = asked(log, 0), asked(log, 1), asked(log, 0)
    assert before is stranger is after
    send(log, 0, 0, after)


def test_an_epoch_before_the_logs_is_refused_at_once(open_log: Callable[..., Log]) -> None:
    """So that no coordinator is asked: it could refuse the producer for another reason."""
    log = open_log()
    send(log, 0, 1, asked(log, 1))
    with pytest.raises(ApiError) as raised:
        asked(log, 0)
    assert raised.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert asked(log, 1) is None
