package kafkasuite;

import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import kafka.server.KafkaConfig;
import kafka.server.SharedServer;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.KRaftMetadataCache;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.MetaPropertiesEnsemble;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.server.common.KRaftVersion;

/** One broker, controller or both: a process, started from the configuration that a test made for kafka.server.SharedServer. */
final class Node {
    private static final Map<Object, Node> BY_SHARED = Collections.synchronizedMap(new IdentityHashMap<>());
    private static final Map<String, List<Node>> BY_CLUSTER = new ConcurrentHashMap<>();
    static final Map<Object, Node> BY_SOCKET_SERVER = Collections.synchronizedMap(new IdentityHashMap<>());
    private static final long START_MS = Long.getLong("kafkasuite.start.ms", 90000), STOP_S = 30, CONSISTENT_MS = 15000, PAUSE_MS = 30;
    private static int starts;

    final SharedServer shared;
    final KafkaConfig config;
    final Map<String, Integer> ports = new LinkedHashMap<>();
    final MetadataLog log;
    Object brokerSocketServer, controllerSocketServer;
    BootstrapMetadata bootstrap;
    private ProcessHandle process;
    private File output;
    private long epochBefore = -1;
    private volatile KRaftMetadataCache cache;

    static Node of(SharedServer shared) {
        synchronized (BY_SHARED) {
            Node node = BY_SHARED.get(shared);
            if (node == null) {
                node = new Node(shared);
                BY_SHARED.put(shared, node);
                BY_CLUSTER.computeIfAbsent(shared.clusterId(), id -> new CopyOnWriteArrayList<>()).add(node);
            }
            return node;
        }
    }

    static List<Node> all() {
        synchronized (BY_SHARED) {
            return new ArrayList<>(BY_SHARED.values());
        }
    }

    static void stopAll() {
        List<Node> nodes = all();
        BY_SHARED.clear();
        for (Node node : nodes) node.stop(true);
        BY_CLUSTER.clear();
        BY_SOCKET_SERVER.clear();
        Ports.CHOSEN.clear();
    }

    private Node(SharedServer shared) {
        this.shared = shared;
        KafkaConfig broker = null;
        try {
            broker = shared.brokerConfig();
        } catch (RuntimeException notABroker) {
            broker = null;
        }
        config = broker != null ? broker : shared.controllerConfig();
        log = new MetadataLog(new File(config.metadataLogDir(), "__cluster_metadata-0"));
    }

    int id() {
        return config.nodeId();
    }

    private String roles() {
        return String.valueOf(config.originals().get("process.roles"));
    }

    boolean isBroker() {
        return roles().contains("broker");
    }

    boolean isController() {
        return roles().contains("controller");
    }

    boolean alive() {
        return process != null && process.isAlive();
    }

    List<Node> cluster() {
        return BY_CLUSTER.getOrDefault(shared.clusterId(), List.of());
    }

    synchronized void start() {
        if (alive()) return;
        try {
            writeDirectoryIds();
            if (isController()) Bootstrap.write(config.metadataLogDir(), bootstrap);
            NodeProperties properties = new NodeProperties(this);
            BrokerRegistration before = controllerImage().cluster().broker(id());
            epochBefore = before == null ? -1 : before.epoch();
            Path stem = stem();
            Path file = Path.of(stem + ".properties");
            boolean asks = properties.askPrincipals(file);
            properties.write(file);
            output = new File(stem + ".log");
            process = Launcher.start(file, output, asks);
        } catch (Exception e) {
            throw new RuntimeException(e);
        }
    }

    /** A test hands a server the ids of its directories, which are not always those that the formatter has written. */
    private void writeDirectoryIds() throws IOException {
        for (Map.Entry<String, MetaProperties> entry : shared.metaPropsEnsemble().logDirProps().entrySet()) {
            File file = new File(entry.getKey(), MetaPropertiesEnsemble.META_PROPERTIES_NAME);
            if (!file.exists() || entry.getValue().directoryId().isEmpty()) continue;
            MetaProperties written = new MetaProperties.Builder(PropertiesUtils.readPropertiesFile(file.getAbsolutePath())).build();
            if (written.directoryId().equals(entry.getValue().directoryId())) continue;
            PropertiesUtils.writePropertiesFile(entry.getValue().toProperties(), file.getAbsolutePath(), false);
        }
    }

    private Path stem() throws IOException {
        int number;
        synchronized (Node.class) {
            number = ++starts;
        }
        Path directory = Files.createDirectories(Path.of(System.getProperty("kafkasuite.work"), "nodes"));
        String test = Recorder.current == null ? "none" : Recorder.current.replaceAll("[^A-Za-z0-9]+", "_");
        return directory.resolve(String.format("%05d-%.90s-%d", number, test, id()));
    }

