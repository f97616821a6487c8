"""`bootstrap.checkpoint`, which `storage format` writes beside the partitions: a node reads it at each start (BootstrapDirectory.read)."""

from __future__ import annotations

import os

import numpy as np

from minikafka.spark.logformat import CONTROL_BIT, FormatError, walk
from minikafka.spark.metadata_fields import UnknownRecordError
from minikafka.spark.metadata_log import SNAPSHOT_BYTES_MAX, ClusterImage, apply_record
from minikafka.spark.records import decode_records
from minikafka.spark.regular_files import open_regular

BOOTSTRAP = "bootstrap.checkpoint"


def why_no_node_starts(path: str) -> str:
    """Why no node starts with the file in this log directory; "" if nothing keeps one, or there is no such file."""
    try:
        with open_regular(os.path.join(path, BOOTSTRAP)) as file:
            batches, _, _ = walk(memoryview(file.read(SNAPSHOT_BYTES_MAX)))
        if not len(batches):
            return "it is empty"
        records, wrong = decode_records(batches, np.flatnonzero((batches.header["attributes"] & CONTROL_BIT) == 0))
        image = ClusterImage()
        for index in range(len(records)):
            apply_record(image, records.value(index) or b"")
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    except UnknownRecordError:
        return ""
    except FormatError as error:
        return str(error)
    if wrong:
        return next(iter(wrong.values()))
    return "" if ("feature", "metadata.version") in image.state else "it has no metadata.version"
