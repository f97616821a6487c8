"""Every metric of a broker: its name in each dialect, kind, labels and meaning. Scrapes and docs/metrics.md are made from this table.

The names derive from Kafka's MBeans by the rules of these sources:

    s   Strimzi's rules for the JMX exporter: …PerSec is …_total, …Percent is …_percent
    c   Confluent's (jmx-monitoring-stacks): …persec, …percent, labels in lower case
    r   Strimzi's metrics reporter: …persec_total, kafka_server_raft_metrics_…
    k   a bean's own names, as far as kafbat's Kafka UI needs them
"""

from __future__ import annotations

from minikafka.late_dataclass import dataclass

DIALECTS = ("s", "c", "r", "k")
SNAKE_IN_C = {"clientSoftwareName": "client_software_name", "clientSoftwareVersion": "client_software_version"}
#: Spelling of the label that is client-id in Kafka.
SNAKE_OF_QUOTAS = {"clientId": "client_id"}
RATES = "kafka_server_BrokerTopicMetrics_FifteenMinuteRate"


@dataclass(frozen=True, slots=True)
class Metric:
    """`names`: dialect -> name; `kind` is gauge, counter or summary; labels as dialect S spells them."""

    names: dict[str, str]
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    section: str = ""

    @property
    def key(self) -> str:
        """The name in the first dialect that has the metric."""
        return next(self.names[dialect] for dialect in DIALECTS if dialect in self.names)

    def label_in(self, dialect: str, label: str) -> str:
        """A label in the spelling of a dialect."""
        if dialect == "s":
            return label
        if self.section == QUOTAS:
            return SNAKE_OF_QUOTAS.get(label, label)
        return SNAKE_IN_C.get(label, label.lower() if dialect == "c" else label)


QUOTAS = "Client quotas"
_section = ""
_all: list[Metric] = []


def _add(names: dict[str, str], kind: str, text: str, labels: tuple[str, ...]) -> None:
    _all.append(Metric(names, kind, text, labels, _section))


def _gauge(name: str, text: str, *labels: str, c: str | None = None, r: str | None = None) -> None:
    _add({"s": name, "c": c or name, "r": r or name}, "gauge", text, labels)


def _counter(name: str, text: str, *labels: str, c: str | None = None, r: str | None = None) -> None:
    """A counter whose bean is not called …PerSec; `name` ends in _total."""
    _add({"s": name, "c": c or name, "r": r or name}, "counter", text, labels)


def _per_second(name: str, text: str, *labels: str) -> None:
    """A meter's count; `name` without the suffix."""
    _add({"s": f"{name}_total", "c": f"{name}persec", "r": f"{name}persec_total"}, "counter", text, labels)


def _percent(name: str, text: str, *labels: str, c: str = "") -> None:
    _add({"s": f"{name}_percent", "c": f"{name}percent{c}", "r": f"{name}percent"}, "gauge", text, labels)


def _summary(name: str, text: str, *labels: str) -> None:
    """Quantiles 0.50 to 0.999, and …_count."""
    _add({"s": name, "c": name, "r": name}, "summary", text, (*labels, "quantile"))


def _raft(name: str, text: str, *labels: str, r: str | None = None) -> None:
    other = f"kafka_server_raft_metrics_{name}"
    _add({"s": f"kafka_server_raftmetrics_{name}", "c": other, "r": f"kafka_server_raft_metrics_{r or name}"}, "gauge", text, labels)


