"""The computations of SCRAM: mechanisms, and stored credentials (RFC 5802, RFC 7677; limits of KIP-84)."""

from __future__ import annotations

import hashlib
import hmac

from minikafka.late_dataclass import dataclass

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """`number` is the mechanism in records and in the APIs."""

    name: str
    digest: str
    number: int

    def hash(self, data: bytes) -> bytes:
        """H of the RFC."""
        return hashlib.new(self.digest, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """HMAC of the RFC."""
        return hmac.digest(key, data, self.digest)

    def salted_password(self, password: bytes, salt: bytes, iterations: int) -> bytes:
        """Hi of the RFC: milliseconds of work for some thousand iterations."""
        return hashlib.pbkdf2_hmac(self.digest, password, salt, iterations)


SHA_256 = ScramMechanism("SCRAM-SHA-256", "sha256", 1)
SHA_512 = ScramMechanism("SCRAM-SHA-512", "sha512", 2)
SCRAM_MECHANISMS = {mechanism.name: mechanism for mechanism in (SHA_256, SHA_512)}


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """What a server needs to know of a delegation token that a client logs in with: whose it is, and until when, in ms since 1970."""

    owner: str
    credential: ScramCredential
    expiry_ms: int


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server stores instead of a password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"

    @classmethod
    def of_salted_password(cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """From the salted password that an admin client sends."""
        stored_key = mechanism.hash(mechanism.hmac(salted, b"Client Key"))
        return cls(salt, stored_key, mechanism.hmac(salted, b"Server Key"), iterations)

    @classmethod
    def of_password(cls, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS_MIN) -> ScramCredential:
        """From a plain password."""
        return cls.of_salted_password(mechanism, mechanism.salted_password(password.encode(), salt, iterations), salt, iterations)
