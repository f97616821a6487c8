"""The process of a member of a group, which takes part, leaves, and comes back as a new member."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from minikafka.client.errors import TRANSPORT_ERRORS, ClientError

if TYPE_CHECKING:
    from minikafka.sim.client import Client

EXPECTED_ERRORS = (ClientError, *TRANSPORT_ERRORS)


class Rejoin(Exception):
    """The membership has ended, and the process has to begin anew."""


class Member(Protocol):
    """One membership."""

    async def take_part(self) -> None:
        """Take part until it is time to leave. Raises Rejoin and EXPECTED_ERRORS."""

    async def leave(self) -> None:
        """Leave the group. Raises EXPECTED_ERRORS; then the coordinator ends the session."""


async def live(client: Client, new_member: Callable[[], Member]) -> None:
    """Go through memberships without end."""
    while True:
        member = new_member()
        with contextlib.suppress(Rejoin, *EXPECTED_ERRORS):
            await member.take_part()
        with contextlib.suppress(*EXPECTED_ERRORS):
            await member.leave()
        await asyncio.sleep(0.05 + client.random.expovariate(5.0))
