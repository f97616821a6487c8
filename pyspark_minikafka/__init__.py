"""Found by Spark on its own: it looks for `DefaultSource` in every top-level module whose name begins with `pyspark_`, at the first use
of a data source. So `spark.read.format("minikafka")` works without a registration.

An error here would break every data source of every user, so whatever is missing makes this module empty.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(Exception):
    from minikafka.spark.datasource import MinikafkaDataSource as DefaultSource  # noqa: F401