_section = "State of the process"
_gauge("kafka_server_kafkaserver_brokerstate", "State of the broker: 1 starting, 3 running, 6 stopping.")
_add(
    {
        "s": "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "c": "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
    },
    "gauge",
    "Share of the last minute in which the loop that serves requests took no processor time, 0 to 1.",
    (),
)
_add(
    {"r": "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_total"},
    "counter",
    "Nanoseconds in which the loop that serves requests took no processor time.",
    (),
)
_percent("kafka_network_socketserver_networkprocessoravgidle", "Same as requesthandleravgidle: both share the loop.")
_gauge("kafka_server_kafkaserver_linux_disk_read_bytes", "Bytes that the process has read from disks (read_bytes of /proc/self/io).")
_gauge("kafka_server_kafkaserver_linux_disk_write_bytes", "Bytes that the process has written to disks (write_bytes of /proc/self/io).")
_gauge("minikafka_start_seconds", "How long the start took, recovery of logs included.")
_gauge(
    "minikafka_loop_longest_turn_seconds", "Longest turn of the event loop in the last one to two minutes, and the functions that ran.",
    "what",
)  # fmt: skip
_gauge(
    "minikafka_loop_longest_turn_cpu_seconds", "Processor time of the longest turn; less than its length if the machine is busy.", "what",
)
_counter("minikafka_loop_stalls_total", "Turns of the event loop of more than 100 ms.")
_counter("minikafka_loop_stalled_seconds_total", "Total time of turns of more than 100 ms.")
_counter(
    "minikafka_peer_lines_left_out_total", "Log lines about connections that were suppressed: too many of one kind about one peer.",
    "kind",
)  # fmt: skip
_gauge("minikafka_request_memory_bytes", "Memory that connections use for requests and responses (clients: queued.max.request.bytes).")
_counter("minikafka_request_memory_exhausted_total", "Times a connection was not read because that memory was used up.")
_counter("minikafka_heartbeats_unanswered_total", "Heartbeats of this broker that no controller answered.")
_gauge("minikafka_heartbeat_silence_seconds", "Time since a controller last answered a heartbeat of this broker.")
_counter("minikafka_unexpected_exceptions_total", "Unexpected exceptions, by the part they ended. Each is a bug in minikafka.", "ended")

_section = "Replicas"
_P = "kafka_server_replicamanager"
_gauge(f"{_P}_partitioncount", "Replicas of this broker.")
_gauge(f"{_P}_leadercount", "Partitions that this broker leads.")
_gauge(f"{_P}_underreplicatedpartitions", "Led partitions with a replica out of sync.")
_gauge(f"{_P}_underminisrpartitioncount", "Led partitions below min.insync.replicas.")
_gauge(f"{_P}_atminisrpartitioncount", "Led partitions at min.insync.replicas.")
_gauge(f"{_P}_offlinereplicacount", "Replicas on failed directories.")
_gauge(f"{_P}_reassigningpartitions", "Led partitions that are being moved.")
_per_second(f"{_P}_isrshrinks", "Times an in-sync set shrank.")
_per_second(f"{_P}_isrexpands", "Times an in-sync set grew.")
_per_second(f"{_P}_failedisrupdates", "Changes of in-sync sets that the controller rejected.")
_add({"c": f"{_P}_straypartitionscount"}, "gauge", "Replicas found at startup that do not belong to the cluster, and were set aside.", ())
_add({"c": f"{_P}_straypartitionstotalsize"}, "gauge", "Bytes of replicas that were set aside at startup.", ())
_C = "kafka_cluster_partition"
_gauge(f"{_C}_underreplicated", "1 when a replica is out of sync. Reported by the leader.", "topic", "partition")
_gauge(f"{_C}_underminisr", "1 when below min.insync.replicas.", "topic", "partition")
_gauge(f"{_C}_atminisr", "1 when at min.insync.replicas.", "topic", "partition")
_gauge(f"{_C}_replicascount", "Replicas.", "topic", "partition")
_gauge(f"{_C}_insyncreplicascount", "In-sync replicas.", "topic", "partition")
_gauge(f"{_C}_laststableoffsetlag", "Offsets between the last stable offset and the high watermark.", "topic", "partition")
_gauge("minikafka_partition_high_watermark", "High watermark of a replica.", "topic", "partition")
_gauge("minikafka_partition_leader_epoch", "Leader epoch of a replica.", "topic", "partition")
_counter(
    "minikafka_handover_produces_total",
    "Produce requests that arrived while a leadership moved to another broker: handed_on, served (here after all), refused, unknown.",
    "outcome",
)
_counter("minikafka_log_truncations_total", "Times a follower truncated its log, by reason.", "topic", "partition", "reason")
_counter("minikafka_log_truncated_records_total", "Offsets that followers on this broker have truncated.")

