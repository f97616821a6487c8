"""What ApiVersions says: the APIs that clients may use, and the features of the broker and of the cluster.

Rule: ApiVersionsResponse.Builder and ApiVersionManager of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from minikafka.wire.messages.api_versions import ApiVersionsResponse

#: The end of a flexible ApiVersions response without features.
_THROTTLE_AND_NO_TAGS = b"\0\0\0\0\0"
_NO_ERROR_AND_NO_APIS = b"\0\0\1"
#: ApiVersions names Produce 0, though it is refused, because librdkafka compresses only then (KAFKA-18659).
NAMED_VERSION_MIN = {0: 0}
#: The first version of ApiVersions that is flexible and has features.
FEATURES_VERSION_MIN = 3

#: Returns the supported features (name, min, max), the finalized features (name, level), and the epoch of the finalized features.
Features = Callable[[], "tuple[list[tuple[str, int, int]], list[tuple[str, int]], int]"]


class ServedApi(Protocol):
    """An API with the versions that are served."""

    api_key: int
    min_version: int
    max_version: int


class OfferedApis:
    """Encodes ApiVersions responses. The list of APIs is the same for every client, so it is encoded once for each version."""

    def __init__(self, features: Features | None, entries: Callable[[], Iterable[ServedApi]]) -> None:
        """`entries` returns the served APIs, by API key."""
        self._features = features
        self._entries = entries
        self._withheld: frozenset[int] = frozenset()
        #: Version of ApiVersions -> its encoded response up to the features.
        self._encoded: dict[int, bytes] = {}

    def offer(self, api_keys: Iterable[int], is_offered: bool) -> None:
        """Name these APIs from now on, or leave them out."""
        self._withheld = self._withheld.difference(api_keys) if is_offered else self._withheld.union(api_keys)
        self.changed()

    def changed(self) -> None:
        """The served APIs have changed."""
        self._encoded.clear()

    def encode(self, version: int) -> bytes:
        """A whole response without an error."""
        body = self._encoded.get(version)
        if body is None:
            body = self._encoded[version] = self._encode_apis(version)
        return body + self._encode_features(version) if version >= FEATURES_VERSION_MIN else body

    def _encode_apis(self, version: int) -> bytes:
        """The response up to the list of APIs; the whole response for versions without features."""
        response = ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=entry.api_key,
                    min_version=NAMED_VERSION_MIN.get(entry.api_key, entry.min_version),
                    max_version=entry.max_version,
                )
                for entry in self._entries()
                if entry.api_key not in self._withheld
            ]
        )
        encoded = response.encode(version)
        return encoded[: -len(_THROTTLE_AND_NO_TAGS)] if version >= FEATURES_VERSION_MIN else encoded

    def _encode_features(self, version: int) -> bytes:
        """The response after the list of APIs."""
        if self._features is None:
            return _THROTTLE_AND_NO_TAGS
        response = ApiVersionsResponse()
        supported, finalized, epoch = self._features()
        response.supported_features = [
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, low, high in supported
            if version >= 4 or low > 0
        ]
        response.finalized_features_epoch = epoch
        response.finalized_features = [
            ApiVersionsResponse.FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in finalized
        ]
        return response.encode(version)[len(_NO_ERROR_AND_NO_APIS) :]