    private RuntimeException failed(String what) {
        String said = "";
        try {
            String all = Files.readString(output.toPath());
            said = all.substring(Math.max(0, all.length() - 600)).replace('\n', ' ');
        } catch (IOException none) {
            said = "(no output)";
        }
        return new RuntimeException("NODE " + id() + " (" + roles() + ") " + what + ": " + said);
    }

    /** How many lines of its log have `text`. */
    long logged(String text) {
        try (java.util.stream.Stream<String> lines = Files.lines(output.toPath())) {
            return lines.filter(line -> line.contains(text)).count();
        } catch (IOException unreadable) {
            throw new java.io.UncheckedIOException(unreadable);
        }
    }

    void awaitPorts() {
        long end = System.currentTimeMillis() + START_MS;
        for (int port : ports.values()) while (!listens(port)) {
            if (!alive()) throw failed("ended");
            if (System.currentTimeMillis() > end) throw failed("does not listen");
            pause();
        }
    }

    private static boolean listens(int port) {
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress("127.0.0.1", port), 2000);
            return true;
        } catch (IOException notYet) {
            return false;
        }
    }

    void awaitUnfenced() {
        awaitPorts();
        long end = System.currentTimeMillis() + START_MS;
        for (;;) {
            BrokerRegistration found = controllerImage().cluster().broker(id());
            if (found != null && !found.fenced() && found.epoch() != epochBefore) return;
            if (!alive()) throw failed("ended");
            if (System.currentTimeMillis() > end) throw failed("is not unfenced (" + found + ")");
            pause();
        }
    }

    synchronized void stop(boolean kill) {
        if (process == null) return;
        if (!kill) process.destroy();
        if (kill || !ended()) process.destroyForcibly();
        ended();
        process = null;
    }

    private boolean ended() {
        try {
            process.onExit().get(STOP_S, TimeUnit.SECONDS);
            return true;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (ExecutionException | TimeoutException e) {
            System.err.println("node " + id() + " has not ended: " + e);
        }
        return false;
    }

    static void pause() {
        try {
            Thread.sleep(PAUSE_MS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new RuntimeException(e);
        }
    }

    /** The newest image that a controller has on its disk. */
    MetadataImage controllerImage() {
        MetadataImage newest = MetadataImage.EMPTY;
        for (Node node : cluster()) if (node.isController()) {
            MetadataImage image = node.log.image();
            if (image.offset() > newest.offset()) newest = image;
        }
        return newest;
    }

    MetadataImage brokerImage() {
        MetadataImage own = log.image();
        return own.offset() < 0 ? controllerImage() : own;
    }

    synchronized KRaftMetadataCache metadataCache() {
        if (cache == null) cache = new KRaftMetadataCache(id(), () -> KRaftVersion.KRAFT_VERSION_0);
        cache.setImage(brokerImage());
        return cache;
    }

    /** Caches that tests hold on to stay fresh by one thread, which begins before any test: the kits count threads, and pass this name over. */
    static void keepCachesFresh() {
        Thread thread = new Thread(() -> {
            for (;;) {
                pause();
                for (Node node : all()) {
                    KRaftMetadataCache cache = node.cache;
                    if (cache != null) cache.setImage(node.brokerImage());
                }
            }
        }, "Attach Listener kafkasuite");
        thread.setDaemon(true);
        thread.start();
    }

    /** Until every broker has what the controllers have now. */
    void awaitConsistent() {
        long wanted = controllerImage().offset(), end = System.currentTimeMillis() + CONSISTENT_MS;
        for (Node node : cluster()) if (node.isBroker() && !node.isController() && node.alive())
            while (node.log.image().offset() < wanted && System.currentTimeMillis() < end) pause();
    }

    int boundPort(ListenerName name) {
        for (Map.Entry<String, Integer> listener : ports.entrySet())
            if (ListenerName.normalised(listener.getKey()).equals(ListenerName.normalised(name.value()))) return listener.getValue();
        throw new IllegalStateException("no listener " + name + " in " + ports);
    }

    /** The port of a listener without TLS and SASL for clients, else of the controllers; none is -1. */
    int plaintextPort(boolean controller) {
        for (Map.Entry<String, Integer> listener : ports.entrySet())
            if (isPlaintext(listener.getKey()) && config.controllerListenerNames().contains(listener.getKey()) == controller) return listener.getValue();
        return -1;
    }

    int plaintextPortOfBrokers() {
        String name = config.interBrokerListenerName().value();
        return isPlaintext(name) ? ports.getOrDefault(name, -1) : -1;
    }

    private boolean isPlaintext(String listener) {
        return config.effectiveListenerSecurityProtocolMap().get(ListenerName.normalised(listener))
            == org.apache.kafka.common.security.auth.SecurityProtocol.PLAINTEXT;
    }
}
