"""A Django view that writes events with confluent-kafka, and the command that reads them."""

import json

import confluent_kafka
import django
from django.conf import settings
from django.http import JsonResponse
from django.test import Client
from django.urls import path

settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["testserver"], SECRET_KEY="tests only", KAFKA={}, KAFKA_TOPIC="")
django.setup()


def sign_up(request):
    """Write an event and respond once Kafka has acknowledged it; an earlier response could be wrong."""
    failed = []
    producer = confluent_kafka.Producer(settings.KAFKA)
    producer.produce(settings.KAFKA_TOPIC, request.body, key=b"user", on_delivery=lambda error, _: error and failed.append(error))
    if producer.flush(10) or failed:
        return JsonResponse({"error": str(failed)}, status=503)
    return JsonResponse({"signed_up": json.loads(request.body)["name"]}, status=201)


urlpatterns = [path("sign-up", sign_up)]


def read_events(config, topic, count):
    """The events, as a management command of the application would read them."""
    consumer = confluent_kafka.Consumer({**config, "group.id": "mailer", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        for _ in range(count):
            message = consumer.poll(20)
            assert message is not None and not message.error()
            yield json.loads(message.value())
    finally:
        consumer.close()


def test_a_user_who_signs_up_is_an_event(kafka, kafka_topic):
    settings.KAFKA, settings.KAFKA_TOPIC = kafka.client_config("confluent"), kafka_topic
    answer = Client().post("/sign-up", {"name": "ada"}, content_type="application/json")
    assert (answer.status_code, answer.json()) == (201, {"signed_up": "ada"})
    assert list(read_events(settings.KAFKA, kafka_topic, 1)) == [{"name": "ada"}]