_section = "Followers"
_gauge(
    "kafka_server_fetcherlagmetrics_consumerlag",
    "Offsets that a follower is behind its leader's high watermark.",
    "clientId", "topic", "partition",
)  # fmt: skip
_F = "kafka_server_replicafetchermanager"
_gauge(f"{_F}_maxlag", "Largest lag of a followed partition.", "clientId")
_gauge(f"{_F}_minfetchrate", "Fetches per second of the slowest fetcher, over the last minute.", "clientId")
_gauge(f"{_F}_failedpartitionscount", "Followed partitions on failed directories.", "clientId")
_gauge(f"{_F}_deadthreadcount", "Fetcher threads that have died. Always 0: fetchers are not threads here.", "clientId")

_section = "Traffic"
_T = "kafka_server_brokertopicmetrics"
_per_second(f"{_T}_bytesin", "Bytes produced, for each topic, and without a topic for all.", "topic")
_per_second(f"{_T}_bytesout", "Bytes fetched by consumers.", "topic")
_per_second(f"{_T}_messagesin", "Records produced.", "topic")
_per_second(f"{_T}_bytesrejected", "Bytes of batches that were too large.", "topic")
_per_second(f"{_T}_totalproducerequests", "Attempts to append. A request counts once for each of its partitions.", "topic")
_per_second(f"{_T}_failedproducerequests", "Failed appends, except for a wrong broker, a large batch or a failed disk.", "topic")
_per_second(
    f"{_T}_totalfetchrequests", "Attempts to read. A request counts once for each of its partitions, and once more if it waited.", "topic"
)
_per_second(f"{_T}_failedfetchrequests", "Failed reads, except for a wrong broker, epoch or offset, or a failed disk.", "topic")
_per_second(f"{_T}_replicationbytesin", "Bytes fetched from leaders.")
_per_second(f"{_T}_replicationbytesout", "Bytes fetched by followers.")
_add(
    {"k": RATES},
    "gauge",
    "Bytes per second, a moving average of 15 minutes as in Kafka; `name` is BytesInPerSec or BytesOutPerSec. For each topic, and for all.",
    ("name", "topic"),
)
_per_second(f"{_T}_producemessageconversions", "Always 0: minikafka has no older record format to convert from.")
_per_second(f"{_T}_fetchmessageconversions", "Always 0: minikafka has no older record format to convert to.")

_section = "Requests"
_R = "kafka_network_requestmetrics"
_per_second(f"{_R}_requests", "Requests by API and version; Fetch counts again as FetchConsumer or FetchFollower.", "request", "version")
_per_second(
    f"{_R}_errors",
    "Responses by error; NONE means no error. Produce and Fetch count each partition, other APIs the whole response.",
    "request", "error",
)  # fmt: skip
_summary(f"{_R}_totaltimems", "From the arrival of a request until its response is sent, ms. Measured on a sample.", "request")
_summary(f"{_R}_requestqueuetimems", "From the arrival of a request to its handler, ms.", "request")
_summary(f"{_R}_localtimems", "In the handler, ms.", "request")
_summary(f"{_R}_remotetimems", "Waiting for replicas, for bytes to fetch or for the controller, ms.", "request")
_summary(f"{_R}_responsequeuetimems", "From the response to the system call that sends it, ms.", "request")
_summary(f"{_R}_responsesendtimems", "In the system call that sends the response, ms.", "request")
_gauge("kafka_network_requestchannel_requestqueuesize", "Connections that are not read because too many of their responses are pending.")
_gauge("kafka_network_requestchannel_responsequeuesize", "Connections whose responses wait for the socket.")
_D = "kafka_server_delayedoperationpurgatory"
_gauge(f"{_D}_numdelayedoperations", "Requests that wait, by operation: Produce, Fetch, DeleteRecords.", "delayedOperation")
_gauge(f"{_D}_purgatorysize", "Partitions for which these requests wait, counted once for each request.", "delayedOperation")
_gauge("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions.")
_gauge("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", "Partitions in fetch sessions.")
_per_second("kafka_server_fetchsessioncache_incrementalfetchsessionevictions", "Evicted fetch sessions.")

