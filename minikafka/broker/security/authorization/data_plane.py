"""Authorization of Fetch and of the fast paths of Produce and Fetch, where a decision per request would cost too much.

A fast path serves requests whose bytes it has seen before. With an authorizer it learns only authorized requests, and forgets them when an
ACL changes. Then the next request passes the guard of the ordinary handler, and is learned again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from minikafka.broker.front.fast_path import MakeFastPath, Refer
from minikafka.broker.partitions.fetch import TOPIC_ID_VERSION_MIN
from minikafka.broker.security.authorization.topics import topic_name
from minikafka.broker.security.authorization.transactions import split_produce
from minikafka.core.authorizer.acl import Operation, ResourceType
from minikafka.wire.errors import ApiError
from minikafka.wire.messages.fetch import FetchRequest
from minikafka.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from minikafka.broker.security.authorization.authority import Authority, AuthorizableContext
    from minikafka.net.network import Connection
    from minikafka.wire.message import Request

Permits = Callable[["Authority", "Requester", Any], bool]


class Requester:
    """The context of a connection's requests, as far as the authorizer needs it."""

    __slots__ = ("api_key", "api_version", "client_host", "principal")

    def __init__(self, connection: Connection) -> None:
        self.principal = connection.principal
        self.client_host = connection.peer_host
        self.api_key = -1
        self.api_version = -1


class GuardedFastPath:
    """The fast path of one API on one connection, with its guard."""

    __slots__ = ("_authority", "_fast_path", "_generation", "_permits", "_requester", "_serve", "complete", "puts_off")

    def __init__(self, authority: Authority, make: MakeFastPath, permits: Permits, refer: Refer) -> None:
        self._authority = authority
        self._fast_path = make(refer, permits=self._may_learn)
        self._serve = self._fast_path.serve
        #: See FastPath.
        self.complete, self.puts_off = self._fast_path.complete, self._fast_path.puts_off
        self._permits = permits
        self._requester: Requester | None = None
        self._generation = -1

    def serve(self, connection: Connection, frame: memoryview) -> bool:
        """See FastPath. Serves authorized requests only."""
        if self._generation != self._authority.acls.generation:
            self.forget()
            self._generation = self._authority.acls.generation
            # A connection that authenticates again keeps its principal.
            self._requester = Requester(connection)
        return self._serve(connection, frame)

    def forget(self) -> None:
        """See FastPath."""
        self._fast_path.forget()

    def _may_learn(self, version: int, request: Any) -> bool:
        requester = self._requester
        assert requester is not None
        requester.api_key, requester.api_version = request.API_KEY, version
        try:
            return self._permits(self._authority, requester, request)
        except ApiError:
            return False


def may_produce(authority: Authority, requester: Requester, request: ProduceRequest) -> bool:
    """Whether the principal may write to all topics of a Produce. The fast path itself rejects transactional batches without a
    transactional id."""
    name = request.transactional_id
    if name is not None and not authority.allows(requester, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name, log=False):
        return False
    return not split_produce(authority, requester, request, log=False)[1]


def may_fetch(authority: Authority, requester: Requester, request: FetchRequest) -> bool:
    """Whether the principal may read all topics of a consumer's Fetch."""
    image = authority.image
    names = {topic_name(image, topic.topic, topic.topic_id) for topic in request.topics}
    return all(name is not None and authority.allows(requester, Operation.READ, ResourceType.TOPIC, name, log=False) for name in names)


def guarding_fast_paths(authority: Authority | None) -> Callable[[type[Request], MakeFastPath], MakeFastPath]:
    """Makes the function by which a dispatcher guards its fast paths. Without an authority they have no guard."""
    permits: dict[int, Permits] = {ProduceRequest.API_KEY: may_produce, FetchRequest.API_KEY: may_fetch}

    def before(request: type[Request], make: MakeFastPath) -> MakeFastPath:
        return make if authority is None else partial(GuardedFastPath, authority, make, permits[request.API_KEY])

    return before


def judge_fetch(authority: Authority, context: AuthorizableContext, is_follower: bool) -> Callable[[str], bool] | None:
    """A test whether a topic is denied; None = none is. Called for every partition of the session, at each fetch.

    Followers need CLUSTER_ACTION (CVE-2018-1288), consumers READ on each topic.
    """
    if not is_follower:
        # A topic of an unknown id has no name; one that is asked for by the name "" is a matter of ACLs.
        by_id = context.api_version >= TOPIC_ID_VERSION_MIN
        return lambda topic: not (by_id and not topic) and not authority.allows(context, Operation.READ, ResourceType.TOPIC, topic)
    return None if authority.allows_on_cluster(context, Operation.CLUSTER_ACTION) else lambda topic: True


def judge_share_fetch(authority: Authority, context: AuthorizableContext) -> Callable[[str], bool]:
    """A test whether a topic is denied: needs READ."""
    return lambda topic: not authority.allows(context, Operation.READ, ResourceType.TOPIC, topic)
