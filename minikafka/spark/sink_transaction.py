"""One transaction per task of a micro-batch, so that read_committed consumers see each micro-batch's rows once.

The transactional id consists of the query and the task's partition. Together with the rows, the transaction commits an offset of a group
of the same name: the number of the micro-batch. A task that runs again, in the same query or after a restart from the checkpoint, finds
the offset and writes nothing. A task that died earlier left an open transaction, which InitProducerId aborts.
"""

from __future__ import annotations

import contextlib

from minikafka.client.blocking import BlockingLoop
from minikafka.client.errors import TRANSPORT_ERRORS, ClientError
from minikafka.client.group import committed_offsets
from minikafka.client.transactional import TransactionalProducer
from minikafka.net.tasks import within
from minikafka.spark.produce_errors import ProduceFailed, checked, run_client
from minikafka.spark.security import PLAIN_TEXT, Security

CLIENT_ID = "minikafka-load"
#: Most bytes that may wait for their acknowledgement.
QUEUE_BYTES_MAX = 64 << 20
#: transaction.max.timeout.ms of Kafka: longer ones are refused. A task that takes longer is aborted, and fails.
TIMEOUT_MS = 900_000
#: How long a task that has failed tries to abort; else the next attempt or the time-out does.
ABORT_MS = 5000


class SinkTransaction:
    """`name`: transactional id and group; `epoch`: number of the micro-batch. Raises ProduceFailed, ValueError for a bad bootstrap list."""

    def __init__(
        self, bootstrap: str, topic: str, name: str, epoch: int, *, timeout_ms: int = 120_000, security: Security = PLAIN_TEXT
    ) -> None:
        self.topic, self.name, self.epoch = topic, name, epoch
        self.loop = BlockingLoop()
        self.producer = TransactionalProducer(
            checked(bootstrap), name, transaction_timeout_ms=TIMEOUT_MS, request_timeout_ms=timeout_ms, delivery_timeout_ms=timeout_ms,
            buffer_memory=QUEUE_BYTES_MAX, client_id=CLIENT_ID, security=security.client_properties(),
        )  # fmt: skip

    def begin(self) -> bool:
        """Fence earlier attempts and abort their transactions. False if the micro-batch is already committed."""
        return run_client(self.loop, self._begin())

    async def _begin(self) -> bool:
        await self.producer.start()
        await self.producer.init_transactions()
        found = await committed_offsets(self.producer.cluster, self.name, [(self.topic, 0)])
        if found[self.topic, 0] > self.epoch:
            return False
        self.producer.begin()
        return True

    def commit(self) -> None:
        """Commit the rows together with the micro-batch's number."""
        run_client(self.loop, self._commit())

    async def _commit(self) -> None:
        await self.producer.send_offsets_to_transaction({(self.topic, 0): self.epoch + 1}, self.name)
        await self.producer.commit()

    def abort(self) -> None:
        """Abort the transaction, if the cluster answers."""
        with contextlib.suppress(ProduceFailed):
            run_client(self.loop, self._abort())

    async def _abort(self) -> None:
        await within(ABORT_MS / 1000, self.producer.abort())

    def close(self) -> None:
        """Disconnect."""
        if not self.loop.is_closed:
            with contextlib.suppress(ClientError, *TRANSPORT_ERRORS):
                self.loop.run(self.producer.close(timeout_ms=0))
            self.loop.close()
