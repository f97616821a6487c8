"""Every API of Apache Kafka 4.3 by key (`api_table`); message classes are imported on first use."""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import cast

from minikafka.wire.api_table import API_TABLE, ApiRow
from minikafka.wire.message import Request, Response


class Api:
    """One API. `max_version` is the highest version that a stable release serves."""

    def __init__(self, row: ApiRow) -> None:
        self.key = row.key
        self.name = row.name
        self.min_version = row.min_version
        self.max_version = row.max_version
        self.listeners = row.listeners
        self.flexible_from = row.flexible_from
        self._module = row.module

    def __repr__(self) -> str:
        return f"Api({self.key}, {self.name}, v{self.min_version}-{self.max_version})"

    @cached_property
    def request(self) -> type[Request]:
        """The request's class."""
        return cast(type[Request], getattr(importlib.import_module(f"minikafka.wire.messages.{self._module}"), f"{self.name}Request"))

    @cached_property
    def response(self) -> type[Response]:
        """The response's class."""
        return cast(type[Response], getattr(importlib.import_module(f"minikafka.wire.messages.{self._module}"), f"{self.name}Response"))


_APIS = {row.key: Api(row) for row in API_TABLE}


def apis() -> tuple[Api, ...]:
    """All APIs by key."""
    return tuple(_APIS.values())


def api(api_key: int) -> Api | None:
    """One API, or None for a key that Kafka 4.3 does not have."""
    return _APIS.get(api_key)
