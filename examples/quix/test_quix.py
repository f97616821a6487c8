"""A Quix Streams application with state against embedded brokers: it reads orders and keeps a total for each customer."""

from quixstreams import Application


def application(bootstrap_servers, orders, totals, group, state_dir):
    """A service that adds up the orders of each customer. Its state survives a restart, in a changelog topic."""
    app = Application(
        broker_address=bootstrap_servers, consumer_group=group, auto_offset_reset="earliest", state_dir=state_dir, loglevel=None
    )

    def add(order, state):
        total = state.get("cents", default=0) + order["cents"]
        state.set("cents", total)
        return {"cents": total}

    frame = app.dataframe(app.topic(orders, value_deserializer="json"))
    frame.apply(add, stateful=True).to_topic(app.topic(totals, value_serializer="json"))
    return app


def produce(app, topic, orders):
    """Write orders, keyed by customer."""
    declared = app.topic(topic, value_serializer="json")
    with app.get_producer() as producer:
        for customer, cents in orders:
            message = declared.serialize(key=customer, value={"cents": cents})
            producer.produce(declared.name, key=message.key, value=message.value)


def read(app, topic, count):
    """The first `count` values of a topic."""
    declared = app.topic(topic, value_deserializer="json")
    with app.get_consumer() as consumer:
        consumer.subscribe([declared.name])
        return [declared.deserialize(consumer.poll(10)) for _ in range(count)]


def test_totals_go_on_after_a_restart(kafka, tmp_path):
    orders, totals, group = kafka.topic("orders", partitions=2), kafka.topic("totals"), kafka.group("service")

    def run(state_dir, count):
        """One life of the service: it ends after `count` orders."""
        application(kafka.bootstrap_servers, orders, totals, group, tmp_path / state_dir).run(count=count)

    client = Application(broker_address=kafka.bootstrap_servers, consumer_group=kafka.group("test"), auto_offset_reset="earliest")
    produce(client, orders, [("alice", 100), ("bob", 30), ("alice", 25)])
    run("first", 3)
    produce(client, orders, [("bob", 12)])
    run("another disk", 1)  # its state comes from the changelog

    found = {}
    for row in read(client, totals, 4):
        found[row.key] = row.value["cents"]
    assert found == {b"alice": 125, b"bob": 42}
