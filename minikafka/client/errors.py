"""The errors that the client raises. Their texts say what failed, why and what to do."""

from __future__ import annotations

from minikafka.wire.errors import ErrorCode

#: What a connection fails with.
TRANSPORT_ERRORS = (OSError, TimeoutError)


class ClientError(Exception):
    """Base class of the client's errors; the text says what failed, why and what to do."""


class WrongAddress(ClientError):
    """A text that is not an address, or a bootstrap list without one."""


class WrongSettings(ClientError):
    """Client properties that cannot be used: an unknown protocol or mechanism, a file that cannot be read, a missing password."""


class NoBrokers(ClientError):
    """No broker of the bootstrap list answers."""


class AuthenticationError(ClientError):
    """A broker or this client rejects the other: its certificate, password or SASL mechanism. Trying again does not help."""


class NoOffsetForPartition(ClientError):
    """A group has no committed offset of a partition, and auto_offset_reset is none. Set the position with `seek`."""


class BrokerError(ClientError):
    """A broker returned an error; `code` is the protocol's error code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class DeliveryFailed(BrokerError):
    """A record was not acknowledged within delivery.timeout.ms, or never will be. After a timeout it may or may not have been stored."""


class TransactionFailed(ClientError):
    """The open transaction cannot be committed; `abort` it, then begin the next."""


class ProducerFenced(ClientError):
    """A newer producer has taken over the transactional id. This producer can only be closed."""


def refusal(code: int, what: str, message: str | None = None) -> BrokerError:
    """A BrokerError that says what was refused."""
    error = ErrorCode(code)
    return BrokerError(error, f"{what}: {message or error.text} ({error.name})")
