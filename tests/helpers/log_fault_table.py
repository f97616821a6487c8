"""The table of faults: which is planted into which authentic cluster, and what must name it."""

from __future__ import annotations

from helpers import log_fault_clusters as clusters
from helpers import log_faults as f
from helpers.log_fault_clusters import Fault

_INSIDE_CRC = ("attributes", "last_delta", "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count")

_HEADER = [
    Fault("header bit: base_offset", f.flip("base_offset", False), ("offset-gap", "offset-order")),
    Fault("header bit: length", f.flip("length", False), ("batch-length", "segment-tail", "batch-crc")),
    Fault("header bit: epoch", f.flip("epoch", False, 4), ("replica-differs", "epoch-order")),
    Fault("header bit: magic", f.flip("magic", False), ("batch-magic",)),
    Fault("header bit: crc", f.flip("crc", False), ("batch-crc",)),
    *(Fault(f"header bit: {name}", f.flip(name, False, 2), ("batch-crc",)) for name in _INSIDE_CRC),
    *(
        Fault(f"header bit, CRC made right: {name}", f.flip(name, True, 2), ("replica-differs", "offset-order", "offset-gap"))
        for name in _INSIDE_CRC
    ),
    Fault("payload bit", f.flip_payload(False), ("batch-crc",)),
    Fault("payload bit, CRC made right", f.flip_payload(True), ("replica-differs",), cause="the same epoch"),
    Fault("record does not decode, CRC right", f.undecodable, ("batch-records",), level="records"),
    Fault("codec 7 in the attributes, on every replica", f.everywhere(f.flip("attributes", True, 7)), ("batch-header",), ("1", "2", "3")),
    Fault("record count too large, on every replica", f.everywhere(f.flip("count", True, 16)), ("batch-header",), ("1", "2", "3")),
    Fault("max timestamp of no record, on every replica", f.wrong_record_time, ("batch-timestamps",), ("1", "2", "3"), "records"),
]
_ORDER = [
    Fault("batches swapped", f.reorder(f.swap), ("offset-order",)),
    Fault("batch twice", f.reorder(lambda batches, at: batches.insert(at, batches[at])), ("offset-order",)),
    Fault("batch removed", f.reorder(lambda batches, at: batches.__delitem__(at)), ("offset-gap",)),
    Fault("batch removed on every replica", f.everywhere(f.reorder(lambda batches, at: batches.__delitem__(at))), ("offset-gap",),
          ("1", "2", "3")),
    Fault("epoch fork with equal CRCs", f.forked_epoch, ("replica-differs",), cause="different leader epochs"),
    Fault("lost tail below its own high watermark", f.lost_tail(False), ("committed-missing",)),
    Fault("KIP-101: a deposed leader's records kept", f.rewritten(20, None, 1), ("replica-differs",), cause="two leaders"),
    Fault("fluss#4269: other records, same epoch, all in sync", f.rewritten(12, 18, None), ("replica-differs",), cause="the same epoch"),
    Fault("oxia#898: one replica's suffix of another term", f.rewritten(12, None, 0), ("replica-differs",), cause="two leaders"),
    Fault("redpanda#11360: truncated one batch too far on", f.stale_batch_kept, ("replica-differs",)),
    Fault("garbage behind the last batch", f.tail(b"\x01\x02rubbish" * 20), ("segment-tail", "batch-length")),
    Fault("zeros behind the last batch", f.tail(bytes(4096)), ("segment-tail",)),
    Fault("half a batch behind the last one", f.tail((0).to_bytes(8, "big") + (500).to_bytes(4, "big") + bytes(90)), ("segment-tail",)),
]  # fmt: skip
_BESIDE = [
    Fault("index entry one byte off", f.edit(".index", 4, 1), ("index-target",)),
    Fault("index entry one offset up", f.edit(".index", 8, 1), ("index-target",)),
    Fault("index entry one offset down", f.edit(".index", 0, -1), ("index-target",)),
    Fault("time index entry one millisecond off", f.edit(".timeindex", 4, 1), ("time-index-target",)),
    Fault("time index entry one offset off", f.edit(".timeindex", 8, 1), ("time-index-target",)),
    Fault("snapshot with another sequence", f.edited_snapshot(13, 1), ("producer-replay",)),
    Fault("snapshot with another epoch", f.edited_snapshot(9, 1), ("producer-replay",)),
    Fault("snapshot with another last offset", f.edited_snapshot(21, -1), ("producer-replay",)),
    Fault("epoch checkpoint one offset off", f.text("leader-epoch-checkpoint", f.last_epoch_line(1)), ("epoch-checkpoint",)),
    Fault("epoch checkpoint lost an epoch", f.text("leader-epoch-checkpoint", f.without_epoch), ("epoch-checkpoint",)),
    Fault("epoch checkpoint with a wrong count", f.text("leader-epoch-checkpoint", lambda text: text.replace("0\n", "0\n9", 1)),
          ("epoch-checkpoint-format",)),
    Fault("partition.metadata unreadable", f.text("partition.metadata", lambda text: text[:-9]), ("partition-metadata",)),
    Fault("partition.metadata of another topic", f.text("partition.metadata", lambda text: text[:-22] + "AAECAwQFBgcICQoLDA0ODw"),
          ("topic-id",)),
    Fault("high watermark beyond the end", f.set_checkpoint("replication-offset-checkpoint", 10**6), ("committed-missing",)),
    Fault("recovery point beyond the end", f.set_checkpoint("recovery-point-offset-checkpoint", 10**6), ("checkpoint-bounds",)),
    Fault("cleaner checkpoint beyond the end", f.set_checkpoint("cleaner-offset-checkpoint", 10**6), ("checkpoint-bounds",)),
    Fault("log start beyond the end", f.set_checkpoint("log-start-offset-checkpoint", 10**6), ("checkpoint-bounds",)),
    Fault("directory of another cluster", f.text("meta.properties", lambda text: text.replace("cluster.id=", "cluster.id=x"), root=True),
          ("cluster-id",), ()),
    Fault("checkpoint file cut", f.text("replication-offset-checkpoint", lambda text: text[:-6], root=True), ("checkpoint-format",)),
]  # fmt: skip
_SEGMENTS = [
    Fault("segment missing in the middle", f.missing_segment, ("offset-gap", "replica-differs")),
    Fault("segment named one offset too high", f.renamed_segment, ("segment-name",)),
    Fault("batch written again, on every replica", f.appended(lambda batches: batches[-3]), ("producer-sequence",), ("1", "2", "3")),
    Fault("snapshot of an older state", f.stale_snapshot, ("producer-replay",)),
]
_TRANSACTIONS = [
    Fault("aborted transaction shown as committed", f.in_txn(f.abort_becomes_commit), ("txn-index-target",)),
    Fault("index of aborted transactions missing", f.in_txn(f.no_txn_index), ("txn-index-target",)),
    Fault("aborted transaction: first offset off by one", f.in_txn(f.edit(".txnindex", 14, 1, 1)), ("txn-index-target",)),
    Fault("aborted transaction: last offset off by one", f.in_txn(f.edit(".txnindex", 22, 1, 1)), ("txn-index-target",)),
    Fault("aborted transaction: stable offset off by one", f.in_txn(f.edit(".txnindex", 30, -1, 1)), ("txn-index-target",)),
    Fault("aborted transaction of another producer", f.in_txn(f.edit(".txnindex", 6, 1, 1)), ("txn-index-target",)),
    Fault("marker of an unknown type", f.in_txn(f.unknown_marker), ("txn-marker",)),
    Fault("zombie producer, on every replica", f.in_txn(f.appended(f.zombie)), ("producer-epoch",), ("1", "2", "3")),
    Fault("marker lost with the tail", f.in_txn(f.lost_marker), ("committed-missing",)),
    Fault("transaction that never ends, on every replica", f.in_txn(f.hanging), ("txn-open",), ("1", "2", "3")),
]
_CLAIMS = [
    Fault("replica lies in the ISR: tail lost, high watermark too", f.lost_tail(True, 3), ("isr-claim",), ("3",)),
    Fault("directory of an in-sync replica missing", f.no_directory(3), ("replica-missing",), ("3",)),
    Fault("leader epoch that no controller gave out", f.future_epoch, ("epoch-unknown",), ()),
    Fault("metadata snapshot lost records", f.snapshot_without_a_partition, ("metadata-snapshot",)),
    Fault("metadata snapshot bit", f.snapshot_bit, ("metadata-snapshot",)),
    Fault("metadata log of one node differs", f.metadata_record, ("replica-differs", "metadata-log")),
    Fault("acknowledged records lost on every replica", f.acked_lost_everywhere, ("acked-missing",), ("1", "2", "3")),
    Fault("acknowledged record lost on one replica", f.acked_lost_on_one, ("acked-missing",)),
    Fault("another record than the acknowledged one", f.acked_with_another_value, ("acked-differs",), ()),
]
_COMPACTED = [
    Fault("cleaner lost a living key", f.cleaner_lost_a_key, ("replica-differs",), ("2",)),
    Fault("cleaner changed a record", f.cleaned_record_changed, ("replica-differs",), ()),
]
_EPOCHS = ("KIP-101", "oxia#898")  # need the golden log's three epochs
#: (name of the base, builder, faults)
TABLE = (
    ("3 brokers of minikafka", clusters.own, _HEADER + [fault for fault in _ORDER if not fault.name.startswith(_EPOCHS)] + _BESIDE),
    ("3 brokers of Kafka 4.3", clusters.replicated, _HEADER + _ORDER + _BESIDE + _CLAIMS),
    ("Kafka 4.3, segments and transactions", clusters.few_topics, _HEADER + _SEGMENTS + _TRANSACTIONS + _BESIDE[:8]),
    ("Kafka 4.3, compacted", clusters.compacted, _COMPACTED),
    ("Kafka 4.3, all topics and codecs", clusters.many_topics, []),
)
