"""Cordoned log directories: they get no new replicas, but their replicas stay in service (KIP-1066)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from minikafka.core.metadata.image import METADATA_VERSION
from minikafka.core.metadata.versions import CORDONS, NEWEST

if TYPE_CHECKING:
    from minikafka.broker.config.dynamic import Settings
    from minikafka.broker.quorum.metadata_log import MetadataHost
    from minikafka.storage.log_dir import LogDirectory

logger = logging.getLogger("minikafka.config")
ALL = "*"


class Cordons:
    """`directory in cordons`: whether cordoned.log.dirs names the directory now."""

    def __init__(self, settings: Settings, directories: list[LogDirectory], metadata: MetadataHost) -> None:
        self._metadata = metadata
        self._settings = settings
        self._directories = directories
        settings.watch(self._check)

    def __contains__(self, directory: object) -> bool:
        names = self._settings.cordoned_log_dirs
        if not names or self._metadata.image.features.get(METADATA_VERSION, NEWEST) < CORDONS:
            return False
        return ALL in names or getattr(directory, "path", None) in [name.rstrip("/") for name in names]

    def ids(self) -> list[bytes]:
        """The ids of the cordoned directories that are online."""
        return [directory.directory_id for directory in self._directories if directory in self and not directory.is_offline]

    def _check(self) -> None:
        paths = {directory.path for directory in self._directories}
        for name in self._settings.cordoned_log_dirs:
            if name != ALL and name.rstrip("/") not in paths:
                logger.warning("cordoned.log.dirs names %s, which is not a log directory of this broker", name)
