"""SCRAM-SHA-256 and SCRAM-SHA-512, both sides, without channel binding (RFC 5802, RFC 7677; KIP-84 for Kafka's limits).

Secrets are compared in constant time, every echoed nonce is checked (CVE-2024-56128), and a user who does not exist gets a salt too.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Callable

from minikafka.core.scram import ITERATIONS_MIN, SCRAM_MECHANISMS, SHA_256, SHA_512, ScramCredential, ScramMechanism, TokenLogin
from minikafka.security.mechanisms import SaslRefused

__all__ = ["SCRAM_MECHANISMS", "SHA_256", "SHA_512", "ScramClient", "ScramCredential", "ScramMechanism", "ScramServer"]

#: The client refuses larger iteration counts: no honest server asks for them, and they would keep it busy.
CLIENT_ITERATIONS_MAX = 1_000_000
_NAME = r"(?:[^=,\x00]|=2C|=3D)+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"[A-Za-z0-9+/]+={0,2}"
_CLIENT_FIRST = re.compile(rf"(n,(?:a=({_NAME}))?,)((?:m=[^,]+,)?n=({_NAME}),r=({_NONCE})((?:,[^,=]+=[^,]*)*))")
_CLIENT_FINAL = re.compile(rf"(c=({_BASE64}),r=({_NONCE})(?:,[^,=]+=[^,]*)*?),p=({_BASE64})")
_SERVER_FIRST = re.compile(rf"(?:m=[^,]+,)?r=({_NONCE}),s=({_BASE64}),i=([0-9]+)(?:,.*)?")
_SERVER_FINAL = re.compile(rf"(?:e=([^,]*)|v=({_BASE64}))(?:,.*)?")


#: user -> credential of this mechanism, or None.
Credentials = Callable[[str], "ScramCredential | None"]
#: id of a delegation token -> what to know of it, or None.
Tokens = Callable[[str], "TokenLogin | None"]
#: The extension of a client's first message that says that the user is a token's id and the password its HMAC (KIP-48).
TOKEN_EXTENSION = "tokenauth"


def _no_token(token_id: str) -> None:
    return None


class ScramServer:
    """The server's side of one exchange; see mechanisms.SaslServer."""

    def __init__(
        self, mechanism: ScramMechanism, credentials: Credentials, server_nonce: str, secret: bytes, tokens: Tokens = _no_token
    ) -> None:
        """`secret`: from it the salts of users who do not exist are derived, always the same for one user, so that they look real."""
        self.mechanism = mechanism.name
        self.complete = False
        self.user = ""
        self.expiry_ms: int | None = None
        self._mechanism = mechanism
        self._credentials = credentials
        self._tokens = tokens
        self._nonce = server_nonce
        self._secret = secret
        self._credential: ScramCredential | None = None
        self._gs2_header = self._messages = ""

    def evaluate(self, token: bytes) -> bytes:
        """The response to the client's next message. Raises SaslRefused."""
        try:
            text = token.decode("utf-8")
        except UnicodeDecodeError:
            raise SaslRefused("the SCRAM message is not UTF-8") from None
        if self.complete:
            raise SaslRefused("the SCRAM exchange is already over")
        return self._first(text) if not self._messages else self._final(text)

    def _first(self, text: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise SaslRefused("the SCRAM client's first message cannot be read (channel binding is not supported)")
        self._gs2_header, authorization_id, bare, name, client_nonce = match[1], match[2], match[3], match[4], match[5]
        named = _unescaped(name)
        extensions = dict(part.partition("=")[::2] for part in match[6].split(",") if part)
        if extensions.get(TOKEN_EXTENSION, "").lower() == "true":
            token = self._tokens(named)
            if token is None:
                raise SaslRefused(f"there is no delegation token {named!r}")
            self.user, self._credential, self.expiry_ms = token.owner, token.credential, token.expiry_ms
        else:
            self.user, self._credential = named, self._credentials(named)
        if authorization_id and _unescaped(authorization_id) != named:
            raise SaslRefused(
                "the client requested another authorization id",
                "Authentication failed: Client requested an authorization id that is different from username",
            )
        if self._credential is None:
            salt, iterations = self._mechanism.hmac(self._secret, self.user.encode())[:20], ITERATIONS_MIN
        else:
            salt, iterations = self._credential.salt, self._credential.iterations
        self._nonce = client_nonce + self._nonce
        answer = f"r={self._nonce},s={base64.b64encode(salt).decode()},i={iterations}"
        self._messages = f"{bare},{answer}"
        return answer.encode()

    def _final(self, text: str) -> bytes:
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise SaslRefused("the SCRAM client's final message cannot be read")
        without_proof, binding, nonce, proof = match[1], _decoded(match[2]), match[3], _decoded(match[4])
        if binding != self._gs2_header.encode():
            raise SaslRefused("the channel binding of the SCRAM client's final message is not that of its first")
        if not hmac.compare_digest(nonce, self._nonce):
            raise SaslRefused("the nonce of the SCRAM client's final message is not the server's")
        mechanism, credential = self._mechanism, self._credential
        message = f"{self._messages},{without_proof}".encode()
        stored_key = credential.stored_key if credential is not None else self._secret
        signature = mechanism.hmac(stored_key, message)
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        is_right = hmac.compare_digest(mechanism.hash(key), stored_key) and len(proof) == len(signature)
        if credential is None:
            raise SaslRefused(f"there is no {mechanism.name} credential of user {self.user!r}")
        if not is_right:
            raise SaslRefused(f"wrong password of user {self.user!r}")
        self.complete = True
        return b"v=" + base64.b64encode(mechanism.hmac(credential.server_key, message))


class ScramClient:
    """The client's side of one exchange; see mechanisms.SaslClient."""

    def __init__(self, mechanism: ScramMechanism, user: str, password: str, client_nonce: str, *, is_token: bool = False) -> None:
        """`is_token`: `user` is the id of a delegation token, and `password` its HMAC in base64."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = client_nonce
        self._bare = f"n={_escaped(user)},r={client_nonce}" + (f",{TOKEN_EXTENSION}=true" if is_token else "")
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        """The client's first message."""
        return f"n,,{self._bare}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        """The response to the server's message, None at the end. Raises SaslRefused if the server does not know the password."""
        text = challenge.decode("utf-8", "replace")
        if self._server_signature is not None:
            match = _SERVER_FINAL.fullmatch(text)
            if match is None or match[1] is not None:
                raise SaslRefused(f"the server refuses: {match[1] if match is not None else 'its final message cannot be read'}")
            if not hmac.compare_digest(_decoded(match[2]), self._server_signature):
                raise SaslRefused("the server does not know the password: its signature is wrong")
            return None
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            raise SaslRefused("the server's first SCRAM message cannot be read")
        nonce, salt, iterations = match[1], _decoded(match[2]), int(match[3])
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslRefused("the server's nonce does not begin with the client's")
        if not ITERATIONS_MIN <= iterations <= CLIENT_ITERATIONS_MAX:
            raise SaslRefused(f"the server asks for {iterations} iterations; {ITERATIONS_MIN} to {CLIENT_ITERATIONS_MAX} are allowed")
        mechanism = self._mechanism
        without_proof = f"c=biws,r={nonce}"
        message = f"{self._bare},{text},{without_proof}".encode()
        salted = mechanism.salted_password(self._password.encode(), salt, iterations)
        client_key = mechanism.hmac(salted, b"Client Key")
        signature = mechanism.hmac(mechanism.hash(client_key), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SaslRefused("a SCRAM message has a value that is not base64") from None


def _escaped(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
