package kafkasuite;

import java.lang.reflect.Method;
import java.util.List;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import net.bytebuddy.implementation.bind.annotation.AllArguments;
import net.bytebuddy.implementation.bind.annotation.Origin;
import net.bytebuddy.implementation.bind.annotation.RuntimeType;
import net.bytebuddy.implementation.bind.annotation.This;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.coordinator.group.Group;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.server.common.GroupVersion;
import scala.jdk.javaapi.CollectionConverters;

/** What the replaced methods of Kafka's classes do: see Agent. */
public final class Bodies {
    @RuntimeType
    public static Object broker(@This Object self, @Origin Method method, @AllArguments Object[] arguments) {
        Node node = Node.of(((BrokerServer) self).sharedServer());
        switch (method.getName()) {
            case "startup": node.start(); node.awaitUnfenced(); Views.expiredConnections(node); return null;
            case "shutdown": node.stop(false); return null;
            case "awaitShutdown": return null;
            case "isShutdown": return !node.alive();
            case "brokerState": return node.alive() ? BrokerState.RUNNING : BrokerState.NOT_RUNNING;
            case "boundPort": return node.boundPort((ListenerName) arguments[0]);
            case "metrics": Recorder.metrics(); return node.shared.metrics();
            case "metadataCache": return node.metadataCache();
            case "authorizerPlugin": return Views.authorizer(node);
            case "credentialProvider": return Views.credentials(node);
            case "tokenCache": return Views.tokens(node);
            case "groupCoordinator": return Views.groupCoordinator(node);
            case "dataPlaneRequestProcessor": return Views.apis(node);
            case "replicaManager": return ReplicaView.replicaManager(node);
            case "logManager": return ReplicaView.logManager(node);
            case "socketServer":
                if (node.brokerSocketServer == null) node.brokerSocketServer = Views.socketServer(node);
                return node.brokerSocketServer;
            default: throw Recorder.internals("BrokerServer." + method.getName());
        }
    }

    @RuntimeType
    public static Object controller(@This Object self, @Origin Method method, @AllArguments Object[] arguments) {
        ControllerServer server = (ControllerServer) self;
        Node node = Node.of(server.sharedServer());
        switch (method.getName()) {
            case "startup":
                node.bootstrap = server.bootstrapMetadata();
                node.start();
                if (!node.isBroker()) node.awaitPorts();
                List<String> names = node.config.controllerListenerNames();
                server.socketServerFirstBoundPortFuture().complete(node.boundPort(new ListenerName(names.get(0))));
                return null;
            case "shutdown": node.stop(false); return null;
            case "awaitShutdown": return null;
            case "metrics": Recorder.metrics(); return node.shared.metrics();
            case "controller": return Views.controller(node);
            case "authorizerPlugin": return Views.authorizer(node);
            case "credentialProvider": return Views.credentials(node);
            case "socketServer":
                if (node.controllerSocketServer == null) node.controllerSocketServer = Views.socketServer(node);
                return node.controllerSocketServer;
            default: throw Recorder.internals("ControllerServer." + method.getName());
        }
    }

    @RuntimeType
    public static Object shared(@Origin Method method) {
        if (method.getName().equals("loader") || method.getName().equals("raftManager")) throw Recorder.internals("SharedServer." + method.getName());
        return null;
    }

    @RuntimeType
    public static Object sockets(@This Object self, @Origin Method method, @AllArguments Object[] arguments) {
        Node node = Node.BY_SOCKET_SERVER.get(self);
        if (node != null && method.getName().equals("boundPort")) return node.boundPort((ListenerName) arguments[0]);
        if (node != null && method.getName().equals("config")) return node.config;
        throw Recorder.internals("SocketServer." + method.getName());
    }

    @RuntimeType
    public static Object apis(@This Object self, @Origin Method method) {
        Node node = Views.nodeOfApis(self);
        switch (method.getName()) {
            case "clusterId": return node.shared.clusterId();
            case "brokerId": return node.id();
            case "metadataCache": return node.metadataCache();
            case "authorizerPlugin": return Views.authorizer(node);
            case "isConsumerGroupProtocolEnabled":
                boolean allowed = CollectionConverters.asJava(node.config.groupCoordinatorRebalanceProtocols()).contains(Group.GroupType.CONSUMER);
                return allowed && node.brokerImage().features().finalizedVersions().getOrDefault(GroupVersion.FEATURE_NAME, (short) 0) > 0;
            default: throw Recorder.internals("KafkaApis." + method.getName());
        }
    }

    @RuntimeType
    public static Object replicaManager(@This Object self, @Origin Method method, @AllArguments Object[] arguments) {
        return ReplicaView.replicaManager(self, method.getName(), arguments);
    }

    @RuntimeType
    public static Object logManager(@This Object self, @Origin Method method, @AllArguments Object[] arguments) {
        return ReplicaView.logManager(self, method.getName(), arguments);
    }

    @RuntimeType
    public static Object partition(@This Object self, @Origin Method method) {
        return ReplicaView.partition(self, method.getName());
    }

    @RuntimeType
    public static Object log(@This Object self, @Origin Method method) {
        return ReplicaView.log(self, method.getName());
    }

    @RuntimeType
    public static Object prebound(@AllArguments Object[] arguments) {
        return Ports.CHOSEN.computeIfAbsent(arguments[0] + "/" + arguments[1], listener -> Ports.free());
    }

    @RuntimeType
    public static Object consistent() {
        for (Node node : Node.all()) if (node.isController() && node.alive()) node.awaitConsistent();
        return null;
    }

    @RuntimeType
    public static Object ready() {
        for (Node node : Node.all()) if (node.isBroker() && node.alive()) node.awaitUnfenced();
        return consistent();
    }

    private Bodies() { }
}
