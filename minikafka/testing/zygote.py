"""What nurseries are forked from, with everything imported and the codecs of a start compiled: `python -m minikafka.testing.zygote FD`.

There is one for a test process, so that only its first cluster waits for imports. FD is a socket; every byte on it comes with a connection
(SCM_RIGHTS) that a new nursery serves. When the socket ends, however the test process ended, so does the zygote.
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

#: What nodes, and whoever waits for them, say until a topic has its first record: versions by API; () is the latest.
SPOKEN: dict[str, tuple[int, ...]] = {
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
WRITTEN: dict[type[Message], int] = {
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


def spoken() -> Iterator[tuple[type[Message], int]]:
    """Messages and versions of every start."""
    for api in registry.apis():
        if api.name in SPOKEN:
            for message in (api.request, api.response):
                for version in SPOKEN[api.name] or (message.MAX_VERSION,):
                    yield message, version
    yield from WRITTEN.items()


def prepare() -> None:
    """Import and compile what every node would, each for itself."""
    assert minikafka.broker.node and minikafka.net.server
    for name in ("uvloop", "encodings.idna"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for message, version in spoken():
        decoder_for(message, version)
        encoder_for(message, version)


def main() -> None:
    """The process."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    # A signal to the test's process group must not take the brokers away before the test has seen the end of them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Nurseries leave nothing to be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    prepare()
    gc.collect()
    gc.freeze()
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
                # The test process sees the end of its connection.
                traceback.print_exc()
                continue
            if pid == 0:
                requests.close()
                nursery.serve(connection)


if __name__ == "__main__":
    main()
