package kafkasuite;

import static net.bytebuddy.matcher.ElementMatchers.*;

import java.lang.instrument.Instrumentation;
import net.bytebuddy.agent.builder.AgentBuilder;
import net.bytebuddy.asm.Advice;
import net.bytebuddy.description.method.MethodDescription;
import net.bytebuddy.implementation.MethodCall;
import net.bytebuddy.implementation.MethodDelegation;
import net.bytebuddy.matcher.ElementMatcher;

/**
 * Gives Kafka's server classes other bodies while they are loaded: BrokerServer and ControllerServer start processes, and what they
 * would hold in memory is not there. The test kits (KafkaClusterTestKit, QuorumTestHarness) and the tests stay as they are.
 */
public final class Agent {
    private static final String LOGGING = "(logger|logIdent.*|msgWithLogIdent|loggerName|trace|debug|info|warn|error|fatal|is(Debug|Trace)Enabled)";
    private static final String KEPT = "(sharedServer|config|time|clusterId|lock|awaitShutdownCond|status|kafkaYammerMetrics|metadataPublishers";
    private static final String KEPT_BROKER = KEPT + "|brokerFeatures|NumFetchSessionCacheShards)";
    private static final String KEPT_CONTROLLER =
        KEPT + "|configSchema|bootstrapMetadata|socketServerFirstBoundPortFuture|logContext|createTopicPolicy|alterConfigPolicy)";

    private AgentBuilder builder = new AgentBuilder.Default().with(AgentBuilder.TypeStrategy.Default.REDEFINE);

    public static void premain(String arguments, Instrumentation instrumentation) {
        Agent agent = new Agent();
        agent.servers();
        agent.insides();
        agent.kits();
        agent.builder
            .type(named("org.apache.kafka.server.common.MetadataVersion"))
            .transform((x, type, c, m, d) -> x.method(named("latestTesting")).intercept(MethodCall.invoke(named("latestProduction"))))
            .type(named("org.apache.kafka.server.metrics.KafkaYammerMetrics"))
            .transform((x, type, c, m, d) -> x.visit(Advice.to(AskedForMetrics.class).on(named("defaultRegistry"))))
            .installOn(instrumentation);
    }

    private void servers() {
        replace("kafka.server.BrokerServer",
            members().and(not(nameMatches(KEPT_BROKER))).and(not(nameMatches(".*_\\$eq"))).and(not(named("shutdown").and(takesArguments(0)))), "broker");
        replace("kafka.server.ControllerServer", members().and(not(nameMatches(KEPT_CONTROLLER))), "controller");
        replace("kafka.server.SharedServer", namedOneOf(
            "startForBroker", "stopForBroker", "startForController", "stopForController", "ensureNotRaftLeader", "loader", "raftManager"), "shared");
        replace("kafka.network.SocketServer", members(), "sockets");
    }

    /** What a broker holds: only objects that ReplicaView made answer, from what the broker tells by its protocol. */
    private void insides() {
        replace("kafka.server.KafkaApis", members(), "apis");
        replace("kafka.server.ReplicaManager", members(), "replicaManager");
        replace("kafka.log.LogManager", members(), "logManager");
        replace("kafka.cluster.Partition", members(), "partition");
        replace("org.apache.kafka.storage.internals.log.UnifiedLog", members(), "log");
    }

    /** The kits' own waits look into brokers; these ask from outside. */
    private void kits() {
        replace("org.apache.kafka.common.test.PreboundSocketFactoryManager", named("getOrCreatePortForListener"), "prebound");
        replace("org.apache.kafka.common.test.ClusterInstance", named("ensureConsistentMetadata"), "consistent");
        replace("org.apache.kafka.common.test.KafkaClusterTestKit", named("waitForReadyBrokers"), "ready");
        replace("kafka.utils.TestUtils$", named("ensureConsistentKRaftMetadata"), "consistent");
    }

    /** Put before the method's own body. */
    public static final class AskedForMetrics {
        @Advice.OnMethodEnter
        static void asked() {
            Recorder.metrics();
        }

        private AskedForMetrics() { }
    }

    private static ElementMatcher.Junction<MethodDescription> members() {
        return isPublic().and(not(isStatic())).and(not(nameMatches(LOGGING))).and(not(nameMatches(".*\\$.*")));
    }

    private void replace(String type, ElementMatcher<? super MethodDescription> which, String with) {
        builder = builder.type(named(type)).transform((x, t, c, m, d) ->
            x.method(isDeclaredBy(t).and(not(isAbstract())).and(not(isBridge())).and(which))
                .intercept(MethodDelegation.withDefaultConfiguration().filter(named(with)).to(Bodies.class)));
    }
}