_section = QUOTAS
for _kind, _what, _rate, _text in (
    ("produce", "producing", "byte_rate", "Bytes per second"),
    ("fetch", "fetching", "byte_rate", "Bytes per second"),
    ("request", "requests", "request_time", "Percent of the time of the loop"),
    ("controllermutation", "changes of topics", "mutation_rate", "Partitions created or deleted per second"),
):
    _name = f"kafka_server_{_kind}"
    _gauge(
        f"{_name}_{_rate}", f"{_text} of the clients that share a quota of {_what}; an empty user or client id means any.",
        "user", "clientId",
    )  # fmt: skip
    _gauge(f"{_name}_throttle_time", "Average throttle time over the quota's windows, ms.", "user", "clientId")
_gauge("kafka_server_controllermutation_tokens", "Changes that are left; negative if the client is over its quota.", "user", "clientId")
_counter("minikafka_connections_held_total", "Connections held and closed because their address made too many (connection_creation_rate).")

_section = "Connections"


def _socket(name: str, kind: str, text: str, *labels: str, c: str | None = None) -> None:
    own = f"kafka_server_socket_server_metrics_{name}"
    other = c or name
    names = {"s": own, "c": f"kafka_server_socketservermetrics_{other}", "r": f"kafka_server_socket_server_metrics_{other}"}
    _add(names, kind, text, labels)


_socket("connection_count", "gauge", "Open connections.", "listener", "networkProcessor")
_socket("connection_creation_total", "counter", "Connections accepted.", "listener", "networkProcessor")
_socket("connection_creation_rate", "gauge", "Connections accepted per second, over the last minute.", "listener", "networkProcessor")
_socket("connection_close_total", "counter", "Connections ended.", "listener", "networkProcessor")
_socket("connection_close_rate", "gauge", "Connections ended per second, over the last minute.", "listener", "networkProcessor")
_socket(
    "connections_software", "gauge", "Open connections by the software that clients name.",
    "clientSoftwareName", "clientSoftwareVersion", "listener", "networkProcessor", c="connections",
)  # fmt: skip
_percent("kafka_network_acceptor_acceptorblocked", "Share of the last minute in which new connections had to wait, 0 to 1.", "listener")
_counter("minikafka_connections_refused_total", "Connections rejected, or delayed and closed, by an address limit.", "listener")

_section = "Authorization"
_gauge("minikafka_acls", "ACLs in the cluster's metadata.")
_counter("minikafka_authorizations_allowed_total", "Authorizations granted.")
_counter("minikafka_authorizations_denied_total", "Authorizations denied with an effect on the response; 0 without an authorizer.")

