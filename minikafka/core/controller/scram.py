"""SCRAM credentials of users (KIP-554), as records. Rules: Apache Kafka's ScramControlManager."""

from __future__ import annotations

from typing import Any

from minikafka.core.controller.state import ControllerState, Result
from minikafka.core.scram import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM_MECHANISMS, ScramCredential
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse
from minikafka.wire.records.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord

_MECHANISMS = {mechanism.number: mechanism for mechanism in SCRAM_MECHANISMS.values()}


class ScramControl:
    """Changes SCRAM credentials."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def alter(self, request: AlterUserScramCredentialsRequest) -> Result:
        """AlterUserScramCredentials: for each user, all changes are made or none, and the first fault is named. A user may get credentials
        of both mechanisms at once; Apache Kafka refuses a second change of a user, whatever its mechanism."""
        changes: list[Any] = [*request.deletions, *request.upsertions]
        failures: dict[str, ApiError | None] = {}
        records: dict[str, list[Any]] = {}
        seen = set[tuple[str, int]]()
        for change in changes:
            name = change.name
            failures.setdefault(name, None)
            if failures[name] is not None:
                continue
            try:
                if (name, change.mechanism) in seen:
                    raise ApiError(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
                seen.add((name, change.mechanism))
                is_deletion = isinstance(change, AlterUserScramCredentialsRequest.ScramCredentialDeletion)
                records.setdefault(name, []).append(self._deletion(change) if is_deletion else _upsertion(change))
            except ApiError as error:
                failures[name] = error
        kind = AlterUserScramCredentialsResponse
        response = kind(
            results=[
                kind.AlterUserScramCredentialsResult(
                    user=name, error_code=error.code if error else ErrorCode.NONE, error_message=error.message if error else None
                )
                for name, error in failures.items()
            ]
        )
        return Result(response, [record for name, found in records.items() if failures[name] is None for record in found])

    def _deletion(self, change: Any) -> RemoveUserScramCredentialRecord:
        _check(change)
        if (change.name, change.mechanism) not in self._state.image.scram:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)


def _upsertion(change: Any) -> UserScramCredentialRecord:
    _check(change)
    if change.iterations < ITERATIONS_MIN:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    mechanism = _MECHANISMS[change.mechanism]
    credential = ScramCredential.of_salted_password(mechanism, bytes(change.salted_password), bytes(change.salt), change.iterations)
    return credential_record(change.name, change.mechanism, credential)


def credential_record(name: str, mechanism: int, credential: ScramCredential) -> UserScramCredentialRecord:
    """The record of a user's credential."""
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def _check(change: Any) -> None:
    if not change.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in _MECHANISMS:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
