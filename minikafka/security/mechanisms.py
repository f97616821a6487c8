"""The interface of SASL mechanisms, and PLAIN (RFC 4616). Mechanisms have no sockets: tokens in, tokens out."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Protocol

WRONG_PASSWORD = "Authentication failed: Invalid username or password"


class SaslRefused(Exception):
    """An exchange has failed. `str()` is for this side's log. `client_message` may be sent to the peer; None: send only that it failed."""

    def __init__(self, reason: str, client_message: str | None = None) -> None:
        super().__init__(reason)
        self.client_message = client_message


class SaslServer(Protocol):
    """The server's side of one exchange: `evaluate` each token until `complete`; then `user` is the authenticated user.

    `expiry_ms`: when the delegation token that the client logged in with expires, in ms since 1970; None if it had none."""

    mechanism: str
    complete: bool
    user: str
    expiry_ms: int | None

    def evaluate(self, token: bytes) -> bytes:
        """The response to a client's token. Raises SaslRefused."""


class SaslClient(Protocol):
    """The client's side of one exchange."""

    def first(self) -> bytes:
        """The first token."""

    def next(self, challenge: bytes) -> bytes | None:
        """The response to the server's token, or None at the end. Raises SaslRefused."""


class PlainServer:
    """PLAIN with passwords from the user_NAME="password" options of a login module."""

    mechanism = "PLAIN"
    expiry_ms: int | None = None

    def __init__(self, users: Mapping[str, str]) -> None:
        self.complete = False
        self.user = ""
        self._users = users

    def evaluate(self, token: bytes) -> bytes:
        """Check a token: authorization id NUL user NUL password. The messages are those of Kafka's PlainSaslServer. Raises SaslRefused."""
        try:
            parts = token.decode("utf-8").split("\0")
        except UnicodeDecodeError:
            raise SaslRefused("the PLAIN message is not UTF-8") from None
        if len(parts) != 3:
            raise SaslRefused(f"the PLAIN message has {len(parts)} parts, not 3")
        authorization_id, user, password = parts
        if not user:
            raise SaslRefused("the PLAIN message has no user", "Authentication failed: username not specified")
        if not password:
            raise SaslRefused(f"user {user!r} sent no password", "Authentication failed: password not specified")
        expected = self._users.get(user)
        # Always compare, so that the response time does not reveal which users exist.
        is_right = hmac.compare_digest((expected if expected is not None else password + "\0").encode(), password.encode())
        if not is_right or expected is None:
            why = f"wrong password of user {user!r}" if expected is not None else f"there is no PLAIN user {user!r}"
            raise SaslRefused(why, WRONG_PASSWORD)
        if authorization_id and authorization_id != user:
            raise SaslRefused(
                f"user {user!r} requested another authorization id",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        self.user = user
        self.complete = True
        return b""


class PlainClient:
    """PLAIN's client: one token with user and password in clear text."""

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        """The only token."""
        return self._token

    def next(self, challenge: bytes) -> bytes | None:
        """None: the exchange has only one token."""
        return None
