"""A cluster with some of everything that dashboards show: produced and consumed records, groups, an error, a flush, a compaction."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import confluent_kafka
import confluent_kafka.admin

from minikafka.client.quotas import QuotaAdmin
from minikafka.testing import EmbeddedCluster

TOPIC, PAID = "orders", "paid"
LIMITED = ("produce", "fetch", "request")


@contextlib.contextmanager
def busy_cluster(http: bool = False) -> Iterator[tuple[EmbeddedCluster, Traffic]]:
    """Three combined nodes, and what makes more traffic on them."""
    # Pauses are told for two minutes.
    config = {"minikafka.metrics.dialects": "s,c,r", "quota.window.num": "120"}
    topics = {TOPIC: {"partitions": 6}, PAID: {"partitions": 1}}
    with EmbeddedCluster(3, topics=topics, config=config, first_http_port=0 if http else None) as cluster:
        traffic = Traffic(cluster)
        try:
            traffic.go_on()
            yield cluster, traffic
        finally:
            traffic.close()


class Traffic:
    """A producer, a group that lags behind, and a consumer that asks for what is not there."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        quiet = {"log_level": 2}
        self._cluster = cluster
        self._producer = confluent_kafka.Producer(cluster.client_config(**quiet))
        self._member = confluent_kafka.Consumer(
            cluster.client_config(**quiet, **{"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False})
        )
        self._member.subscribe([TOPIC])
        self._lost = confluent_kafka.Consumer(cluster.client_config(**quiet, **{"group.id": "lost", "auto.offset.reset": "error"}))
        self._lost.assign([confluent_kafka.TopicPartition(TOPIC, number, 1 << 40) for number in range(6)])
        self._consumed = 0
        self._produced = 0
        # Four clients of a user with quotas, most of which exceed their own.
        asyncio.run(_limit(cluster.bootstrap_servers))
        self._slow_producer = confluent_kafka.Producer(cluster.client_config(**quiet, **{"client.id": "slow-producer"}))
        slow = {**quiet, "client.id": "slow-consumer", "group.id": "slow", "enable.auto.commit": False}
        self._slow_consumer = confluent_kafka.Consumer(cluster.client_config(**slow))
        self._slow_consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        self._slow_asker = confluent_kafka.Producer(cluster.client_config(**quiet, **{"client.id": "slow-asker"}))
        maker = confluent_kafka.admin.AdminClient(cluster.client_config(**quiet, **{"client.id": "slow-maker"}))
        made = confluent_kafka.admin.NewTopic("made", num_partitions=1, replication_factor=3)
        maker.create_topics([made])["made"].result(20)
        self._transactional = confluent_kafka.Producer(cluster.client_config(**quiet, **{"transactional.id": "one"}))
        self._transactional.init_transactions(20)
        self._begun = False

    def go_on(self) -> None:
        """Some more of everything."""
        for number in range(60):
            self._producer.produce(TOPIC, b"x" * 100, partition=number % 6)
        self._produced += 60
        assert self._producer.flush(10) == 0
        while self._consumed < self._produced - 6:
            message = self._member.poll(5)
            if message is not None and message.error() is None:
                self._consumed += 1
        self._member.commit(asynchronous=False)
        self._lost.poll(1)
        if self._begun:
            self._transactional.commit_transaction(20)
        self._transactional.begin_transaction()
        self._begun = True
        self._transactional.produce(PAID, b"t", partition=0)
        self._transactional.flush(10)
        # That all of it is delivered is not waited for, only that the clients are told to pause.
        if not len(self._slow_producer):
            self._slow_producer.produce(TOPIC, b"x" * 4000, partition=0)
        self._cluster.wait_until(self._is_limited, "three clients to be told to pause", 30)

    def _is_limited(self) -> bool:
        self._slow_producer.poll(0)
        self._slow_consumer.poll(0.1)
        self._slow_asker.list_topics(TOPIC, 10)
        reported = [pair for broker in self._cluster.brokers for pair in self._cluster.metrics(broker.node_id).items()]
        held = {key.partition("{")[0] for key, value in reported if value > 0}
        return all(f"kafka_server_{kind}_throttle_time" in held for kind in LIMITED)

    def close(self) -> None:
        """Leave."""
        self._member.close()
        self._lost.close()
        self._transactional.abort_transaction(20)
        self._slow_producer.purge()
        self._slow_consumer.close()


async def _limit(servers: str) -> None:
    limits = {"slow-producer": ("producer_byte_rate", 30.0), "slow-consumer": ("consumer_byte_rate", 3.0)}
    limits |= {"slow-asker": ("request_percentage", 0.0001), "slow-maker": ("controller_mutation_rate", 1.0)}
    async with QuotaAdmin(servers) as admin:
        for client_id, (key, value) in limits.items():
            await admin.alter_quotas((("user", "ANONYMOUS"), ("client-id", client_id)), {key: value})