_section = "Logs"
_L = "kafka_log_log"
_gauge(f"{_L}_size", "Bytes of a replica's log.", "topic", "partition")
_gauge(f"{_L}_logstartoffset", "First offset.", "topic", "partition")
_gauge(f"{_L}_logendoffset", "Offset after the last record.", "topic", "partition")
_gauge(f"{_L}_numlogsegments", "Segments.", "topic", "partition")
_gauge("kafka_log_logmanager_offlinelogdirectorycount", "Failed log directories.")
_gauge("kafka_log_logmanager_logdirectoryoffline", "1 for a log directory that has failed.", "logDirectory")
_summary("kafka_log_logflushstats_logflushrateandtimems", "How long syncing a log to its disk took, ms; the count is of syncs.")
_K = "kafka_log_logcleanermanager"
_gauge(f"{_K}_uncleanable_partitions_count", "Compacted logs that cannot be read, and so are not compacted.", "logDirectory")
_gauge(f"{_K}_uncleanable_bytes", "Bytes of compacted logs that cannot be read.", "logDirectory")
_gauge(f"{_K}_max_dirty_percent", "Largest share, 0 to 100, of a compacted log that was not compacted when the cleaner last looked.")
_gauge(f"{_K}_time_since_last_run_ms", "Time since the end of the last round of compaction, ms; 0 if there was none.")
_N = "kafka_log_logcleaner"
_gauge(f"{_N}_cleaner_recopy_percent", "Bytes that the last round of compaction wrote, in percent of the bytes read.")
_gauge(f"{_N}_max_buffer_utilization_percent", "Share, 0 to 100, of log.cleaner.dedupe.buffer.size that the last round of compaction used.")
_gauge(f"{_N}_max_clean_time_secs", "Duration of the last round of compaction, s.")
_gauge(f"{_N}_max_compaction_delay_secs", "How far a log exceeds max.compaction.lag.ms, s.")
_gauge(f"{_N}_deadthreadcount", "1 when compaction should run but does not.")
_counter("minikafka_cleaner_rounds_total", "Rounds of compaction.")
_counter("minikafka_cleaner_read_bytes_total", "Bytes that compaction has read.")
_counter("minikafka_cleaner_written_bytes_total", "Bytes that compaction has written.")

_section = "Audit"
_counter("minikafka_audit_runs_total", "Scheduled audits that this node ran (minikafka.audit.interval.ms).")
_counter("minikafka_audit_runs_failed_total", "Scheduled audits that found a problem, were incomplete or could not be started.")
_A = "minikafka_audit"
_gauge(f"{_A}_last_run_timestamp_seconds", "When the latest audit in minikafka.audit.report.dir ended; absent if there is none.")
_gauge(f"{_A}_exit_code", "Exit code of the latest audit: 0 passed, 1 replicas differ or are damaged, 3 incomplete.")
_gauge(f"{_A}_partitions", "Partitions of the latest audit: match, mismatch or incomplete.", "result")
_gauge(f"{_A}_batches_compared", "Record batches that the latest audit compared.")
_gauge(f"{_A}_bytes_compared", "Bytes of record batches that the latest audit compared.")
_gauge(f"{_A}_seconds", "Duration of the latest audit.")

_section = "Groups"
_G = "kafka_coordinator_group_groupmetadatamanager"
_gauge(f"{_G}_numgroups", "Groups coordinated here.")
for _state in ("Stable", "PreparingRebalance", "CompletingRebalance", "Empty", "Dead"):
    _gauge(f"{_G}_numgroups{_state.lower()}", f"Groups in state {_state}.")
_gauge(f"{_G}_numoffsets", "Committed offsets stored here.")

_section = "Transactions"


def _transactions(name: str, kind: str, text: str) -> None:
    _add(dict.fromkeys(DIALECTS, f"kafka_server_transaction_coordinator_metrics_{name}"), kind, text, ())


_transactions(
    "partition_load_time_max", "gauge",
    "Longest load of a partition of __transaction_state in the last 30 to 60 s, ms.",
)  # fmt: skip
_transactions(
    "partition_load_time_avg", "gauge",
    "Average load time of partitions of __transaction_state in the last 30 to 60 s, ms; NaN if none was loaded.",
)
# The others are Confluent Server's names, for values that Apache Kafka does not report.
_transactions("partitions_total_size", "gauge", "Partitions of __transaction_state that are coordinated here.")
_transactions("transactional_id_count", "gauge", "Transactional ids coordinated here.")
_transactions("active_transaction_total_time_max", "gauge", "Age of the oldest open transaction, ms; 0 if there is none.")
_transactions("transaction_timeout_count", "gauge", "Transactions aborted because they timed out.")
_transactions("transaction_timeout_rate", "gauge", "Transactions aborted per second because they timed out, over the last minute.")

