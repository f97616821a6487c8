"""Authorization of Fetch and of the fast paths of Produce and Fetch, where a question for each request would cost too much.

A fast path serves requests whose bytes it has seen before. With an authorizer it learns only from requests that their principal may make,
and forgets what it has learned when an ACL changes: the next request passes the guard of the ordinary handler, and is learned again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from minikafka.broker.front.fast_path import MakeFastPath
from minikafka.broker.security.authorization.topics import topic_name
from minikafka.broker.security.authorization.transactions import split_produce
from minikafka.core.authorizer.acl import Operation, ResourceType
from minikafka.wire.errors import ApiError
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from minikafka.broker.security.authorization.authority import Authority
    from minikafka.net.network import Connection
    from minikafka.wire.message import Request

Permits = Callable[["Authority", "Asker", Any], bool]


class Asker:
    """Who sends the requests of one connection, and which one is looked at."""

    __slots__ = ("api_key", "api_version", "client_host", "principal")

    def __init__(self, connection: Connection) -> None:
        self.principal = connection.principal
        self.client_host = connection.peer_host
        self.api_key = -1
        self.api_version = -1


class GuardedFastPath:
    """The fast path of one API on one connection, behind its guard."""

    __slots__ = ("_asker", "_authority", "_fast_path", "_generation", "_permits", "_serve")

    def __init__(self, authority: Authority, make: MakeFastPath, permits: Permits) -> None:
        self._authority = authority
        self._fast_path = make(permits=self._may_learn)
        self._serve = self._fast_path.serve
        self._permits = permits
        self._asker: Asker | None = None
        self._generation = -1

    def serve(self, connection: Connection, frame: memoryview) -> bool:
        """As the fast path's, for what is permitted."""
        if self._generation != self._authority.acls.generation:
            self.forget()
            self._generation = self._authority.acls.generation
            # A connection that logs in again does so as the same user.
            self._asker = Asker(connection)
        return self._serve(connection, frame)

    def forget(self) -> None:
        """See FastPath."""
        self._fast_path.forget()

    def _may_learn(self, version: int, request: Any) -> bool:
        asker = self._asker
        assert asker is not None
        asker.api_key, asker.api_version = request.API_KEY, version
        try:
            return self._permits(self._authority, asker, request)
        except ApiError:
            return False


def may_produce(authority: Authority, asker: Asker, request: ProduceRequest) -> bool:
    """Whether all of a Produce may be written. The fast path itself lets no transactional batch through that names no transactional id."""
    name = request.transactional_id
    if name is not None and not authority.allows(asker, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name, log=False):
        return False
    return not split_produce(authority, asker, request, log=False)[1]


def may_fetch(authority: Authority, asker: Asker, request: FetchRequest) -> bool:
    """Whether all of a consumer's Fetch may be read."""
    image = authority.image
    names = {topic_name(image, topic.topic, topic.topic_id) for topic in request.topics}
    return all(name is not None and authority.allows(asker, Operation.READ, ResourceType.TOPIC, name, log=False) for name in names)


def guarding_fast_paths(authority: Authority | None) -> Callable[[type[Request], MakeFastPath], MakeFastPath]:
    """What a dispatcher puts before the fast paths that are registered with it; without an authority nothing."""
    permits: dict[int, Permits] = {ProduceRequest.API_KEY: may_produce, FetchRequest.API_KEY: may_fetch}

    def before(request: type[Request], make: MakeFastPath) -> MakeFastPath:
        return make if authority is None else partial(GuardedFastPath, authority, make, permits[request.API_KEY])

    return before


def judge_fetch(authority: Authority, context: Any, is_follower: bool) -> Callable[[str], bool] | None:
    """CLUSTER_ACTION for followers (CVE-2018-1288), READ of each topic for consumers: of every partition of the session, at each fetch."""
    if not is_follower:
        # A topic without a name is one that does not exist.
        return lambda topic: bool(topic) and not authority.allows(context, Operation.READ, ResourceType.TOPIC, topic)
    return None if authority.may_on_cluster(context, Operation.CLUSTER_ACTION) else lambda topic: True


def judge_share_fetch(authority: Authority, context: Any) -> Callable[[str], bool]:
    """READ of each topic."""
    return lambda topic: not authority.allows(context, Operation.READ, ResourceType.TOPIC, topic)
