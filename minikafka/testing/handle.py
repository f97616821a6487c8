"""A test's handle on a cluster that other tests use too: it gives topics and groups unique names and deletes them at the end."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from typing import Any, Protocol

from minikafka.client.cluster import first_answer_ms
from minikafka.client.errors import ClientError
from minikafka.client.maintenance import Maintenance
from minikafka.testing import inspection
from minikafka.testing.admin_thread import AdminThread

#: How long a cluster that is said to run may take to answer.
FIRST_ANSWER_MS = 5000


class SomeCluster(Protocol):
    """EmbeddedCluster or ExternalCluster."""

    @property
    def bootstrap_servers(self) -> str: ...

    @property
    def admin(self) -> AdminThread: ...

    def client_config(self, client: str = "confluent", **more: Any) -> dict[str, Any]: ...


class ExternalCluster:
    """A cluster that is already running: a CI service, a real Apache Kafka."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._admin: AdminThread | None = None

    @property
    def admin(self) -> AdminThread:
        """Calls `minikafka.client.Admin` without asyncio, as `EmbeddedCluster.admin` does."""
        if self._admin is None:
            self._admin = AdminThread(self.bootstrap_servers)
        return self._admin

    def client_config(self, client: str = "confluent", **more: Any) -> dict[str, Any]:
        """Settings that connect a client, as `EmbeddedCluster.client_config` returns them."""
        return inspection.client_config(self.bootstrap_servers, client, more)

    def check(self) -> None:
        """Reach a broker. Raises NoBrokers, AuthenticationError, TimeoutError."""

        async def reach(admin: Maintenance) -> None:
            token = first_answer_ms.set(FIRST_ANSWER_MS)
            try:
                await admin.cluster.retry(lambda: admin.cluster.refresh([]))
            finally:
                first_answer_ms.reset(token)

        self.admin.call(reach)

    def close(self) -> None:
        """Disconnect."""
        if self._admin is not None:
            self._admin.close()
            self._admin = None


class KafkaHandle:
    """One test's view of a cluster. The names of its topics and groups have a unique prefix; `close` deletes them."""

    def __init__(self, cluster: SomeCluster, prefix: str | None = None) -> None:
        self.cluster: Any = cluster
        self.prefix = prefix if prefix is not None else f"test-{uuid.uuid4().hex[:8]}-"
        self._topics: list[str] = []
        self._groups: list[str] = []

    def __getattr__(self, name: str) -> Any:
        """Called for missing attributes only: the error says that the cluster has one of that name, if it has."""
        cluster = self.__dict__.get("cluster")
        hint = f"; its .cluster has one: .cluster.{name}" if not name.startswith("_") and hasattr(type(cluster), name) else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    @property
    def bootstrap_servers(self) -> str:
        """host:port, separated by commas."""
        return self.cluster.bootstrap_servers  # type: ignore[no-any-return]

    def client_config(self, client: str = "confluent", **more: Any) -> dict[str, Any]:
        """Settings that connect a client: "confluent", "aiokafka", "kafka-python", "java" or "spark"; `more` is added."""
        return self.cluster.client_config(client, **more)  # type: ignore[no-any-return]

    def topic(
        self, name: str = "topic", partitions: int = 1, replication_factor: int = -1, configs: Mapping[str, Any] | None = None
    ) -> str:
        """Create a topic and return its full name: the prefix and `name`. Raises BrokerError if this test has already created it."""
        full = self.prefix + name
        texts = {key: str(value) for key, value in (configs or {}).items()}
        self.cluster.admin.call(
            lambda admin: admin.create_topic(full, partitions=partitions, replication_factor=replication_factor, configs=texts)
        )
        self._topics.append(full)
        return full

    def group(self, name: str = "group") -> str:
        """The full group id: the prefix and `name`."""
        full = self.prefix + name
        if full not in self._groups:
            self._groups.append(full)
        return full

    def close(self) -> None:
        """Delete this test's topics and groups; failures (a cluster that is down, a group that still has members) are ignored."""
        for group in self._groups:
            with contextlib.suppress(ClientError, OSError, TimeoutError):
                self.cluster.admin.call(lambda admin, group=group: admin.delete_group(group))
        for topic in self._topics:
            with contextlib.suppress(ClientError, OSError, TimeoutError):
                self.cluster.admin.call(lambda admin, topic=topic: admin.delete_topic(topic))
        self._topics.clear()
        self._groups.clear()
