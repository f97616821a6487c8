package kafkasuite;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreateAclsResult;
import org.apache.kafka.clients.admin.DeleteAclsResult;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.security.scram.internals.ScramMechanism;
import org.apache.kafka.common.security.token.delegation.internals.DelegationTokenCache;
import org.apache.kafka.controller.Controller;
import org.apache.kafka.controller.ResultOrError;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.security.CredentialProvider;
import org.apache.kafka.security.DelegationTokenManager;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.config.DelegationTokenManagerConfigs;
import org.apache.kafka.server.metrics.KafkaMetricsGroup;

/** Parts of a server that can be known from outside, as objects of Kafka's interfaces. */
final class Views {
    private interface Answer {
        Object to(String method, Object[] arguments) throws Exception;
    }

    private static final Map<Object, Node> APIS = Collections.synchronizedMap(new IdentityHashMap<>());

    /** An object without a state, on which no constructor ran. */
    static Object without(Class<?> type) {
        try {
            Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
            field.setAccessible(true);
            return ((sun.misc.Unsafe) field.get(null)).allocateInstance(type);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static Object socketServer(Node node) {
        return ReplicaView.made(kafka.network.SocketServer.class, Node.BY_SOCKET_SERVER, node);
    }

    /** Tests ask the handler of requests for its metadata cache and the ids of broker and cluster, and for nothing else. */
    static Object apis(Node node) {
        return ReplicaView.made(kafka.server.KafkaApis.class, APIS, node);
    }

    static Node nodeOfApis(Object apis) {
        Node node = APIS.get(apis);
        if (node == null) throw Recorder.internals("KafkaApis");
        return node;
    }

    private static <T> T proxy(Class<T> type, Answer answer) {
        InvocationHandler handler = (self, method, arguments) -> {
            switch (method.getName()) {
                case "hashCode": return System.identityHashCode(self);
                case "equals": return self == arguments[0];
                case "toString": return type.getSimpleName();
                default: return answer.to(method.getName(), arguments);
            }
        };
        return type.cast(Proxy.newProxyInstance(Views.class.getClassLoader(), new Class<?>[] {type}, handler));
    }

    static GroupCoordinator groupCoordinator(Node node) {
        return proxy(GroupCoordinator.class, (method, arguments) -> {
            switch (method) {
                case "groupMetadataTopicConfigs": case "shareGroupStateTopicConfigs":
                    Properties properties = new Properties();
                    properties.put("cleanup.policy", "compact");
                    properties.put("compression.type", "producer");
                    properties.put("segment.bytes", String.valueOf(node.config.originals().getOrDefault("offsets.topic.segment.bytes", "104857600")));
                    return properties;
                case "partitionFor":
                    if (!(arguments[0] instanceof String)) throw Recorder.internals("GroupCoordinator.partitionFor");
                    int partitions = Integer.parseInt(String.valueOf(node.config.originals().getOrDefault("offsets.topic.num.partitions", "50")));
                    return (arguments[0].hashCode() & Integer.MAX_VALUE) % partitions;
                default: throw Recorder.internals("GroupCoordinator." + method);
            }
        });
    }

    static Controller controller(Node node) {
        return proxy(Controller.class, (method, arguments) -> {
            boolean active = node.alive() && node.log.leader() == node.id();
            switch (method) {
                case "isActive": return active;
                case "curClaimEpoch": return active ? node.log.leaderEpoch() : -1;
                case "waitForReadyBrokers": Bodies.ready(); return CompletableFuture.completedFuture(null);
                case "findAllTopicIds": return CompletableFuture.completedFuture(new HashMap<>(node.controllerImage().topics().topicNameToIdView()));
                case "findTopicIds": return CompletableFuture.completedFuture(topicIds(node, (Collection<?>) arguments[1]));
                default: throw Recorder.internals("Controller." + method);
            }
        });
    }

    private static Map<String, ResultOrError<Uuid>> topicIds(Node node, Collection<?> topics) {
        Map<String, Uuid> known = node.controllerImage().topics().topicNameToIdView();
        Map<String, ResultOrError<Uuid>> found = new HashMap<>();
        for (Object topic : topics)
            found.put((String) topic, known.containsKey(topic) ? new ResultOrError<>(known.get(topic)) : new ResultOrError<>(Errors.UNKNOWN_TOPIC_OR_PARTITION, null));
        return found;
    }

    static Object credentials(Node node) {
        CredentialProvider provider = new CredentialProvider(ScramMechanism.mechanismNames(), null);
        node.brokerImage().scram().mechanisms().forEach(
            (mechanism, users) -> users.forEach((user, data) -> provider.updateCredential(mechanism, user, data.toCredential())));
        return provider;
    }

    static Object tokens(Node node) {
        DelegationTokenCache cache = new DelegationTokenCache(ScramMechanism.mechanismNames());
        DelegationTokenManager manager = new DelegationTokenManager(new DelegationTokenManagerConfigs(node.config), cache);
        if (manager.isEnabled()) node.brokerImage().delegationTokens().tokens().values().forEach(token -> {
            try {
                manager.updateToken(manager.getDelegationToken(token.tokenInformation()));
            } catch (java.security.NoSuchAlgorithmException e) {
                throw new IllegalStateException(e);
            }
        });
        return cache;
    }

    static scala.Option<Plugin<Authorizer>> authorizer(Node node) {
        Object name = node.config.originals().get("authorizer.class.name");
        if (name == null || name.toString().isEmpty()) return scala.Option.empty();
        Authorizer authorizer = proxy(Authorizer.class, (method, arguments) -> {
            switch (method) {
                case "acls": return acls(node, (AclBindingFilter) arguments[0]);
                case "createAcls": return create((List<?>) arguments[1], node);
                case "deleteAcls": return delete((List<?>) arguments[1], node);
                default: throw Recorder.internals("Authorizer." + method);
            }
        });
        return scala.Option.apply(Plugin.wrapInstance(authorizer, new Metrics(), "authorizer.class.name"));
    }

    /** What the broker answers, if it may be asked: its log on disk has records before it has applied them. */
    private static List<AclBinding> acls(Node node, AclBindingFilter filter) throws Exception {
        int port = node.isBroker() ? node.plaintextPortOfBrokers() : -1;
        if (port > 0 && Launcher.isMinikafka()) {
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", "localhost:" + port))) {
                return List.copyOf(admin.describeAcls(filter).values().get());
            } catch (ExecutionException denied) {
                // The log tells.
            }
        }
        Collection<StandardAcl> all = (node.isBroker() ? node.brokerImage() : node.controllerImage()).acls().acls().values();
        return all.stream().map(StandardAcl::toBinding).filter(filter::matches).collect(Collectors.toList());
    }

    private static List<CompletionStage<AclCreateResult>> create(List<?> bindings, Node node) throws Exception {
        List<AclBinding> wanted = bindings.stream().map(AclBinding.class::cast).collect(Collectors.toList());
        List<CompletionStage<AclCreateResult>> done = new ArrayList<>();
        try (Admin admin = admin(node)) {
            CreateAclsResult result = admin.createAcls(wanted);
            for (AclBinding binding : wanted) {
                result.values().get(binding).get();
                done.add(CompletableFuture.completedFuture(AclCreateResult.SUCCESS));
            }
        }
        return done;
    }

    private static List<CompletionStage<AclDeleteResult>> delete(List<?> filters, Node node) throws Exception {
        List<AclBindingFilter> wanted = filters.stream().map(AclBindingFilter.class::cast).collect(Collectors.toList());
        List<CompletionStage<AclDeleteResult>> done = new ArrayList<>();
        try (Admin admin = admin(node)) {
            DeleteAclsResult result = admin.deleteAcls(wanted);
            for (AclBindingFilter filter : wanted) {
                List<AclDeleteResult.AclBindingDeleteResult> gone = result.values().get(filter).get().values().stream()
                    .map(each -> new AclDeleteResult.AclBindingDeleteResult(each.binding())).collect(Collectors.toList());
                done.add(CompletableFuture.completedFuture(new AclDeleteResult(gone)));
            }
        }
        return done;
    }

    /** Controllers first: brokers connect to them, so that who does is a super user in every test. */
    private static Admin admin(Node node) {
        for (boolean controller : new boolean[] {true, false})
            for (Node other : node.cluster())
                if (other.alive() && other.plaintextPort(controller) > 0)
                    return Admin.create(Map.of(controller ? "bootstrap.controllers" : "bootstrap.servers", "localhost:" + other.plaintextPort(controller)));
        throw Recorder.internals("an authorizer to write to (no PLAINTEXT listener)");
    }

    /** The gauge that a SocketServer registers, filled with what the node's log tells of such connections. */
    static void expiredConnections(Node node) {
        if (!Launcher.isMinikafka()) return;
        new KafkaMetricsGroup("kafka.network", "SocketServer").newGauge("ExpiredConnectionsKilledCount", () -> (double) node.logged("its authentication has expired"));
    }

    private Views() { }
}
