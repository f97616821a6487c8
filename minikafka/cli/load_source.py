"""Sources of `minikafka load`. pyarrow reads tables on this machine's file systems; Spark reads everything else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.spark.load import LoadOptions

#: Formats that are read without Spark.
OWN_FORMATS = ("", "parquet", "csv", "jsonl")


@dataclass(frozen=True, slots=True)
class Source:
    """A table to load. `table` is a path or pattern. Spark reads it if it has a scheme (hdfs://, s3a://, file://), another format than
    `FORMATS`, or reader options."""

    table: str
    options: LoadOptions
    read_options: dict[str, str]

    @property
    def is_for_spark(self) -> bool:
        """Whether only Spark can read the table. Columns may then be SQL expressions."""
        return self.options.format not in OWN_FORMATS or "://" in self.table or bool(self.read_options)

    def frame(self, driver: Any) -> Any:
        """The table as a DataFrame. Raises TableError with a one-line message."""
        from minikafka.spark.engine_spark import what_spark_says
        from minikafka.spark.tables import TableError, delimiter_of, format_of

        if driver.name != "spark":
            what = f"--format {self.options.format}" if self.options.format not in OWN_FORMATS else self.table
            raise TableError(f"{what} needs Spark: give --master, for example --master 'local[*]'")
        if self.table.lower().endswith(".zip"):
            raise TableError(f"{self.table}: Spark cannot read zip archives; unpack it first")
        chosen = self.options.format or format_of(self.table)
        defaults = {"header": "true", "sep": self.options.delimiter or delimiter_of(self.table)} if chosen == "csv" else {}
        try:
            if chosen == "table":
                return driver.session.table(self.table)
            reader = driver.session.read.format("json" if chosen == "jsonl" else chosen)
            return reader.options(**{**defaults, **self.read_options}).load(self.table)
        except Exception as error:
            raise TableError(f"{self.table}: Spark cannot read it as {chosen}: {what_spark_says(error)}") from error
