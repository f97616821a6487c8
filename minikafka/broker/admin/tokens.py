"""The delegation tokens in a node's metadata (KIP-48), with what only the holder of delegation.token.secret.key knows of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from minikafka.broker.front.turns import in_steps
from minikafka.core.delegation_token import USER_TYPE, TokenSecret
from minikafka.core.scram import ITERATIONS_MIN, ScramCredential, ScramMechanism, TokenLogin

if TYPE_CHECKING:
    from minikafka.core.metadata.image import MetadataImage

#: Credentials kept; making one takes milliseconds.
CREDENTIALS_MAX = 10_000
SALT_BYTES = 20


class DelegationTokens:
    """Looks tokens up. Without a secret there are none."""

    def __init__(self, secret_key: str | None, image: Callable[[], MetadataImage]) -> None:
        """`image` returns the newest image."""
        self._image = image
        self._secret = TokenSecret(secret_key) if secret_key else None
        #: HMAC -> token id, of all tokens that `id_of` has seen.
        self._ids: dict[bytes, str] = {}
        self._indexed: set[str] = set()
        self._credentials: OrderedDict[tuple[str, str], ScramCredential] = OrderedDict()

    @property
    def is_enabled(self) -> bool:
        """Whether there is a secret."""
        return self._secret is not None

    def hmac(self, token_id: str) -> bytes:
        """The token's HMAC, which is the token's password. Only with a secret."""
        assert self._secret is not None
        return self._secret.hmac(token_id)

    async def id_of(self, hmac: bytes) -> str | None:
        """The id of the token with this HMAC, None if there is none. Works in steps: there may be very many tokens."""
        if self._secret is None:
            return None
        tokens = self._image().delegation_tokens
        if len(self._indexed) > 2 * len(tokens):
            self._ids.clear()
            self._indexed.clear()
        found = self._ids.get(hmac)
        if found is None:
            async for token_id in in_steps([token_id for token_id in tokens if token_id not in self._indexed]):
                self._ids[self._secret.hmac(token_id)] = token_id
                self._indexed.add(token_id)
            found = self._ids.get(hmac)
        return found

    def login(self, token_id: str, mechanism: ScramMechanism) -> TokenLogin | None:
        """What a client proves that logs in with the token, None if there is no such token."""
        token = self._image().delegation_tokens.get(token_id)
        owner_type, _, name = ("", "", "") if token is None else token.owner.partition(":")
        # Of another type the owner is nobody's user: a name alone must not make it one.
        if token is None or self._secret is None or owner_type != USER_TYPE:
            return None
        return TokenLogin(name, self._credential(token_id, mechanism), token.expiration_timestamp)

    def _credential(self, token_id: str, mechanism: ScramMechanism) -> ScramCredential:
        assert self._secret is not None
        key = (token_id, mechanism.name)
        credential = self._credentials.pop(key, None)
        if credential is None:
            salt = self._secret.hmac(f"{mechanism.name} {token_id}")[:SALT_BYTES]
            credential = ScramCredential.of_password(mechanism, self._secret.password(token_id), salt, ITERATIONS_MIN)
        self._credentials[key] = credential
        if len(self._credentials) > CREDENTIALS_MAX:
            self._credentials.popitem(last=False)
        return credential