_section = "Metadata quorum"
_raft("current_leader", "Leader of the metadata quorum; -1 unknown.")
_raft("current_vote", "Node that this one voted for in the current epoch; -1 none.")
_raft("current_epoch", "Epoch of the metadata quorum.")
_raft("high_watermark", "High watermark of the metadata log.")
_raft("log_end_offset", "End of the metadata log.")
_raft(
    "current_state", "Role in the metadata quorum: leader, candidate, prospective, follower, unattached, resigned, observer.",
    "current_state", r="current_state_info",
)  # fmt: skip
_raft("append_records_rate", "Records per second that this leader appends, over the last 30 to 60 s.")
_raft("fetch_records_rate", "Records per second that this follower fetches, over the last 30 to 60 s.")
_raft("commit_latency_avg", "Average time from append to commit, ms, on the leader; NaN if nothing was committed.")
_raft("commit_latency_max", "Longest time from append to commit, ms.")
_raft("election_latency_avg", "Average time from candidacy to a known leader, ms; NaN if there was no election.")
_raft("election_latency_max", "Longest time from candidacy to a known leader, ms.")
_raft("number_of_voters", "Voters of the metadata quorum.")
for _name, _text in (
    ("incoming_byte", "Bytes received from other replicas of the metadata log."),
    ("outgoing_byte", "Bytes sent to other replicas of the metadata log."),
    ("request", "Requests sent to other replicas of the metadata log."),
    ("response", "Answers received from other replicas of the metadata log."),
):
    _counter(
        f"kafka_server_raftchannelmetrics_{_name}_total", _text,
        c=f"kafka_server_raft_channel_metrics_{_name}_total", r=f"kafka_server_raft_channel_metrics_{_name}",
    )  # fmt: skip


def _broker_metadata(name: str, text: str) -> None:
    other = f"kafka_server_broker_metadata_metrics_{name}"
    _gauge(f"kafka_server_brokermetadatametrics_{name}", text, c=other, r=other)


_broker_metadata("last_applied_record_offset", "Last offset of the metadata log that this broker has applied.")
_broker_metadata("last_applied_record_lag_ms", "For how long committed metadata has waited to be applied, ms; 0 when all is.")
_broker_metadata("metadata_apply_error_count", "Metadata changes that a part of this broker failed to apply.")

_section = "Clients' own metrics (KIP-714)"
_CM = "kafka_server_client_metrics"
_gauge(f"{_CM}_instance_count", "Clients that have requested their subscription.")
_gauge(f"{_CM}_unknown_subscription_request_count", "Pushes for an outdated subscription; the client asks again.")
_gauge(f"{_CM}_throttle_count", "Requests that came before the end of the interval.")
_gauge(f"{_CM}_plugin_export_count", "Accepted pushes.")
_gauge(f"{_CM}_plugin_error_count", "Pushes that could not be read.")
_gauge("minikafka_client_metrics_subscriptions", "Subscriptions to clients' metrics.")
_counter("minikafka_client_metrics_received_bytes_total", "Bytes of pushes, compressed.")
_gauge("minikafka_client_metrics_series", "Samples kept of the metrics that clients push.")
_counter("minikafka_client_metrics_dropped_total", "Values that clients pushed and that were dropped for lack of room.")
_CLIENT = ("metric", "client_id", "client_instance_id", "client_software_name")
_gauge("minikafka_client_metric", "The last value that a client pushed, with the labels that the client adds.", *_CLIENT)
_counter("minikafka_client_metric_total", "Increase of a client's counter since the client connected to this broker.", *_CLIENT)

