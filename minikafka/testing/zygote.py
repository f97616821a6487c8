"""The process from which nurseries are forked. It has imported everything and compiled the codecs that a start needs.

Run by `processes.RUN_ZYGOTE`, with a descriptor as its argument. A test process has only one, so that only its first cluster waits for
imports. The descriptor is a socket; every byte on it carries a connection (SCM_RIGHTS), for which the zygote forks a nursery. The zygote
exits when the socket closes, however the test process ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Iterator

import minikafka.broker.node
import minikafka.net.server
from minikafka.testing import nursery
from minikafka.wire import registry
from minikafka.wire.compiler import decoder_for, encoder_for
from minikafka.wire.message import Message
from minikafka.wire.records import client_records, metadata_records

#: API name -> versions that nodes and clients use until a topic has its first record; () is the latest version.
START_MESSAGES: dict[str, tuple[int, ...]] = {
    "ApiVersions": (3, 4, 5),
    "BeginQuorumEpoch": (),
    "BrokerHeartbeat": (),
    "BrokerRegistration": (),
    "ControllerRegistration": (),
    "CreateTopics": (),
    "Envelope": (),
    "Fetch": (),
    "FindCoordinator": (3,),
    "Metadata": (12, 13),
    "Produce": (10,),
    "UpdateRaftVoter": (),
    "Vote": (),
}
#: Record types that a start writes or reads -> version.
START_RECORDS: dict[type[Message], int] = {
    metadata_records.BeginTransactionRecord: 0,
    metadata_records.BrokerRegistrationChangeRecord: 0,
    metadata_records.ConfigRecord: 0,
    metadata_records.EndTransactionRecord: 0,
    metadata_records.FeatureLevelRecord: 0,
    metadata_records.PartitionRecord: 2,
    metadata_records.RegisterBrokerRecord: 4,
    metadata_records.RegisterControllerRecord: 0,
    metadata_records.TopicRecord: 0,
    client_records.LeaderChangeMessage: 0,
    client_records.SnapshotFooterRecord: 0,
    client_records.SnapshotHeaderRecord: 0,
}


def start_messages() -> Iterator[tuple[type[Message], int]]:
    """(message class, version) of every message and record of a start."""
    for api in registry.apis():
        if api.name in START_MESSAGES:
            for message in (api.request, api.response):
                for version in START_MESSAGES[api.name] or (message.MAX_VERSION,):
                    yield message, version
    yield from START_RECORDS.items()


def prepare() -> None:
    """Import and compile once what every node would otherwise import and compile itself."""
    assert minikafka.broker.node and minikafka.net.server
    for name in ("uvloop", "encodings.idna"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for message, version in start_messages():
        decoder_for(message, version)
        encoder_for(message, version)


def main() -> None:
    """Fork a nursery for every connection that arrives."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    # A signal to the test's process group must not end the brokers before the test does.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Let the kernel reap nurseries: nothing waits for them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    prepare()
    gc.collect()
    gc.freeze()
    gc.enable()
    while True:
        try:
            asked, descriptors, _, _ = socket.recv_fds(requests, 1, 1)
        except ConnectionResetError:
            return
        if not asked:
            return
        with socket.socket(fileno=descriptors[0]) as connection:
            try:
                pid = os.fork()
            except OSError:
                # The test process notices that its connection closes.
                traceback.print_exc()
                continue
            if pid == 0:
                requests.close()
                nursery.serve(connection)
