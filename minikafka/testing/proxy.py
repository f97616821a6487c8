"""A network of TCP proxies in front of a cluster's listeners, which can be cut, delayed and reset link by link.

Every node's port gets a front port. The proxy finds the node that opened a connection in /proc (Linux), so a link is (from node, to node),
with `CLIENT` for any other process. A cut link holds bytes back and does not lose them, as TCP does: when the link heals, they arrive late,
or the connection is reset. A connection that is opened over a cut link seems open and stays silent (half open).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from minikafka.testing.errors import ClusterError

CLIENT = 0
CHUNK_BYTES = 65536
LOOPBACK = "0100007F"
Link = tuple[int, int]


@dataclass(slots=True, eq=False)
class _Connection:
    #: (node that opened it or CLIENT, node of the listener).
    ends: Link
    #: To the side that opened it; and to the node, once that connection is open.
    writers: list[asyncio.StreamWriter] = field(default_factory=list)
    #: Nothing passes any more, and neither end notices.
    is_silent: bool = False

    def abort(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


class FaultyNetwork:
    """The proxies, in their own thread. Methods may be called from any thread.

    Invariant: within one direction of a connection, bytes keep their order, and none is lost unless the connection is reset or silenced.
    """

    def __init__(self, processes: Callable[[], Mapping[int, int]]) -> None:
        """`processes` returns process id -> node id for every process that belongs to the cluster now."""
        self._processes = processes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faulty-network", daemon=True)
        self._servers: list[asyncio.Server] = []
        self._connections: set[_Connection] = set()
        self._cut: set[Link] = set()
        self._delays: dict[Link, float] = {}
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections_total = 0
        self._thread.start()

    # -- ports -----------------------------------------------------------------------------------------------------

    def front(self, node_id: int, port: int) -> int:
        """Open a proxy in front of a node's `port`. Returns the front port."""
        return int(self._call(self._listen(node_id, port)))

    async def _listen(self, node_id: int, port: int) -> int:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await self._serve(node_id, port, reader, writer)
            except asyncio.CancelledError:
                pass
            finally:
                self._tasks.discard(task)

        server = await asyncio.start_server(accepted, "127.0.0.1", 0, limit=CHUNK_BYTES)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Reset everything and stop."""
        if self._thread.is_alive():
            self._call(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.abort()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- faults ----------------------------------------------------------------------------------------------------

    def cut(self, links: Iterable[Link]) -> None:
        """Hold back all bytes on these links until `heal`."""
        self._change(lambda: self._cut.update(links))

    def delay(self, links: Iterable[Link], seconds: float) -> None:
        """Delay all bytes on these links."""
        self._change(lambda: self._delays.update(dict.fromkeys(links, seconds)))

    def heal(self, *, reset: bool = False) -> None:
        """End cuts and delays. Held bytes arrive now; with `reset`, connections with a cut direction are reset instead."""

        def change() -> None:
            if reset:
                for connection in list(self._connections):
                    if {connection.ends, connection.ends[::-1]} & self._cut:
                        connection.abort()
            self._cut.clear()
            self._delays.clear()

        self._change(change)

    def reset(self, links: Iterable[Link]) -> None:
        """Reset the connections over these links, whichever end opened them."""
        wanted = set(links)

        def change() -> None:
            for connection in list(self._connections):
                if {connection.ends, connection.ends[::-1]} & wanted:
                    connection.abort()

        self._change(change)

    def silence(self, links: Iterable[Link]) -> int:
        """Make the connections that are open on these links silently dead, whichever end opened them: bytes and closes are lost, as when a
        middlebox drops its connection state. New connections work. Returns how many there were."""
        wanted = set(links)
        found: list[_Connection] = []

        def change() -> None:
            found.extend(one for one in self._connections if {one.ends, one.ends[::-1]} & wanted and not one.is_silent)
            for connection in found:
                connection.is_silent = True

        self._change(change)
        return len(found)

    def _change(self, change: Callable[[], object]) -> None:
        async def run() -> None:
            change()
            self._changed.set()
            self._changed = asyncio.Event()

        self._call(run())

    def _call(self, work: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(10)

    # -- connections -----------------------------------------------------------------------------------------------

    async def _serve(self, node_id: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer, own = writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1]
        source = owner_of(peer, own, self._processes())
        self.connections_total += 1
        connection = _Connection((source, node_id), [writer])
        self._connections.add(connection)
        try:
            await self._wait_until_healed(source, node_id)
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port, limit=CHUNK_BYTES)
            connection.writers.append(far_writer)
            there = self._pump(connection, reader, far_writer, (source, node_id))
            back = self._pump(connection, far_reader, writer, (node_id, source))
            await asyncio.gather(there, back)
        except OSError:
            pass
        finally:
            self._connections.discard(connection)
            connection.abort()

    async def _wait_until_healed(self, source: int, destination: int) -> None:
        while (source, destination) in self._cut:
            await self._changed.wait()

    async def _pump(self, connection: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link) -> None:
        try:
            while data := await reader.read(CHUNK_BYTES):
                delay_s = self._delays.get(link)
                if delay_s:
                    await asyncio.sleep(delay_s)
                await self._wait_until_healed(*link)
                if not connection.is_silent:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            if not connection.is_silent:
                raise
        await self._wait_until_healed(*link)
        if connection.is_silent:
            return
        with contextlib.suppress(OSError):
            writer.write_eof()


def owner_of(port: int, remote_port: int, processes: Mapping[int, int]) -> int:
    """The node whose process owns the loopback connection from `port` to `remote_port`, else CLIENT. Uses psutil if there is no /proc."""
    if not os.path.exists("/proc/net/tcp"):
        return _owner_by_psutil(port, remote_port, processes)
    with open("/proc/net/tcp", encoding="ascii") as table:
        local, remote = f"{LOOPBACK}:{port:04X}", f"{LOOPBACK}:{remote_port:04X}"
        inode = next((columns[9] for columns in map(str.split, table) if columns[1] == local and columns[2] == remote), None)
    for process, node_id in processes.items() if inode else ():
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{process}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{process}/fd/{name}") == f"socket:[{inode}]":
                        return node_id
    return CLIENT


def _owner_by_psutil(port: int, remote_port: int, processes: Mapping[int, int]) -> int:
    try:
        import psutil  # type: ignore[import-untyped]
    except ImportError as error:
        raise ClusterError("network partitions between processes need psutil on this system: pip install psutil") from error
    for process, node_id in processes.items():
        with contextlib.suppress(psutil.Error):
            for connection in psutil.Process(process).net_connections("tcp4"):
                if connection.raddr and (connection.laddr.port, connection.raddr.port) == (port, remote_port):
                    return node_id
    return CLIENT
