"""What takes back a sequence's ACLs, quotas and users: the broker would keep those of thousands of sequences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from minikafka.wire.messages.create_acls import CreateAclsRequest
from minikafka.wire.messages.delete_acls import DeleteAclsRequest

ANY = 1
QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


def undoing(requests: Sequence[Any], prefix: str) -> Iterator[tuple[Any, int]]:
    """Requests with their versions, which undo what `requests` may have changed. Names begin with `prefix`."""
    creations = [creation for request in requests if isinstance(request, CreateAclsRequest) for creation in request.creations]
    wanted = sorted({creation.principal for creation in creations if prefix in creation.principal})
    if wanted:
        kind = DeleteAclsRequest.DeleteAclsFilter
        wide = {"resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY}
        yield DeleteAclsRequest(filters=[kind(principal_filter=principal, **wide) for principal in wanted]), 3
    for request in requests:
        if isinstance(request, AlterClientQuotasRequest):
            kept = AlterClientQuotasRequest
            removals = [kept.OpData(key=key, value=0.0, remove=True) for key in QUOTAS]
            yield kept(entries=[kept.EntryData(entity=entry.entity, ops=removals) for entry in request.entries]), 1
        if isinstance(request, AlterUserScramCredentialsRequest):
            user = AlterUserScramCredentialsRequest.ScramCredentialDeletion
            made = sorted({(one.name, one.mechanism) for one in request.upsertions})
            yield AlterUserScramCredentialsRequest(deletions=[user(name=name, mechanism=number) for name, number in made]), 0
