"""`minikafka verifiable-share-consumer`, with the JSON lines that Kafka's system tests read."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from minikafka.cli.common import bootstrap_option, command_config_option, run, traceback_option
from minikafka.cli.verifiable import POLL_MS, note_each, rows_by_partition, say, until_signalled

if TYPE_CHECKING:
    from minikafka.client.share_consumer import Acknowledged, ShareConsumer, SharedRecord

MODES = ("auto", "sync", "async")
TYPES = ("accept", "release", "reject", "renew")
GROUP_RESOURCE = 32


def _pattern(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    found = tuple(part.strip().lower() for part in text.split(",")) if text else ()
    unknown = [name for name in found if name not in TYPES]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(TYPES)}")
    if set(found) == {"renew"}:
        raise click.BadParameter("a pattern of only 'renew' would deliver every record again and again")
    return found


@click.command("verifiable-share-consumer")
@bootstrap_option
@command_config_option
@click.option("--topic", required=True, help="Topic to read.")
@click.option("--group-id", required=True, help="Share group to join.")
@click.option("--max-messages", type=int, default=-1, show_default=True, help="Records to acknowledge; -1: until stopped.")
@click.option(
    "--acknowledgement-mode",
    "mode",
    type=click.Choice(MODES, case_sensitive=False),
    default="auto",
    show_default=True,
    help="sync: acknowledge records before the next ones are fetched. auto, async: with the next fetch.",
)
@click.option(
    "--ack-pattern",
    "pattern",
    default="",
    callback=_pattern,
    metavar="TYPE,..",
    help="accept, release, reject or renew: by offset modulo the number of types; a renewed record gets the next one.  [default: accept]",
)
@click.option(
    "--offset-reset-strategy",
    type=click.Choice(["", "earliest", "latest"], case_sensitive=False),
    default="",
    help="Set where a new group starts (share.auto.offset.reset).",
)
@click.option("--verbose", is_flag=True, help="Report every record.")
@traceback_option
def verifiable_share_consumer(bootstrap: str, traceback: bool, **options: Any) -> None:
    """Read as a member of a share group, and report records and their acknowledgements."""
    if options["pattern"] and options["mode"] == "auto":
        raise click.UsageError("--ack-pattern requires --acknowledgement-mode to be 'sync' or 'async', not 'auto'")
    run(lambda: until_signalled(lambda stopping: _consume(bootstrap, options, stopping)), traceback=traceback)


async def _consume(bootstrap: str, options: dict[str, Any], stopping: asyncio.Event) -> None:
    from minikafka.client.share_consumer import ShareConsumer

    most, told = options["max_messages"], _Acknowledgements(options["pattern"])
    say("startup_complete")
    if options["offset_reset_strategy"]:
        await _set_offset_reset(bootstrap, options["group_id"], options["offset_reset_strategy"])
    async with ShareConsumer(bootstrap, options["group_id"], on_acknowledged=told.note) as consumer:
        await consumer.subscribe([options["topic"]])
        while (most < 0 or told.count < most) and not stopping.is_set():
            records = await consumer.poll(POLL_MS)
            if not records:
                continue
            _note_records(records, verbose=options["verbose"])
            told.give(consumer, records)
            if options["mode"] == "sync":
                await consumer.commit()
        if stopping.is_set():
            say("shutdown_requested")
    say("shutdown_complete")


async def _set_offset_reset(bootstrap: str, group_id: str, strategy: str) -> None:
    from minikafka.client.admin import Admin

    async with Admin(bootstrap, client_id="minikafka-cli") as admin:
        await admin.alter_configs(GROUP_RESOURCE, group_id, [("set", "share.auto.offset.reset", strategy)])
    say("offset_reset_strategy_set", offsetResetStrategy=strategy)


def _note_records(records: list[SharedRecord], *, verbose: bool) -> None:
    if verbose:
        note_each(records)
    partitions = [{**place, "count": len(offsets), "offsets": offsets} for place, offsets in rows_by_partition(records)]
    say("records_consumed", count=len(records), partitions=partitions)


class _Acknowledgements:
    """Gives records their types, and reports what became of them."""

    def __init__(self, pattern: tuple[str, ...]) -> None:
        self._pattern = pattern
        #: How many records have been acknowledged.
        self.count = 0
        #: By (topic, partition, offset): the type of a record without an answer, and the place in the pattern of one that was renewed.
        self._given: dict[tuple[str, int, int], str] = {}
        self._next: dict[tuple[str, int, int], int] = {}

    def give(self, consumer: ShareConsumer, records: list[SharedRecord]) -> None:
        """Acknowledge records with the next request."""
        from minikafka.client.share_consumer import ACCEPT, REJECT, RELEASE, RENEW

        types = {"accept": ACCEPT, "release": RELEASE, "reject": REJECT, "renew": RENEW}
        for record in records:
            how = "accept"
            if self._pattern:
                place = record.topic, record.partition, record.offset
                index = self._next.pop(place, record.offset % len(self._pattern))
                how = self._given[place] = self._pattern[index]
                if how == "renew":
                    self._next[place] = (index + 1) % len(self._pattern)
            consumer.acknowledge(record, types[how])

    def note(self, answers: list[Acknowledged]) -> None:
        """A broker has answered: one event for everything that it took, and one for each error."""
        from minikafka.wire.errors import ErrorCode

        for code in dict.fromkeys(one.code for one in answers):
            found = [one for one in answers if one.code is code]
            partitions = [
                {"topic": one.topic, "partition": one.partition, "count": len(one.offsets), "offsets": one.offsets} for one in found
            ]
            count = sum(len(one.offsets) for one in found)
            fields: dict[str, Any] = {"count": count, "partitions": partitions}
            if code is ErrorCode.NONE:
                self.count += count
                fields["success"] = True
            else:
                fields |= {"error": code.text, "success": False}
            if self._pattern:
                types = (self._given.pop((one.topic, one.partition, offset), "") for one in found for offset in one.offsets)
                fields["ackTypeCounts"] = dict(Counter(name.upper() for name in types if name))
            say("offsets_acknowledged", **fields)
