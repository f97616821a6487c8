"""What can go wrong for a user of the client, in sentences for people."""

from __future__ import annotations

from minikafka.wire.errors import ErrorCode


class ClientError(Exception):
    """Something that the caller has to know; the text says what, why and what to do."""


class WrongAddress(ClientError):
    """Text that is no address, or a list without one."""


class NoBrokers(ClientError):
    """No broker of the bootstrap list answers."""


class AuthenticationError(ClientError):
    """A broker and this client do not accept each other: a certificate, a password, a SASL mechanism. Trying again does not help."""


class NoOffsetForPartition(ClientError):
    """A group has committed nothing of a partition, and auto_offset_reset is none: `seek` says where to begin."""


class BrokerError(ClientError):
    """A broker refused; `code` is the protocol's."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class DeliveryFailed(BrokerError):
    """A record was not acknowledged within delivery.timeout.ms, or can never be; whether it was stored is not known after a timeout."""


class TransactionFailed(ClientError):
    """The open transaction cannot be committed; `abort` it, and begin the next."""


class ProducerFenced(ClientError):
    """A newer producer has taken the transactional id over. This one is of no more use."""


def refusal(code: int, what: str, message: str | None = None) -> BrokerError:
    """A BrokerError that says what was refused."""
    error = ErrorCode(code)
    return BrokerError(error, f"{what}: {message or error.text} ({error.name})")