_section = "Controller"
_O = "kafka_controller_kafkacontroller"
_gauge(f"{_O}_activecontrollercount", "1 on the active controller.")
_gauge(f"{_O}_globaltopiccount", "Topics of the cluster; 0 except on the active controller.")
_gauge(f"{_O}_globalpartitioncount", "Partitions of the cluster; 0 except on the active controller.")
_gauge(f"{_O}_offlinepartitionscount", "Partitions without a leader.")
_gauge(f"{_O}_preferredreplicaimbalancecount", "Partitions not led by their first replica.")
_gauge(f"{_O}_activebrokercount", "Brokers in service.")
_gauge(f"{_O}_fencedbrokercount", "Brokers registered but not in service.")
_gauge(f"{_O}_metadataerrorcount", "Metadata changes that a part of this node failed to apply.")
_gauge(f"{_O}_lastappliedrecordoffset", "Last offset of the metadata log that this node has applied.")
_gauge(f"{_O}_lastcommittedrecordoffset", "Last offset of the metadata log that is known to be committed.")
_gauge(f"{_O}_lastappliedrecordlagms", "For how long committed metadata has waited to be applied, ms; 0 when all is.")
_gauge(f"{_O}_newactivecontrollerscount", "Times this node became the active controller.")
_per_second(
    "kafka_controller_controllerstats_uncleanleaderelections",
    "Elections of out-of-sync leaders that this controller has seen in the metadata.",
)
_E = "kafka_controller_controllereventmanager"
_summary(f"{_E}_eventqueuetimems", "How long requests and other events wait until the active controller begins them, ms.")
_summary(f"{_E}_eventqueueprocessingtimems", "How long the active controller takes to process a request, ms.")

_section = "kafka_exporter's names"
_gauge("kafka_brokers", "Brokers in service. Reported by the active controller.")
_gauge("kafka_broker_info", "A broker and its address. Reported by the active controller.", "id", "address")
_gauge("kafka_topic_partitions", "Partitions of a topic. Reported by the leader of its first partition.", "topic")
_X = "kafka_topic_partition"
_gauge(f"{_X}_current_offset", "High watermark. Reported, like the other metrics of partitions, by the leader.", "topic", "partition")
_gauge(f"{_X}_oldest_offset", "First offset.", "topic", "partition")
_gauge(f"{_X}_leader", "The leader's id.", "topic", "partition")
_gauge(f"{_X}_leader_is_preferred", "1 when the first replica leads.", "topic", "partition")
_gauge(f"{_X}_replicas", "Replicas.", "topic", "partition")
_gauge(f"{_X}_in_sync_replica", "In-sync replicas.", "topic", "partition")
_gauge(f"{_X}_under_replicated_partition", "1 when a replica is out of sync.", "topic", "partition")
_Y = "kafka_consumergroup"
_gauge(
    f"{_Y}_current_offset", "Committed offset of a group. Reported by the coordinator, like the other metrics of groups.",
    "consumergroup", "topic", "partition",
)  # fmt: skip
_gauge(f"{_Y}_current_offset_sum", "Sum of a group's committed offsets of a topic.", "consumergroup", "topic")
_gauge(
    f"{_Y}_lag", "Offsets between a group's committed offset and the high watermark, where the coordinator has a replica.",
    "consumergroup", "topic", "partition",
)  # fmt: skip
_gauge(f"{_Y}_lag_sum", "A group's lag in a topic.", "consumergroup", "topic")
_gauge(f"{_Y}_members", "Members of a group.", "consumergroup")

#: By the name in dialect S (of those that S has not, by their own).
METRICS: dict[str, Metric] = {metric.key: metric for metric in _all}

#: Prefix of metrics in stock dashboards of Kafka that this broker does not report -> the reason.
WITHOUT_DATA = {
    "jvm_": "There is no Java virtual machine. See `process_resident_memory_bytes`, `process_cpu_seconds_total` and `python_gc_*`.",
    "container_": "Kubernetes' cAdvisor reports it about a pod.",
    "kubelet_": "Kubernetes' kubelet reports it about volumes.",
    "kafka_tier_": "Tiered storage of Confluent Server.",
    "kafka_log_log_tiersize": "Tiered storage of Confluent Server.",
    "kafka_server_replicamanager_straypartitionsmisclassifiedcount": "Specific to Confluent Server.",
    "kafka_server_transaction_coordinator_metrics_transaction_state_error_count": "Specific to Confluent Server.",
    "kafka_server_transaction_coordinator_metrics_prepare_commit_to_complete_commit_latency":
        "Specific to Confluent Server.",
    "kafka_schema_registry_": "Another product: Schema Registry.",
    "kafka_connect_": "Another product: Kafka Connect.",
    "ksql_": "Another product: ksqlDB.",
}
