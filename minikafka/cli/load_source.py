"""What `minikafka load` reads: a table on this machine's file systems with pyarrow, everything else with Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from minikafka.spark.load import LoadOptions

#: Formats that are read without Spark.
OWN_FORMATS = ("", "parquet", "csv", "jsonl")


@dataclass(frozen=True, slots=True)
class Source:
    """`table`: a path or pattern; with a scheme (hdfs://, s3a://, file://), another format or an option of a reader, Spark reads it."""

    table: str
    options: LoadOptions
    read_options: dict[str, str]

    @property
    def is_for_spark(self) -> bool:
        """Whether only Spark can read it; columns may be SQL expressions then."""
        return self.options.format not in OWN_FORMATS or "://" in self.table or bool(self.read_options)

    def frame(self, driver: Any) -> Any:
        """The table as a DataFrame. Raises TableError, in one line."""
        from minikafka.spark.engine_spark import what_spark_says
        from minikafka.spark.tables import TableError, delimiter_of, format_of

        if driver.name != "spark":
            what = f"--format {self.options.format}" if self.options.format not in OWN_FORMATS else self.table
            raise TableError(f"{what} is read by Spark: give --master, for example --master 'local[*]'")
        if self.table.lower().endswith(".zip"):
            raise TableError(f"{self.table}: Spark reads no zip archives; unpack it first")
        chosen = self.options.format or format_of(self.table)
        defaults = {"header": "true", "sep": self.options.delimiter or delimiter_of(self.table)} if chosen == "csv" else {}
        try:
            if chosen == "table":
                return driver.session.table(self.table)
            reader = driver.session.read.format("json" if chosen == "jsonl" else chosen)
            return reader.options(**{**defaults, **self.read_options}).load(self.table)
        except Exception as error:
            raise TableError(f"{self.table}: Spark cannot read it as {chosen}: {what_spark_says(error)}") from error
