"""The page /ui in a real browser: what a healthy cluster looks like, what one with a dead broker, on a wide screen and on a phone."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from helpers.browser import browser

from minikafka.testing import EmbeddedCluster

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    audits = tmp_path_factory.mktemp("audits")
    spec = {"orders": {"partitions": 3}, "clicks": {"partitions": 1, "replication_factor": 2}}
    # A broker that hangs is in service for long enough to be looked at, on a busy machine too.
    config = {"minikafka.audit.report.dir": str(audits), "broker.session.timeout.ms": 30_000}
    with EmbeddedCluster(3, topics=spec, first_http_port=0, config=config) as made:
        producer = confluent_kafka.Producer(made.client_config())
        for number in range(1500):
            producer.produce("orders", b"x", partition=number % 3)
        assert producer.flush(10) == 0
        consumer = confluent_kafka.Consumer(made.client_config(**{"group.id": "<b>billing</b>"}))
        consumer.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, 100)], asynchronous=False)
        consumer.close()
        run = {"outcome": "PASS", "exit_code": 0, "partitions": 4, "batches_compared": 12, "bytes_compared": 1, "seconds": 1.0}
        (audits / "runs.jsonl").write_text(json.dumps({**run, "verdicts": {"MATCH": 4}, "checks": {}}) + "\n")
        yield made


def url(cluster: EmbeddedCluster, node_id: int) -> str:
    return f"http://127.0.0.1:{cluster.broker(node_id).http_port}/ui"


def test_the_page_and_its_json_are_served_with_a_strict_policy(cluster: EmbeddedCluster) -> None:
    with urllib.request.urlopen(url(cluster, 1)) as response:
        policy, page = response.headers["Content-Security-Policy"], response.read().decode()
    assert policy.startswith("default-src 'none'") and "connect-src 'self'" in policy
    assert "http://" not in page and "https://" not in page and "src=" not in page
    with urllib.request.urlopen(url(cluster, 2).replace("/ui", "/v1/cluster")) as response:
        view = json.load(response)
    assert view["node_id"] == 2 and view["controller"] == cluster.controller and view["cluster_id"] == cluster.cluster_id
    partition = next(p for p in view["partitions"] if p["topic"] == "orders" and p["partition"] == 0)
    assert partition["high_watermark"] == 500 and sorted(partition["isr"]) == [1, 2, 3]
    assert [(r["log_end_offset"], r["lag"]) for r in partition["replicas"]] == [(500, 0)] * 3
    behind_ms = {r["id"]: r["behind_ms"] for r in partition["replicas"] if r["behind_ms"] is not None}
    assert behind_ms == ({one: 0 for one in (1, 2, 3) if one != 2} if partition["leader"] == 2 else {})


def test_a_healthy_cluster(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with browser() as window:
        window.open(url(cluster, 1))
        window.wait("view && document.querySelectorAll('#partitions tbody tr').length === 4")
        assert window.run("return document.getElementById('health').textContent") == "healthy"
        assert window.run("return document.querySelectorAll('.replica.leader').length") == 4 + 1, "one a partition, one in the key"
        assert window.run("return document.querySelectorAll('#brokers .node').length") == 3
        text = window.run("return document.body.innerText")
        assert "<b>billing</b>" in text and "400" in text and "12 batches of 4 partitions compared" in text
        assert "broker 2 is in service" in text
        window.run("const box = document.getElementById('filter'); box.value = 'click'; box.dispatchEvent(new Event('input'))")
        assert window.run("return document.querySelectorAll('#partitions tbody tr').length") == 1
        tiles = "return [...document.querySelectorAll('.tile b')].map(e => e.textContent).slice(1, 3)"
        assert window.run(tiles) == ["2", "4"], "what the table lists"
        window.run("const box = document.getElementById('internal'); box.checked = true; box.dispatchEvent(new Event('input'))")
        assert window.run(tiles) == ["3", "5"], "and with internal topics __consumer_offsets"
        assert window.run("return performance.getEntriesByType('resource').filter(e => !e.name.startsWith(location.origin)).length") == 0
        assert len(window.screenshot()) > 20_000


@pytest.mark.parametrize("width", [1280, 390])
def test_records_and_configurations_open_on_a_click(cluster: EmbeddedCluster, width: int) -> None:
    producer = confluent_kafka.Producer(cluster.client_config())
    headers: list[tuple[str, bytes]] = [("trace", b"<i>7</i>"), ("raw", b"\xff\xfe")]
    producer.produce("clicks", key=b"k", value=b'{"page": "<script>alert(1)</script>", "id": 12345678901234567890}', headers=headers)
    producer.produce("clicks", value=b'{"a":[1]}')
    assert producer.flush(10) == 0
    with browser(width=width, height=844, mobile=width < 500) as window:
        window.open(url(cluster, 1))
        window.wait("view && document.querySelector('#partitions tbody button')")
        window.run("for (const event of view.events) event.wall_ms -= 240000; showEvents()")
        assert window.run("return [...document.querySelectorAll('#events time')].every(e => e.getClientRects().length === 1)")
        window.run("[...document.querySelectorAll('#partitions tbody button')].find(e => e.textContent === 'clicks-0').click()")
        window.wait("document.querySelectorAll('.record').length > 1")
        text = window.run("return document.getElementById('shown').innerText")
        assert text.index('"a": [\n    1\n  ]') < text.index("<script>alert(1)</script>"), "the newest first, JSON over lines"
        assert "12345678901234567890" in text and "<i>7</i>" in text and "ff fe" in text
        assert window.run("return document.getElementById('details').getBoundingClientRect().right <= innerWidth")
        window.run("document.querySelectorAll('.tab')[1].click()")
        window.wait("document.getElementById('shown').innerText.includes('cleanup.policy')")
        window.run("document.getElementById('close').click(); document.querySelector('#brokers button').click()")
        window.wait("document.getElementById('shown').innerText.includes('broker.session.timeout.ms')")
        assert window.run("return document.getElementById('subject').textContent") == "Broker 1"
        assert window.run("return document.documentElement.scrollWidth") == width


def test_a_replica_that_falls_behind_shows_for_how_long(cluster: EmbeddedCluster) -> None:
    leader = cluster.leader("orders", 1)
    follower = next(one for one in cluster.isr("orders", 1) if one not in (leader, cluster.controller))
    with browser() as window:
        window.open(url(cluster, leader))
        window.wait("view && document.querySelector('.replica')")
        cluster.broker(follower).pause()
        try:
            producer = confluent_kafka.Producer(cluster.client_config(acks=1))
            producer.produce("orders", b"late", partition=1)
            assert producer.flush(10) == 0
            window.wait("document.querySelector('.replica.mute') && document.querySelector('.replica .late')")
            health, mute, late, shown = window.run("""
                return [document.getElementById('health').textContent, document.querySelector('.replica.mute').textContent,
                        document.querySelector('.replica .late').textContent, document.querySelector('.replica:has(.late)').title]
            """)
        finally:
            cluster.broker(follower).resume()
            cluster.wait_isr("orders", 1, size=3)
    assert health.startswith("1 broker does not answer") and mute.startswith("?") and late.endswith(("ms", "s"))
    assert shown.startswith(f"broker {follower}: no answer") and "last caught up" in shown


def test_a_dead_broker_is_seen_at_once_and_on_a_phone(cluster: EmbeddedCluster) -> None:
    victim = next(broker.node_id for broker in cluster.brokers if broker.node_id != cluster.controller)
    witness = cluster.controller
    cluster.broker(victim).kill()
    cluster.wait_until(lambda: victim not in cluster.isr("orders", 0), "the broker to be fenced")
    with browser(width=390, height=844, mobile=True, dark=True) as window:
        window.open(url(cluster, witness))
        window.wait("view && view.brokers.some(broker => broker.fenced)")
        health = window.run("return document.getElementById('health').textContent")
        assert health.startswith("1 broker is down, ") and "under-replicated" in health
        assert window.run("return document.querySelectorAll('.node.down').length") == 1
        assert window.run("return document.querySelectorAll('.replica.off').length") > 1
        assert f"broker {victim} is fenced" in window.run("return document.getElementById('events').innerText")
        assert window.run("return document.documentElement.scrollWidth") == 390, "nothing sticks out"
        assert window.run("return getComputedStyle(document.body).backgroundColor") == "rgb(18, 19, 24)"
        cluster.repair()
        window.wait("document.getElementById('health').textContent === 'healthy'", 30)
