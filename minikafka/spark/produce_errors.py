"""The client's errors, as load and sink report them."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from minikafka.addresses import split_addresses
from minikafka.client.blocking import BlockingLoop
from minikafka.client.errors import TRANSPORT_ERRORS, AuthenticationError, ClientError, NoBrokers
from minikafka.wire.errors import NotEncodable, WireError

Result = TypeVar("Result")


class ProduceFailed(Exception):
    """Records could not be written; the text names the partition, the broker's error and the time spent."""


class Unreachable(ProduceFailed):
    """No broker answers."""


class TopicGone(ProduceFailed):
    """The topic was deleted."""


def checked(bootstrap: str) -> str:
    """The bootstrap list, if it is one. Raises ValueError."""
    split_addresses(bootstrap)
    return bootstrap


def run_client(loop: BlockingLoop, work: Coroutine[Any, Any, Result]) -> Result:
    """Run a client coroutine. Its errors become ProduceFailed."""
    try:
        return loop.run(work)
    except (NoBrokers, AuthenticationError) as error:
        raise Unreachable(str(error)) from error
    except (ClientError, WireError, NotEncodable, *TRANSPORT_ERRORS) as error:
        raise ProduceFailed(str(error)) from error
