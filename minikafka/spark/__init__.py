"""Data work that outgrows one machine: the consistency audit of Kafka-format logs and the bulk load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.spark.audit import AuditOptions, AuditResult, run_audit
    from minikafka.spark.cluster_files import ClusterOptions
    from minikafka.spark.cluster_segments import FilesFailed
    from minikafka.spark.datasource import MinikafkaDataSource
    from minikafka.spark.directories import SourceError
    from minikafka.spark.engine_local import LocalEngine
    from minikafka.spark.engine_spark import SparkEngine
    from minikafka.spark.load import LoadFailed, LoadOptions, LoadReport, run_load
    from minikafka.spark.load_frame import load_dataframe
    from minikafka.spark.produce_errors import ProduceFailed
    from minikafka.spark.report import build as build_report
    from minikafka.spark.security import Security
    from minikafka.spark.spark_master import SparkUnavailable
    from minikafka.spark.tables import TableError
    from minikafka.spark.to_files import FilesReport, dataframe_to_files, load_to_files
    from minikafka.spark.wire_ledger import WireLedgerError

#: name -> (module, its name there). Imported on first use: the audit needs no broker code, and a load no audit code.
_PLACES = {
    "AuditOptions": ("audit", "AuditOptions"),
    "AuditResult": ("audit", "AuditResult"),
    "ClusterOptions": ("cluster_files", "ClusterOptions"),
    "FilesFailed": ("cluster_segments", "FilesFailed"),
    "FilesReport": ("to_files", "FilesReport"),
    "LoadFailed": ("load", "LoadFailed"),
    "LoadOptions": ("load", "LoadOptions"),
    "LoadReport": ("load", "LoadReport"),
    "LocalEngine": ("engine_local", "LocalEngine"),
    "MinikafkaDataSource": ("datasource", "MinikafkaDataSource"),
    "ProduceFailed": ("produce_errors", "ProduceFailed"),
    "Security": ("security", "Security"),
    "SourceError": ("directories", "SourceError"),
    "SparkEngine": ("engine_spark", "SparkEngine"),
    "SparkUnavailable": ("spark_master", "SparkUnavailable"),
    "TableError": ("tables", "TableError"),
    "WireLedgerError": ("wire_ledger", "WireLedgerError"),
    "build_report": ("report", "build"),
    "dataframe_to_files": ("to_files", "dataframe_to_files"),
    "load_dataframe": ("load_frame", "load_dataframe"),
    "load_to_files": ("to_files", "load_to_files"),
    "run_audit": ("audit", "run_audit"),
    "run_load": ("load", "run_load"),
}

__all__ = [
    "AuditOptions",
    "AuditResult",
    "ClusterOptions",
    "FilesFailed",
    "FilesReport",
    "LoadFailed",
    "LoadOptions",
    "LoadReport",
    "LocalEngine",
    "MinikafkaDataSource",
    "ProduceFailed",
    "Security",
    "SourceError",
    "SparkEngine",
    "SparkUnavailable",
    "TableError",
    "WireLedgerError",
    "build_report",
    "dataframe_to_files",
    "load_dataframe",
    "load_to_files",
    "run_audit",
    "run_load",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{place[0]}"), place[1])
