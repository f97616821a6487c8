"""Values that controllers write in records of features, settings, rules, credentials and quotas. All others are an error, or of a later
release, so that nobody knows whether they are sound."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.spark.logformat import FormatError
from minikafka.spark.metadata_fields import Fields, UnknownRecordError
from minikafka.spark.metadata_settings import check_value

#: {feature: its lowest level in a record and its highest one in Apache Kafka 4.4}. Level 0 removes a feature, but not metadata.version.
FEATURES: dict[str, tuple[int, int]] = {
    "metadata.version": (1, 33), "kraft.version": (0, 1), "group.version": (0, 1), "transaction.version": (0, 2), "share.version": (0, 2),
    "streams.version": (0, 1), "eligible.leader.replicas.version": (0, 1),
}  # fmt: skip
#: Topics, brokers, clients' metrics and groups have settings (ConfigResource.Type); loggers have none in the log.
RESOURCES, NO_RESOURCES = frozenset({2, 4, 16, 32}), frozenset({0, 8})
CLEANUP_POLICIES = frozenset({"compact", "delete"})
#: (lowest, highest) codes: types of resources, patterns, operations, permissions. Below are "unknown", "any" and "match".
RESOURCE_TYPES, PATTERNS, OPERATIONS, PERMISSIONS = (2, 7), (3, 4), (2, 15), (2, 3)
MECHANISMS, ITERATIONS = (1, 2), (4096, 16384)
#: Bytes of the keys of SCRAM-SHA-256 and SCRAM-SHA-512.
KEY_BYTES = {1: 32, 2: 64}
#: The cluster as a resource of rules, and its only name.
CLUSTER, CLUSTER_NAME = 4, "kafka-cluster"
ENTITIES = {("client-id",), ("user",), ("client-id", "user"), ("ip",)}
#: The quota of addresses, and those that are whole numbers (QuotaConfig), up to a rounding error.
CONNECTIONS, TOLERANCE = "connection_creation_rate", 1e-6
WHOLE = frozenset({"producer_byte_rate", "consumer_byte_rate", CONNECTIONS})
QUOTAS = frozenset({
    "producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate",
})  # fmt: skip


def check_feature(name: str, level: int) -> None:
    """FeatureLevelRecord. A controller ends at a level that it does not support (FeatureControlManager.replay)."""
    lowest, highest = FEATURES.get(name, (0, 0))
    if level < lowest:
        raise FormatError(f"the feature {name} has level {level}")
    if level > highest:
        raise UnknownRecordError(f"the feature {name} has the unknown level {level}")


def check_setting(resource: int, name: str, option: str, value: str | None) -> None:
    """ConfigRecord; null removes what nobody can have, too."""
    if resource not in RESOURCES:
        text = f"the setting {option} is of the unknown type of resource {resource}"
        raise FormatError(text) if resource < 0 or resource in NO_RESOURCES else UnknownRecordError(text)
    policies = {part.strip() for part in (value or "").split(",")} if option in {"cleanup.policy", "log.cleanup.policy"} else set()
    if unknown := policies - CLEANUP_POLICIES - {""}:
        raise FormatError(f"{option} is {value!r}, with the unknown policy {min(unknown)!r}")
    if value is not None:
        check_value(resource, name, option, value)


def check_rule(fields: Fields) -> None:
    """AccessControlEntryRecord behind its id."""
    resource, name = fields.integer(1), fields.string()
    pattern, principal = fields.integer(1), fields.string()
    fields.string()
    operation, permission = fields.integer(1), fields.integer(1)
    fields.tagged()
    for what, code, known in (
        ("resource", resource, RESOURCE_TYPES), ("pattern", pattern, PATTERNS), ("operation", operation, OPERATIONS),
        ("permission", permission, PERMISSIONS),
    ):  # fmt: skip
        _check_code(f"a rule has {what}", code, known)
    if ":" not in principal:
        raise FormatError("a rule's principal has no type")
    if not name or (resource == CLUSTER and name != CLUSTER_NAME):
        raise FormatError(f"a rule is for the resource {name!r} of type {resource}")


def check_token(people: Sequence[str], issued_ms: int, max_ms: int, expires_ms: int, token_id: str) -> None:
    """DelegationTokenRecord. `people`: owner, requester, renewers, each with a type (KafkaPrincipal)."""
    if not token_id or not 0 <= issued_ms <= max_ms or expires_ms > max_ms:
        raise FormatError(f"the token {token_id!r} of {issued_ms} expires at {expires_ms}, at the latest at {max_ms}")
    if wrong := [one for one in people if ":" not in one]:
        raise FormatError(f"the token {token_id!r} is for {wrong[0]!r}, which has no type")


def check_credential(user: str, mechanism: int, fields: Fields) -> None:
    """UserScramCredentialRecord behind its mechanism, whose hash makes the keys."""
    _check_code("a credential has mechanism", mechanism, MECHANISMS)
    _, *keys = (fields.raw(fields.count()) for _ in ("salt", "stored key", "server key"))
    iterations = fields.integer(4)
    fields.tagged()
    if not user or any(len(key) != KEY_BYTES[mechanism] for key in keys):
        raise FormatError(f"a credential of {user!r} for mechanism {mechanism} has keys of {len(keys[0])} and {len(keys[1])} bytes")
    if not ITERATIONS[0] <= iterations <= ITERATIONS[1]:
        raise FormatError(f"a credential has {iterations} iterations")


def check_quota(entity: Sequence[tuple[str, str | None]], key: str, value: float) -> None:
    """ClientQuotaRecord: the types and names of its entity (null: the default one), what is limited, and to what."""
    kinds = tuple(sorted(kind for kind, _ in entity))
    if kinds not in ENTITIES or any(name == "" for _, name in entity):
        raise FormatError(f"a quota is for {' and '.join(kind for kind, _ in entity) or 'nobody'}")
    if key not in QUOTAS:
        raise UnknownRecordError(f"a quota limits the unknown {key}")
    if (key == CONNECTIONS) != (kinds == ("ip",)):
        raise FormatError(f"a quota limits {key} of {' and '.join(kinds)}")
    if not value > 0 or (key in WHOLE and TOLERANCE < value % 1 < 1 - TOLERANCE):
        raise FormatError(f"a quota limits {key} to {value}")


def _check_code(text: str, code: int, known: tuple[int, int]) -> None:
    if code < known[0]:
        raise FormatError(f"{text} {code}")
    if code > known[1]:
        raise UnknownRecordError(f"{text} {code}, which is unknown")
