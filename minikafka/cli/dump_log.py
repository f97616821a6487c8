"""`minikafka dump-log`: print the files of a log directory, with the flags and fields of kafka-dump-log.sh."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from minikafka.cli.common import emit_one

if TYPE_CHECKING:
    from minikafka.cli.dump_files import DumpOptions, Problems


#: Current and former class name of the decoder that Kafka's tool uses by default for keys and values.
DECODERS = ("org.apache.kafka.tools.api.StringDecoder", "kafka.serializer.StringDecoder", "kafka.serializer.DefaultDecoder")


def _only_strings(context: click.Context, parameter: click.Parameter, value: str) -> None:
    if value not in DECODERS:
        raise click.BadParameter(f"{value}: cannot load Java classes; use {DECODERS[0]}, or -o json for the bytes")


@click.command("dump-log")
@click.option("--files", required=True, help="Comma-separated .log, .index, .timeindex, .txnindex, .snapshot and checkpoint files.")
@click.option("--print-data-log", is_flag=True, help="Also print keys and values (implies --deep-iteration).")
@click.option("--deep-iteration", is_flag=True, help="Print each record as well as each batch.")
@click.option("--index-sanity-check", is_flag=True, help="Only check that indexes are sorted and complete.")
@click.option("--verify-index-only", is_flag=True, help="Check indexes against their segment without printing them.")
@click.option("--cluster-metadata-decoder", "decoder", flag_value="metadata", help="Decode records of __cluster_metadata.")
@click.option("--offsets-decoder", "decoder", flag_value="offsets", help="Decode records of __consumer_offsets.")
@click.option("--transaction-log-decoder", "decoder", flag_value="transaction", help="Decode records of __transaction_state.")
@click.option("--share-group-state-decoder", "decoder", flag_value="share", help="Decode records of __share_group_state.")
@click.option(
    "--key-decoder-class",
    is_flag=False,
    flag_value=DECODERS[0],
    default=DECODERS[0],
    hidden=True,
    callback=_only_strings,
    expose_value=False,
    help="Accepted, no effect: keys are shown as strings.",
)
@click.option(
    "--value-decoder-class",
    is_flag=False,
    flag_value=DECODERS[0],
    default=DECODERS[0],
    hidden=True,
    callback=_only_strings,
    expose_value=False,
    help="Accepted, no effect: values are shown as strings.",
)
@click.option("--skip-record-metadata", is_flag=True, help="Print only the keys and values of records.")
@click.option("--max-bytes", type=click.IntRange(1), default=None, help="Read at most this many bytes of each .log file.")
@click.option("-o", "--output", type=click.Choice(["text", "json", "jsonl", "yaml"]), default="text", show_default=True)
def dump_log(files: str, print_data_log: bool, deep_iteration: bool, index_sanity_check: bool, verify_index_only: bool, decoder: str | None,
             skip_record_metadata: bool, max_bytes: int | None, output: str) -> None:  # fmt: skip
    """Print log segments, indexes, snapshots and checkpoints. Exit status 1 when a file is damaged or an index is wrong."""
    from minikafka.cli.dump_files import DumpOptions, Problems
    from minikafka.spark.logformat import FormatError

    data = print_data_log or bool(decoder)
    options = DumpOptions(
        deep=deep_iteration or data or skip_record_metadata,
        print_data=data or skip_record_metadata,
        record_metadata=not skip_record_metadata,
        decoder=decoder or "",
        bytes_max=max_bytes or 1 << 62,
        index_sanity_check=index_sanity_check,
        verify_index_only=verify_index_only,
    )
    problems = Problems()
    try:
        for path in filter(None, files.split(",")):
            if output == "text":
                _print_text(path, options, problems)
            else:
                _print_json(path, options, problems, output)
    except OSError as error:
        click.echo(f"minikafka dump-log: {error.filename}: {error.strerror}", err=True)
        sys.exit(2)
    except FormatError as error:
        click.echo(f"minikafka dump-log: {error}", err=True)
        sys.exit(2)
    for line in problems.lines:
        click.echo(line, err=True)
    sys.exit(1 if problems.lines else 0)


def _print_text(path: str, options: DumpOptions, problems: Problems) -> None:
    from minikafka.cli.dump_files import dump_file

    for line in dump_file(path, options, problems):
        click.echo(line)


def _print_json(path: str, options: DumpOptions, problems: Problems, output: str) -> None:
    """Print a JSON object for each batch of a segment; for any other file, one object with its lines."""
    from minikafka.cli.dump_files import dump_file, json_item, read_log

    if not path.endswith((".log", ".checkpoint")):
        lines = list(dump_file(path, options, problems))[1:]
        rows = [
            dict(zip(parts[::2], map(_number, parts[1::2]), strict=False)) for line in lines if (parts := line.replace(":", "").split())
        ]
        emit_one({"file": path, "entries": rows}, output)
        return
    batches = []
    for item in read_log(path, options):
        if "error" in item:
            problems.lines.append(f"{path}: {item['error']}")
            continue
        if not item["isvalid"]:
            problems.lines.append(f"{path}: the batch at position {item['position']} has a wrong CRC")
        if output == "jsonl":
            click.echo(json.dumps({"file": path, **json_item(item, options)}))
        else:
            batches.append(json_item(item, options))
    if output in ("json", "yaml"):
        emit_one({"file": path, "batches": batches}, output)


def _number(text: str) -> int | str | None:
    if text == "OptionalLong.empty":
        return None
    text = text.removeprefix("OptionalLong[").removesuffix("]")
    return int(text) if text.lstrip("-").isdigit() else text
