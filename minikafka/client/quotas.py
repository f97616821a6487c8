"""Admin requests for client quotas (KIP-546) and for the names of configured groups and client-metrics subscriptions (KIP-1142)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minikafka.client.admin import Admin
from minikafka.client.errors import refusal
from minikafka.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from minikafka.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from minikafka.wire.messages.list_config_resources import ListConfigResourcesRequest

MATCH_EXACT, MATCH_DEFAULT, MATCH_ANY = 0, 1, 2
#: (entity type, name or None for the default): user, client-id or ip.
Entity = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class Quota:
    """The quotas of one entity."""

    entity: Entity
    values: Mapping[str, float]


class QuotaAdmin(Admin):
    """An Admin that manages quotas."""

    async def describe_quotas(self, wanted: Sequence[tuple[str, str | None, bool]]) -> list[Quota]:
        """The quotas of entities with exactly these types: (type, name or None for the default, whether any name matches). Raises
        BrokerError."""
        kind = DescribeClientQuotasRequest
        components = [
            kind.ComponentData(
                entity_type=entity_type,
                match_type=MATCH_ANY if any_name else MATCH_DEFAULT if name is None else MATCH_EXACT,
                match=None if any_name else name,
            )
            for entity_type, name, any_name in wanted
        ]
        response = await self._ask(kind(components=components, strict=True))
        if response.error_code:
            raise refusal(response.error_code, "describing quotas", response.error_message)
        return [
            Quota(tuple((part.entity_type, part.entity_name) for part in entry.entity), {value.key: value.value for value in entry.values})
            for entry in response.entries or []
        ]

    async def alter_quotas(self, entity: Entity, changes: Mapping[str, float | None]) -> None:
        """Set quotas of one entity, or remove them (None). Raises BrokerError."""
        kind = AlterClientQuotasRequest
        entry = kind.EntryData(
            entity=[kind.EntityData(entity_type=entity_type, entity_name=name) for entity_type, name in entity],
            ops=[kind.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
        )
        for result in (await self._ask(kind(entries=[entry]))).entries:
            if result.error_code:
                raise refusal(result.error_code, "changing quotas", result.error_message)

    async def configured_resources(self, resource_type: int) -> list[str]:
        """Names of the groups (32) or client-metrics subscriptions (16) that have properties. Raises BrokerError."""
        response = await self._ask(ListConfigResourcesRequest(resource_types=[resource_type]))
        if response.error_code:
            raise refusal(response.error_code, "listing configured resources", None)
        return sorted(entry.resource_name for entry in response.config_resources)
