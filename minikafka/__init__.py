"""A replicated log server that speaks Apache Kafka's protocol and writes its on-disk format.

`minikafka.client`: producer, consumer, admin. `minikafka.testing`: brokers for tests. `minikafka.spark`: load and audit.
"""

from __future__ import annotations

#: The only definition of the version; the build reads it.
__version__ = "0.1.0"

__all__ = ["__version__"]
