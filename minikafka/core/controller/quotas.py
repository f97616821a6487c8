"""Client quotas (KIP-546): stored as records; the broker side applies them."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Sequence
from typing import Any

from minikafka.core.controller.state import ControllerState, Result
from minikafka.core.metadata.image import QuotaEntity
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from minikafka.wire.records.metadata_records import ClientQuotaRecord

USER, CLIENT_ID, IP = "user", "client-id", "ip"
_RATE_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate")
_LONG, _INT = (float((1 << 63) - 1), "a LONG"), (float((1 << 31) - 1), "an INT")
_WHOLE_KEYS = {"producer_byte_rate": _LONG, "consumer_byte_rate": _LONG, "connection_creation_rate": _INT}


class QuotaControl:
    """Changes client quotas."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def alter(self, request: AlterClientQuotasRequest) -> Result:
        """AlterClientQuotas: each entity succeeds or fails on its own. If an entity appears twice, the first change is made and the answer
        mentions the duplicate, as in Kafka (ClientQuotaControlManager)."""
        kind, records = AlterClientQuotasResponse, list[Any]()
        answers: dict[frozenset[tuple[str, str | None]], AlterClientQuotasResponse.EntryData] = {}
        for entry in request.entries:
            # A type that is named twice counts with its last name.
            parts = list({part.entity_type: part.entity_name for part in entry.entity}.items())
            earlier = answers.get(frozenset(parts))
            if earlier is not None:
                named = ", ".join(f"{type_}={name or '<default>'}" for type_, name in parts)
                earlier.error_code = ErrorCode.INVALID_REQUEST
                earlier.error_message = f"Ignoring duplicate entity ClientQuotaEntity(entries={{{named}}})"
                continue
            entity = [kind.EntityData(entity_type=type_, entity_name=name) for type_, name in parts]
            answer = answers[frozenset(parts)] = kind.EntryData(error_code=ErrorCode.NONE, error_message=None, entity=entity)
            try:
                records += self._alter_one(parts, entry.ops)
            except ApiError as error:
                answer.error_code, answer.error_message = error.code, error.message
        return Result(kind(entries=list(answers.values())), [] if request.validate_only else records)

    def _alter_one(self, parts: Sequence[tuple[str, str | None]], operations: Sequence[AlterClientQuotasRequest.OpData]) -> list[Any]:
        entity = _checked_entity(parts)
        keys = ("connection_creation_rate",) if entity[0][0] == IP else _RATE_KEYS
        named = [operation.key for operation in operations]
        twice = next((key for key in named if named.count(key) > 1), None) if len(set(named)) < len(named) else None
        if twice is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate quota key {twice} not updating quota for this entity")
        current = self._state.image.client_quotas.get(entity, {})
        records: list[Any] = []
        for operation in operations:
            key = operation.key
            if operation.remove:
                # As in Apache Kafka, what no entity can have can be removed, too.
                if key in current:
                    records.append(_record(entity, key, 0.0, True))
                continue
            if key not in keys:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
            value = operation.value
            fault = _fault_of(key, value)
            if fault is not None:
                raise ApiError(ErrorCode.INVALID_REQUEST, fault)
            if current.get(key) != value:
                records.append(_record(entity, key, value, False))
        return records


def _fault_of(key: str, value: float) -> str | None:
    """The message for an invalid value, or None (ClientQuotaControlManager.validateQuotaKeyValue)."""
    if not math.isfinite(value):
        return f"Quota {key} must be a finite number"
    if value <= 0:
        return f"Quota {key} must be greater than 0"
    if key not in _WHOLE_KEYS:
        return None
    most, kind = _WHOLE_KEYS[key]
    if value > most:
        return f"Proposed value for {key} is too large for {kind}."
    return f"{key} cannot be a fractional value." if abs(value - round(value)) > 1e-6 else None


def _record(entity: QuotaEntity, key: str, value: float, remove: bool) -> ClientQuotaRecord:
    return ClientQuotaRecord(
        entity=[ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        key=key,
        value=value,
        remove=remove,
    )


def _checked_entity(parts: Sequence[tuple[str, str | None]]) -> QuotaEntity:
    """The entity in canonical order. Raises ApiError INVALID_REQUEST."""
    if not parts:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    for kind, name in parts:
        if kind not in {USER, CLIENT_ID, IP}:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
        if kind == IP and name is not None:
            try:
                ipaddress.ip_address(name)
            except ValueError:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} is not a valid IP or resolvable host.") from None
    if len(parts) > 1 and any(kind == IP for kind, _ in parts):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Invalid quota entity combination, IP entity should be the only entity.")
    return tuple(sorted(parts))
