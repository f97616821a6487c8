"""Commits to classic groups that are not in use: what creates a group, and who may commit to an empty one."""

from __future__ import annotations

from typing import Any

import pytest

from minikafka.core.group.classic import GroupState
from minikafka.core.group.config import Client, GroupConfig
from minikafka.core.group.coordinator import GroupShard
from minikafka.wire.errors import ErrorCode
from minikafka.wire.messages.join_group import JoinGroupRequest
from minikafka.wire.messages.offset_commit import OffsetCommitRequest
from minikafka.wire.messages.txn_offset_commit import TxnOffsetCommitRequest

NOW_MS = 1_000_000


class Commits:
    """A shard, and commits to its group "g"."""

    def __init__(self) -> None:
        self.shard = GroupShard(GroupConfig(initial_rebalance_delay_ms=0, offset_metadata_bytes_max=4), lambda: "uuid", lambda ms: ms)
        self.shard.loaded(NOW_MS)

    def answered(self) -> Any:
        """The answer to the one request."""
        found = []
        while effects := self.shard.take_effects():
            for append in effects.appends:
                append.on_settled(True, NOW_MS)
                append.on_done(ErrorCode.NONE, NOW_MS)
            found += [answer for _, answer in effects.answers]
        (answer,) = found
        return answer

    def commit(self, metadata: str, *, in_transaction: bool, member_id: str = "", generation: int = -1) -> ErrorCode:
        kind: Any = TxnOffsetCommitRequest if in_transaction else OffsetCommitRequest
        topic = getattr(kind, f"{kind.__name__}Topic")
        partition = getattr(kind, f"{kind.__name__}Partition")
        topics = [topic(name="t", partitions=[partition(partition_index=0, committed_offset=1, committed_metadata=metadata)])]
        request = kind(group_id="g", member_id=member_id, generation_id_or_member_epoch=generation, topics=topics)
        resolve = lambda name, topic_id, index: (name, bytes(range(16)))  # noqa: E731
        if in_transaction:
            self.shard.commit_transactional("commit", request, 5, resolve, lambda: None, NOW_MS)
        else:
            self.shard.commit("commit", request, 9, resolve, NOW_MS)
        return ErrorCode(self.answered().topics[0].partitions[0].error_code)


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_commit_that_is_refused_for_its_metadata_alone_creates_the_group(in_transaction: bool) -> None:
    commits = Commits()
    assert commits.commit("long", in_transaction=in_transaction, generation=3) is (
        ErrorCode.ILLEGAL_GENERATION if in_transaction else ErrorCode.GROUP_ID_NOT_FOUND
    )
    assert "g" not in commits.shard.groups
    assert commits.commit("longer", in_transaction=in_transaction) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commits.shard.groups["g"].state is GroupState.EMPTY
    assert commits.commit("long", in_transaction=in_transaction, generation=3) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("in_transaction", [False, True])
def test_a_member_that_has_only_been_announced_commits_to_an_empty_group(in_transaction: bool) -> None:
    commits = Commits()
    protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer", protocols=protocols
    )
    commits.shard.join("join", request, Client("client", "/1.2.3.4", 5), NOW_MS)
    announced = commits.answered()
    assert announced.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert commits.commit("", in_transaction=in_transaction, member_id=announced.member_id) is ErrorCode.NONE
    assert commits.commit("", in_transaction=in_transaction, member_id=announced.member_id, generation=0) is ErrorCode.UNKNOWN_MEMBER_ID
