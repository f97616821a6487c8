"""A FastStream application against embedded brokers: real groups and partitions, not FastStream's in-memory test broker."""

import asyncio

from faststream.confluent import KafkaBroker
from pydantic import BaseModel


class Order(BaseModel):
    """An item and how many of it."""

    item: str
    count: int


class Bill(BaseModel):
    """The total price of an order."""

    item: str
    cents: int


def application(bootstrap_servers, orders, bills, group):
    """A service that reads orders and writes bills."""
    broker = KafkaBroker(bootstrap_servers)

    @broker.subscriber(orders, group_id=group, auto_offset_reset="earliest")
    @broker.publisher(bills)
    async def price(order: Order) -> Bill:
        return Bill(item=order.item, cents=25 * order.count)

    return broker


def test_an_order_becomes_a_bill(kafka):
    orders, bills = kafka.topic("orders", partitions=2), kafka.topic("bills")

    async def story():
        broker = application(kafka.bootstrap_servers, orders, bills, kafka.group("service"))
        written = asyncio.Queue()

        @broker.subscriber(bills, group_id=kafka.group("till"), auto_offset_reset="earliest")
        async def note(bill: Bill):
            await written.put(bill)

        async with broker:
            await broker.start()
            await broker.publish(Order(item="apples", count=4), orders, key=b"alice")
            return await asyncio.wait_for(written.get(), 20)

    assert asyncio.run(story()) == Bill(item="apples", cents=100)
