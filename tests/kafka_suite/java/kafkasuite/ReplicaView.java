package kafkasuite;

import java.io.File;
import java.io.IOException;
import java.util.Arrays;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.NotLeaderOrFollowerException;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsPartition;
import org.apache.kafka.common.message.ListOffsetsRequestData.ListOffsetsTopic;
import org.apache.kafka.common.message.ListOffsetsResponseData.ListOffsetsPartitionResponse;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.ListOffsetsRequest;
import org.apache.kafka.common.requests.ListOffsetsResponse;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.HostedPartition;
import org.apache.kafka.server.IntegrationTestUtils;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Replicas of a broker as tests look at them: objects of Kafka's classes without a state, that ask the broker or look at its directories. */
final class ReplicaView {
    private static final class Replica {
        final Node node;
        final TopicPartition partition;

        Replica(Node node, TopicPartition partition) {
            this.node = node;
            this.partition = partition;
        }
    }

    private static final Map<Object, Node> MANAGERS = Collections.synchronizedMap(new IdentityHashMap<>());
    private static final Map<Object, Replica> REPLICAS = Collections.synchronizedMap(new IdentityHashMap<>());
    /** The replica id of one who reads for diagnosis: followers answer too. */
    private static final int DEBUGGING = -2;

    static Object replicaManager(Node node) {
        return made(kafka.server.ReplicaManager.class, MANAGERS, node);
    }

    static Object logManager(Node node) {
        return made(kafka.log.LogManager.class, MANAGERS, node);
    }

    static <T> Object made(Class<?> type, Map<Object, T> of, T about) {
        Object object = Views.without(type);
        of.put(object, about);
        return object;
    }

    static Object replicaManager(Object self, String method, Object[] arguments) {
        Node node = MANAGERS.get(self);
        if (node == null || arguments.length != 1 && !method.equals("logManager")) throw Recorder.internals("ReplicaManager." + method);
        if (method.equals("logManager")) return logManager(node);
        if (!(arguments[0] instanceof TopicPartition)) throw Recorder.internals("ReplicaManager." + method);
        Replica replica = new Replica(node, (TopicPartition) arguments[0]);
        boolean here = hosts(replica);
        switch (method) {
            case "onlinePartition": return here ? Option.apply(made(kafka.cluster.Partition.class, REPLICAS, replica)) : Option.empty();
            case "getPartition": return here ? new HostedPartition.Online<>(made(kafka.cluster.Partition.class, REPLICAS, replica)) : new HostedPartition.None<>();
            case "getLog": case "localLog": return log(replica, here || hasLostDirectory(node));
            case "localLogOrException": case "getPartitionOrException":
                if (!here) throw new NotLeaderOrFollowerException(replica.partition + " is not on " + node.id());
                return made(method.startsWith("local") ? logClass() : kafka.cluster.Partition.class, REPLICAS, replica);
            default: throw Recorder.internals("ReplicaManager." + method);
        }
    }

    static Object logManager(Object self, String method, Object[] arguments) {
        Node node = MANAGERS.get(self);
        if (node != null && method.equals("liveLogDirs")) return CollectionConverters.asScala(directories(node));
        if (node == null || !method.equals("getLog") || Boolean.TRUE.equals(arguments[1])) throw Recorder.internals("LogManager." + method);
        Replica replica = new Replica(node, (TopicPartition) arguments[0]);
        return log(replica, directory(replica).isPresent());
    }

    static Object partition(Object self, String method) {
        Replica replica = REPLICAS.get(self);
        PartitionRegistration known = replica == null ? null : registration(replica);
        if (replica == null) throw Recorder.internals("Partition." + method);
        switch (method) {
            case "isLeader": return leads(replica);
            case "leaderLogIfLocal": return log(replica, leads(replica));
            case "log": return log(replica, true);
            case "localLogOrException": return made(logClass(), REPLICAS, replica);
            case "getLeaderEpoch": return known == null ? -1 : known.leaderEpoch;
            case "leaderReplicaIdOpt": return known == null || known.leader < 0 ? Option.empty() : Option.apply((Object) known.leader);
            case "topicPartition": return replica.partition;
            default: throw Recorder.internals("Partition." + method);
        }
    }

