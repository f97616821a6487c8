"""A FastAPI application that writes orders with aiokafka and reads bills in the background, tested as a whole."""

import asyncio
import contextlib
import json

import aiokafka
import fastapi
from fastapi.testclient import TestClient


def make_app(bootstrap_servers, orders, bills):
    """The application as in production; topics and address are its settings."""

    @contextlib.asynccontextmanager
    async def lifespan(app):
        app.state.bills, app.state.news = {}, asyncio.Event()
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap_servers, acks="all")
        consumer = aiokafka.AIOKafkaConsumer(bills, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
        await producer.start()
        await consumer.start()

        async def read():
            async for message in consumer:
                app.state.bills[message.key.decode()] = json.loads(message.value)
                app.state.news.set()

        reading = asyncio.create_task(read())
        app.state.producer = producer
        yield
        reading.cancel()
        await consumer.stop()
        await producer.stop()

    app = fastapi.FastAPI(lifespan=lifespan)

    @app.post("/orders/{number}", status_code=202)
    async def order(number: str, request: fastapi.Request):
        written = await app.state.producer.send_and_wait(orders, await request.body(), key=number.encode())
        return {"offset": written.offset}

    @app.get("/bills/{number}")
    async def bill(number: str):
        if number not in app.state.bills:
            raise fastapi.HTTPException(404, "not billed yet")
        return app.state.bills[number]

    return app


async def bill_everything(bootstrap_servers, orders, bills, count):
    """A minimal version of the other service, for the test."""
    consumer = aiokafka.AIOKafkaConsumer(orders, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
    async with consumer, aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
        for _ in range(count):
            order = await asyncio.wait_for(consumer.getone(), 20)
            amount = json.loads(order.value)["quantity"] * 3
            await producer.send_and_wait(bills, json.dumps({"amount": amount}).encode(), key=order.key)


def test_an_order_is_billed(kafka):
    orders, bills = kafka.topic("orders"), kafka.topic("bills")
    with TestClient(make_app(kafka.bootstrap_servers, orders, bills)) as client:
        assert client.post("/orders/7", json={"quantity": 2}).json() == {"offset": 0}
        assert client.get("/bills/8").status_code == 404
        asyncio.run(bill_everything(kafka.bootstrap_servers, orders, bills, 1))
        answer = client.portal.call(until_billed, client.app, "7")
        assert answer == {"amount": 6} == client.get("/bills/7").json()


async def until_billed(app, number):
    """Wait until the background task has read the bill."""
    async with asyncio.timeout(20):
        while number not in app.state.bills:
            app.state.news.clear()
            await app.state.news.wait()
    return app.state.bills[number]
