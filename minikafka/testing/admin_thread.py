"""An admin client for blocking callers; its event loop runs in its own thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from minikafka.client.maintenance import Maintenance

CALL_TIMEOUT_S = 60.0


class AdminThread:
    """Runs coroutine functions that take a Maintenance (an Admin)."""

    def __init__(self, bootstrap: str, security: Mapping[str, str] | None = None) -> None:
        """`security`: Kafka's client properties."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="minikafka-admin", daemon=True)
        self._thread.start()
        self._admin = Maintenance(bootstrap, security=security)

    def call(self, work: Callable[[Maintenance], Awaitable[Any]], timeout_s: float = CALL_TIMEOUT_S) -> Any:
        """The result of `work(admin)`. Raises what it raises, or TimeoutError."""

        async def go() -> Any:
            return await work(self._admin)

        return asyncio.run_coroutine_threadsafe(go(), self._loop).result(timeout_s)

    def close(self) -> None:
        """Close the connections and end the thread."""

        async def end() -> None:
            await self._admin.close()

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(CALL_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT_S)
        self._loop.close()
