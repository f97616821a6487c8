"""The properties with an effect, as typed attributes of BrokerConfig and Settings.

Generated from the property table by reference.attributes_module; a test compares them. Properties without an effect are left out, so that
no code reads them.
"""

from __future__ import annotations


class BrokerProperties:
    """None: the property is unset and has no default."""

    add_partitions_to_txn_retry_backoff_max_ms: int
    add_partitions_to_txn_retry_backoff_ms: int
    advertised_listeners: list[str] | None
    allow_everyone_if_no_acl_found: bool
    authorizer_class_name: str
    auto_create_topics_enable: bool
    auto_leader_rebalance_enable: bool
    broker_heartbeat_interval_ms: int
    broker_id: int
    broker_rack: str | None
    broker_session_timeout_ms: int
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    connection_failed_authentication_delay_ms: int
    connections_max_idle_ms: int
    connections_max_reauth_ms: int
    controlled_shutdown_enable: bool
    controller_listener_names: list[str] | None
    controller_quorum_auto_join_enable: bool
    controller_quorum_bootstrap_servers: list[str]
    controller_quorum_election_backoff_max_ms: int
    controller_quorum_election_timeout_ms: int
    controller_quorum_fetch_max_bytes: int
    controller_quorum_fetch_snapshot_max_bytes: int
    controller_quorum_fetch_timeout_ms: int
    controller_quorum_request_timeout_ms: int
    controller_quorum_retry_backoff_max_ms: int
    controller_quorum_retry_backoff_ms: int
    controller_quorum_voters: list[str]
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    cordoned_log_dirs: list[str]
    default_replication_factor: int
    delegation_token_expiry_check_interval_ms: int
    delegation_token_expiry_time_ms: int
    delegation_token_max_lifetime_ms: int
    delegation_token_secret_key: str | None
    delete_topic_enable: bool
    errors_deadletterqueue_auto_create_topics_enable: bool
    errors_deadletterqueue_topic_name_prefix: str
    fetch_max_bytes: int
    follower_replication_throttled_rate: int
    group_consumer_assignment_interval_ms: int
    group_consumer_assignors: list[str]
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_assignment_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_max_size: int
    group_consumer_migration_policy: str
    group_consumer_min_assignment_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_regex_refresh_interval_ms: int
    group_consumer_session_timeout_ms: int
    group_coordinator_rebalance_protocols: list[str]
    group_initial_rebalance_delay_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_min_session_timeout_ms: int
    group_share_assignment_interval_ms: int
    group_share_delivery_count_limit: int
    group_share_heartbeat_interval_ms: int
    group_share_initialize_retry_interval_ms: int
    group_share_max_assignment_interval_ms: int
    group_share_max_delivery_count_limit: int
    group_share_max_heartbeat_interval_ms: int
    group_share_max_partition_max_record_locks: int
    group_share_max_record_lock_duration_ms: int
    group_share_max_session_timeout_ms: int
    group_share_max_share_sessions: int
    group_share_max_size: int
    group_share_min_assignment_interval_ms: int
    group_share_min_delivery_count_limit: int
    group_share_min_heartbeat_interval_ms: int
    group_share_min_partition_max_record_locks: int
    group_share_min_record_lock_duration_ms: int
    group_share_min_session_timeout_ms: int
    group_share_partition_max_record_locks: int
    group_share_record_lock_duration_ms: int
    group_share_session_timeout_ms: int
    group_streams_acceptable_recovery_lag: int
    group_streams_assignment_interval_ms: int
    group_streams_assignors: list[str]
    group_streams_heartbeat_interval_ms: int
    group_streams_initial_rebalance_delay_ms: int
    group_streams_max_assignment_interval_ms: int
    group_streams_max_heartbeat_interval_ms: int
    group_streams_max_session_timeout_ms: int
    group_streams_max_size: int
    group_streams_max_standby_replicas: int
    group_streams_max_warmup_replicas: int
    group_streams_min_assignment_interval_ms: int
    group_streams_min_heartbeat_interval_ms: int
    group_streams_min_session_timeout_ms: int
    group_streams_min_task_offset_interval_ms: int
    group_streams_num_standby_replicas: int
    group_streams_rack_aware_assignment_tags: list[str]
    group_streams_session_timeout_ms: int
    group_streams_task_offset_interval_ms: int
    initial_broker_registration_timeout_ms: int
    inter_broker_listener_name: str | None
    leader_imbalance_check_interval_seconds: int
    leader_imbalance_per_broker_percentage: int
    leader_replication_throttled_rate: int
    listener_security_protocol_map: list[str]
    listeners: list[str]
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_delete_retention_ms: int
    log_cleaner_enable: bool
    log_cleaner_io_max_bytes_per_second: float
    log_cleaner_max_compaction_lag_ms: int
    log_cleaner_min_cleanable_ratio: float
    log_cleaner_min_compaction_lag_ms: int
    log_cleanup_policy: list[str]
    log_dir: list[str]
    log_dirs: list[str] | None
    log_flush_interval_messages: int
    log_flush_interval_ms: int | None
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_index_interval_bytes: int
    log_index_size_max_bytes: int
    log_message_timestamp_after_max_ms: int
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_type: str
    log_preallocate: bool
    log_retention_bytes: int
    log_retention_check_interval_ms: int
    log_retention_hours: int
    log_retention_minutes: int | None
    log_retention_ms: int | None
    log_roll_hours: int
    log_roll_jitter_hours: int
    log_roll_jitter_ms: int | None
    log_roll_ms: int | None
    log_segment_bytes: int
    log_segment_delete_delay_ms: int
    max_connection_creation_rate: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: dict[str, int]
    max_incremental_fetch_session_cache_slots: int
    message_max_bytes: int
    metadata_log_dir: str | None
    metadata_log_max_record_bytes_between_snapshots: int
    metadata_log_max_snapshot_interval_ms: int
    metadata_log_segment_bytes: int
    metadata_log_segment_ms: int
    metadata_max_retention_bytes: int
    metadata_max_retention_ms: int
    min_insync_replicas: int
    minikafka_audit_command_config: str | None
    minikafka_audit_interval_ms: int
    minikafka_audit_report_dir: str | None
    minikafka_handover_ms: int
    minikafka_heartbeat_reconnect_ms: int
    minikafka_http_host: str
    minikafka_http_names: list[str]
    minikafka_http_port: int
    minikafka_http_records: str
    minikafka_log_format: str
    minikafka_metrics_dialects: list[str]
    minikafka_tcp_congestion: str
    node_id: int | None
    num_partitions: int
    num_replica_fetchers: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_retention_check_interval_ms: int
    offsets_retention_minutes: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    process_roles: list[str]
    producer_id_expiration_ms: int
    queued_max_request_bytes: int
    quota_window_num: int
    quota_window_size_seconds: int
    replica_alter_log_dirs_io_max_bytes_per_second: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    replica_lag_time_max_ms: int
    replica_selector_class: str | None
    replica_socket_timeout_ms: int
    request_timeout_ms: int
    sasl_enabled_mechanisms: list[str]
    sasl_jaas_config: str | None
    sasl_mechanism_controller_protocol: str
    sasl_mechanism_inter_broker_protocol: str
    sasl_server_max_receive_size: int
    security_inter_broker_protocol: str
    share_coordinator_cold_partition_snapshot_interval_ms: int
    share_coordinator_load_buffer_size: int
    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_state_topic_min_isr: int
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_prune_interval_ms: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_write_timeout_ms: int
    socket_request_max_bytes: int
    ssl_client_auth: str
    ssl_enabled_protocols: list[str]
    ssl_endpoint_identification_algorithm: str
    ssl_key_password: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_keystore_key: str | None
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_type: str
    ssl_principal_mapping_rules: str
    ssl_truststore_certificates: str | None
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_type: str
    super_users: str
    telemetry_max_bytes: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_max_timeout_ms: int
    transaction_partition_verification_enable: bool
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_load_buffer_size: int
    transaction_state_log_min_isr: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_segment_bytes: int
    transactional_id_expiration_ms: int
    unclean_leader_election_enable: bool
    unclean_leader_election_interval_ms: int
