"""Every API: what it takes, and which error the answer carries without it, through real frames of a user who has logged in."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.acl_node import acl_node, channel_of, error_codes, set_acls
from helpers.acl_rows import CLUSTER_DENIED, GROUP_DENIED, TOPIC_DENIED, TXN_DENIED, Row, prepare, rows
from helpers.acl_rows_share import share_rows
from helpers.acl_rows_streams import streams_rows

from minikafka.broker.security.authorization.table import ON_BROKERS
from minikafka.core.authorizer.acl import Acl
from minikafka.wire.errors import ErrorCode

#: Told apart elsewhere: open to all, answers that leave out what may not be seen (test_authorization.py), or always refused.
NOT_HERE = {
    "ApiVersions", "SaslHandshake", "SaslAuthenticate", "DescribeCluster", "ListGroups", "ListTransactions",
    "GetTelemetrySubscriptions", "PushTelemetry",
    "CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken", "DescribeDelegationToken",
}  # fmt: skip


@pytest.mark.timeout(60)
async def test_every_api_takes_what_it_should_and_no_less(tmp_path: Path) -> None:
    faults = []
    async with acl_node(tmp_path) as node:
        admin = await channel_of(node, "admin")
        topic_id = await prepare(admin)
        admin.close()
        alice = await channel_of(node, "alice")
        for name, row in {**rows(), **share_rows(), **streams_rows()}.items():
            async def codes(acls: list[Acl], row: Row = row) -> list[int]:
                set_acls(node, acls)
                return error_codes(await alice.request(row.make(topic_id), row.version))

            acls = [acl for acl, _ in row.takes]
            for missing, error in row.takes:
                found = await codes([acl for acl in acls if acl != missing])
                if error not in found:
                    faults.append(f"{name} without {missing}: {found}, not {error.name}")
            found = await codes(acls)
            if {TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TXN_DENIED, ErrorCode.UNKNOWN_SERVER_ERROR} & set(found):
                faults.append(f"{name} with all that it takes: {found}")
        alice.close()
    assert not faults, "\n".join(faults)


def test_every_api_of_a_broker_is_in_the_table() -> None:
    covered = {type(row.make(bytes(16))).__name__.removesuffix("Request") for row in {**rows(), **share_rows(), **streams_rows()}.values()}
    assert covered == {request.__name__.removesuffix("Request") for request in ON_BROKERS} - NOT_HERE
