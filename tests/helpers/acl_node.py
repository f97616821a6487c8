"""A node with an authorizer, its users, and their channels; ACLs are set directly in its authorizer or written by the controller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from helpers.live_node import broker_port, live_node

from minikafka.broker.node import Node
from minikafka.core.authorizer.acl import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from minikafka.net.channel import Channel
from minikafka.net.server import SocketNetwork
from minikafka.security.client import ClientSecurity

USERS = ("admin", "alice", "bob")
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="admin" ' + " ".join(
    f'user_{name}="{name}"' for name in USERS
)
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
#: Clients log in with PLAIN; the controller's listener is plain.
PROPERTIES = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": f"{JAAS};",
    "authorizer.class.name": STANDARD,
    "super.users": "User:admin;User:ANONYMOUS",
}


@contextlib.asynccontextmanager
async def acl_node(directory: Path, **more: str) -> AsyncIterator[Node]:
    """Clients log in with PLAIN, the password is the name; `admin` and the controller's listener may do everything."""
    async with live_node(directory, PROPERTIES | {name.replace("_", "."): value for name, value in more.items()}) as node:
        yield node


def login_of(user: str) -> dict[str, str]:
    """A user's client properties."""
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="{user}" password="{user}";'
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}


async def channel_of(node: Node, user: str) -> Channel:
    """A connection on which `user` has logged in."""
    return await channel_to(broker_port(node), user)


async def channel_to(port: int, user: str) -> Channel:
    """The same, by port."""
    network = SocketNetwork(asyncio.get_running_loop())
    security = ClientSecurity.from_properties(login_of(user))
    return await Channel.open(network, "127.0.0.1", port, client_id="test", security=security)


def allow(
    kind: ResourceType, name: str, operation: Operation, user: str = "alice", permission: Permission = Permission.ALLOW, host: str = "*"
) -> Acl:
    """An ACL of a literal name."""
    return Acl(kind, name, PatternType.LITERAL, f"User:{user}", host, operation, permission)


def on_cluster(operation: Operation, user: str = "alice") -> Acl:
    """An ACL of the cluster."""
    return allow(ResourceType.CLUSTER, CLUSTER_NAME, operation, user)


def set_acls(node: Node, acls: Iterable[Acl]) -> None:
    """Set the ACLs, as if they came from the metadata log."""
    assert node.authority is not None
    node.authority.acls.replace({repr(acl).encode(): acl.to_record(repr(acl).encode()) for acl in acls})


def error_codes(value: Any) -> list[int]:
    """Every error code of a response, in order."""
    found: list[int] = []
    for declared in value.FIELDS:
        held = getattr(value, declared.name)
        if declared.name.endswith("error_code"):
            found.append(int(held))
        for item in held if isinstance(held, list) else [held]:
            if hasattr(item, "FIELDS"):
                found += error_codes(item)
    return found
