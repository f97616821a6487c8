"""The assignors of streams groups by name (`group.streams.assignors`)."""

from __future__ import annotations

from minikafka.core.group.streams.model import Assignor
from minikafka.core.group.streams.sticky_assignor import assign_sticky

ASSIGNORS: dict[str, Assignor] = {"sticky": assign_sticky}