    static Object log(Object self, String method) {
        Replica replica = REPLICAS.get(self);
        if (replica == null) throw Recorder.internals("UnifiedLog." + method);
        switch (method) {
            case "logStartOffset": return offset(replica, ListOffsetsRequest.EARLIEST_TIMESTAMP, DEBUGGING, IsolationLevel.READ_UNCOMMITTED);
            case "logEndOffset": return offset(replica, ListOffsetsRequest.LATEST_TIMESTAMP, DEBUGGING, IsolationLevel.READ_UNCOMMITTED);
            case "highWatermark": return offset(replica, ListOffsetsRequest.LATEST_TIMESTAMP, -1, IsolationLevel.READ_UNCOMMITTED);
            case "lastStableOffset": return offset(replica, ListOffsetsRequest.LATEST_TIMESTAMP, -1, IsolationLevel.READ_COMMITTED);
            case "dir": return directory(replica).orElseThrow();
            case "topicPartition": return replica.partition;
            default: throw Recorder.internals("UnifiedLog." + method);
        }
    }

    private static Class<?> logClass() {
        return org.apache.kafka.storage.internals.log.UnifiedLog.class;
    }

    private static Option<?> log(Replica replica, boolean here) {
        return here ? Option.apply(made(logClass(), REPLICAS, replica)) : Option.empty();
    }

    private static PartitionRegistration registration(Replica replica) {
        return replica.node.brokerImage().topics().getPartition(topicId(replica), replica.partition.partition());
    }

    private static Uuid topicId(Replica replica) {
        return replica.node.brokerImage().topics().topicNameToIdView().getOrDefault(replica.partition.topic(), Uuid.ZERO_UUID);
    }

    private static boolean hosts(Replica replica) {
        PartitionRegistration known = registration(replica);
        return known != null && Arrays.stream(known.replicas).anyMatch(id -> id == replica.node.id()) && directory(replica).isPresent();
    }

    /** Whether a test has put something in place of a log directory: what the broker knew of its logs is then in its memory alone. */
    private static boolean hasLostDirectory(Node node) {
        return directories(node).stream().anyMatch(root -> !root.isDirectory());
    }

    /** Whether the broker itself knows: it answers as the leader. */
    private static boolean leads(Replica replica) {
        PartitionRegistration known = registration(replica);
        if (known == null || known.leader != replica.node.id()) return false;
        if (replica.node.plaintextPort(false) < 0) return true;
        return ask(replica, ListOffsetsRequest.EARLIEST_TIMESTAMP, -1, IsolationLevel.READ_UNCOMMITTED).errorCode() == Errors.NONE.code();
    }

    private static Optional<File> directory(Replica replica) {
        return directories(replica.node).stream().map(root -> new File(root, replica.partition.toString())).filter(File::isDirectory).findFirst();
    }

    private static List<File> directories(Node node) {
        return node.config.logDirs().stream().map(root -> new File(root).getAbsoluteFile()).toList();
    }

    private static long offset(Replica replica, long timestamp, int replicaId, IsolationLevel isolation) {
        ListOffsetsPartitionResponse answer = ask(replica, timestamp, replicaId, isolation);
        if (replicaId == -1 && answer.errorCode() == Errors.NOT_LEADER_OR_FOLLOWER.code()) throw Recorder.internals("watermarks of a follower");
        Errors.forCode(answer.errorCode()).maybeThrow();
        return answer.offset();
    }

    private static ListOffsetsPartitionResponse ask(Replica replica, long timestamp, int replicaId, IsolationLevel isolation) {
        int port = replica.node.plaintextPort(false);
        if (port < 0) throw Recorder.internals("offsets of a replica (no PLAINTEXT listener)");
        List<ListOffsetsTopic> topics = List.of(new ListOffsetsTopic().setName(replica.partition.topic()).setPartitions(
            List.of(new ListOffsetsPartition().setPartitionIndex(replica.partition.partition()).setTimestamp(timestamp))));
        ListOffsetsRequest request = (replicaId == -1 ? ListOffsetsRequest.Builder.forConsumer(false, isolation)
            : ListOffsetsRequest.Builder.forReplica((short) 7, replicaId)).setTargetTimes(topics).build((short) 7);
        try {
            ListOffsetsResponse response = IntegrationTestUtils.connectAndReceive(request, port);
            return response.topics().get(0).partitions().get(0);
        } catch (IOException e) {
            throw new RuntimeException(e);
        }
    }

    private ReplicaView() { }
}
