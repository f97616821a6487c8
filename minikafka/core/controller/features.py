"""Feature levels (KIP-584, KIP-778): UpdateFeatures, including kraft.version, and the bootstrap records of a new cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from minikafka.core.controller.config import DEFAULT_FEATURES, ControllerConfig
from minikafka.core.controller.state import CLUSTER_DEFAULT, MIN_INSYNC_REPLICAS, ControllerState, Result
from minikafka.core.metadata.image import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION, RESOURCE_BROKER
from minikafka.core.metadata.versions import loses_metadata
from minikafka.wire.errors import ApiError, ErrorCode
from minikafka.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from minikafka.wire.records.metadata_records import BeginTransactionRecord, ConfigRecord, EndTransactionRecord, FeatureLevelRecord

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
KRAFT_VERSION = "kraft.version"


def bootstrap_records(features: Mapping[str, int], min_insync_replicas: int, users: Sequence[Any] = ()) -> list[Any]:
    """The first metadata transaction of a new cluster, as Kafka 4.3 writes it: feature levels, users' credentials, and, for ELR, the
    cluster's min.insync.replicas."""
    records: list[Any] = [BeginTransactionRecord(name="Bootstrap records")]
    levels = dict(features) or dict(DEFAULT_FEATURES)
    records.extend(FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items() if level)
    records.extend(users)
    if levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1:
        records.append(
            ConfigRecord(
                resource_type=RESOURCE_BROKER,
                resource_name=CLUSTER_DEFAULT,
                name=MIN_INSYNC_REPLICAS,
                value=str(min_insync_replicas),
            )
        )
    records.append(EndTransactionRecord())
    return records


class KraftVersion(Protocol):
    """kraft.version, the quorum's own feature. Control records of the log hold it, not the image."""

    @property
    def kraft_version(self) -> int:
        """The current level: 0 means static voters, 1 dynamic ones."""

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> str | None:
        """Append the upgrade. Returns why that is impossible, or None."""


class FeatureControl:
    """Changes feature levels. If `kraft` is None, kraft.version cannot be changed."""

    def __init__(self, config: ControllerConfig, state: ControllerState, kraft: KraftVersion | None = None) -> None:
        self._config = config
        self._state = state
        self._kraft = kraft

    def update(self, request: UpdateFeaturesRequest, version: int) -> Result:
        """UpdateFeatures: all updates succeed, or all fail with the first error."""
        records: list[Any] = []
        names: dict[str, None] = {}
        for update in request.feature_updates:
            if update.feature in names:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"Feature {update.feature} appears more than once.")
            names[update.feature] = None
            kind = update.upgrade_type if version >= 1 else (SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE)
            fault = self._fault(update.feature, update.max_version_level, kind)
            if fault is not None:
                raise ApiError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    f"The update failed for all features since the following feature had an error: {fault}",
                )
            if update.feature != KRAFT_VERSION and self._state.image.features.get(update.feature, 0) != update.max_version_level:
                records.append(FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level))
        if any(record.name == ELIGIBLE_LEADER_REPLICAS_VERSION and record.feature_level > 0 for record in records):
            records = [*self._min_insync_replicas(), *records]
        for update in request.feature_updates:
            if update.feature == KRAFT_VERSION and self._kraft is not None and not request.validate_only:
                self._kraft.upgrade_kraft_version(update.max_version_level, validate_only=False)
        response = UpdateFeaturesResponse(error_message=None)
        if version <= 1:
            response.results = [UpdateFeaturesResponse.UpdatableFeatureResult(feature=name, error_message=None) for name in names]
        return Result(response, [] if request.validate_only else records)

    def _min_insync_replicas(self) -> list[ConfigRecord]:
        """Records for enabling eligible leader replicas: set the cluster's min.insync.replicas, and remove those of single brokers."""
        records = []
        for (kind, name), values in self._state.image.configs.items():
            if kind == RESOURCE_BROKER and name != CLUSTER_DEFAULT and MIN_INSYNC_REPLICAS in values:
                records.append(ConfigRecord(resource_type=kind, resource_name=name, name=MIN_INSYNC_REPLICAS, value=None))
        if MIN_INSYNC_REPLICAS not in self._state.image.config(RESOURCE_BROKER, CLUSTER_DEFAULT):
            value = str(self._config.min_insync_replicas)
            cluster = ConfigRecord(resource_type=RESOURCE_BROKER, resource_name=CLUSTER_DEFAULT, name=MIN_INSYNC_REPLICAS, value=value)
            records.insert(0, cluster)
        return records

    def _fault(self, name: str, level: int, kind: int) -> str | None:
        prefix = f"Invalid update version {level} for feature {name}."
        supported = self._config.supported_features.get(name)
        if supported is None or (name == KRAFT_VERSION and self._kraft is None):
            return f"{prefix} Local controller {self._config.node_id} does not support this feature."
        low, high = supported
        if not low <= level <= high and (level != 0 or name == METADATA_VERSION):
            return f"{prefix} Local controller {self._config.node_id} only supports versions {low}-{high}"
        if level < 0:
            return f"{prefix} A feature version cannot be less than 0."
        for broker in self._state.image.brokers.values():
            own_low, own_high = broker.features.get(name, (0, 0))
            if level != 0 and not own_low <= level <= own_high:
                return f"{prefix} Broker {broker.broker_id} only supports versions {own_low}-{own_high}"
        for controller in self._state.image.controllers.values():
            own_low, own_high = controller.features.get(name, (0, 0))
            if level != 0 and not own_low <= level <= own_high:
                return f"{prefix} Controller {controller.controller_id} only supports versions {own_low}-{own_high}"
        current = self._state.image.features.get(name, 0)
        if name == KRAFT_VERSION and self._kraft is not None:
            current = self._kraft.kraft_version
        if kind not in {UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE}:
            return f"{prefix} The controller does not support the given upgrade type."
        if level < current:
            if kind == UPGRADE:
                return (
                    f"{prefix} Can't downgrade the version of this feature without setting the upgrade type to either safe or "
                    "unsafe downgrade."
                )
            if name == METADATA_VERSION and loses_metadata(current, level):
                why = (
                    "Refusing to perform the requested downgrade because it might delete metadata information."
                    if kind == SAFE_DOWNGRADE
                    else "Unsafe metadata downgrade is not supported in this version."
                )
                return f"Unsupported metadata.version downgrade from {current} to {level}. {why}"
        if level > current and kind != UPGRADE:
            return f"{prefix} Can't downgrade to a newer version."
        if name == KRAFT_VERSION and self._kraft is not None:
            fault = self._kraft.upgrade_kraft_version(level, validate_only=True)
            return None if fault is None else f"{prefix} {fault}"
        return None
