package kafkasuite;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;

/** The configuration that a test made, as a properties file with real ports. */
final class NodeProperties {
    private static final Pattern BUILDER = Pattern.compile("(?:listener\\.name\\.(.+)\\.)?principal\\.builder\\.class");
    private final Node node;
    private final Map<String, String> values = new TreeMap<>();

    NodeProperties(Node node) {
        this.node = node;
        node.config.originals().forEach((name, value) -> {
            if (value != null) values.put(name, text(value));
        });
        // Else a controller takes the default of log.dirs, which all nodes of this machine would share.
        if (!values.containsKey("log.dirs") && !values.containsKey("log.dir")) values.put("log.dirs", node.config.metadataLogDir());
        // A persister that forgets is a class inside of a broker. Here states are kept, in a topic that fits the test's cluster.
        if ("".equals(values.get("group.share.persister.class.name"))) {
            values.remove("group.share.persister.class.name");
            values.putIfAbsent("share.coordinator.state.topic.replication.factor", "1");
            values.putIfAbsent("share.coordinator.state.topic.min.isr", "1");
            values.putIfAbsent("share.coordinator.state.topic.num.partitions", "1");
        }
        listeners();
        advertised();
        if (!values.getOrDefault("controller.quorum.voters", "").isEmpty()) values.put("controller.quorum.voters", voters());
    }

    /** A test's class that makes principals stays in the test, where the node at `path` asks it. Whether there is one. */
    boolean askPrincipals(Path path) {
        boolean asks = false;
        for (String name : Launcher.isMinikafka() ? List.copyOf(values.keySet()) : List.<String>of()) {
            Matcher found = BUILDER.matcher(name);
            if (!found.matches() || !ofTests(values.get(name))) continue;
            String listener = found.group(1) == null ? "" : found.group(1);
            if (!Principals.add(path.toString(), listener, values.get(name), node.config.originals())) continue;
            values.remove(name);
            asks = true;
        }
        return asks;
    }

    void write(Path path) throws IOException {
        if (Launcher.isMinikafka()) values.computeIfPresent("authorizer.class.name", (name, value) -> authorizer(value));
        values.values().forEach(NodeProperties::noteClasses);
        StringBuilder lines = new StringBuilder();
        values.forEach((name, value) -> lines.append(name).append('=').append(value.replace("\\", "\\\\").replace("\n", "\\n")).append('\n'));
        Files.writeString(path, lines);
    }

    /** Classes of the tests' own jars would run inside of a broker. */
    private static void noteClasses(String value) {
        for (String name : value.split(",")) {
            if (name.matches("[a-z]+(\\.\\w+)*\\.[A-Z][\\w$]*") && ofTests(name)) Recorder.asked("the test's " + name);
        }
    }

    /** A test's authorizer that is Apache Kafka's own and only watched, is its own; one that decides by itself is a class inside of a broker. */
    private static String authorizer(String name) {
        if (!ofTests(name)) return name;
        try {
            Class<?> type = Class.forName(name, false, NodeProperties.class.getClassLoader()), base = type.getSuperclass();
            boolean decides = Arrays.stream(type.getDeclaredMethods()).anyMatch(method -> method.getName().equals("authorize"));
            return base == StandardAuthorizer.class && !decides ? base.getName() : name;
        } catch (ClassNotFoundException absent) {
            return name;
        }
    }

    private static boolean ofTests(String name) {
        try {
            Class<?> type = Class.forName(name, false, NodeProperties.class.getClassLoader());
            return type.getProtectionDomain().getCodeSource() != null && type.getProtectionDomain().getCodeSource().getLocation().getPath().endsWith("-test.jar");
        } catch (ClassNotFoundException | LinkageError absent) {
            return false;
        }
    }

    private static String text(Object value) {
        if (value instanceof Collection) return ((Collection<?>) value).stream().map(NodeProperties::text).collect(Collectors.joining(","));
        if (value instanceof Class) return ((Class<?>) value).getName();
        if (value instanceof Password) return ((Password) value).value();
        return String.valueOf(value);
    }

    /** NAME://HOST:PORT, taken apart. */
    private static String[] endpoint(String listener) {
        int slashes = listener.indexOf("://"), colon = listener.lastIndexOf(':');
        return new String[] {listener.substring(0, slashes), listener.substring(slashes + 3, colon), listener.substring(colon + 1)};
    }

    private void listeners() {
        List<String> out = new ArrayList<>();
        for (String listener : values.getOrDefault("listeners", "PLAINTEXT://localhost:0").split(",")) {
            String[] parts = endpoint(listener.trim());
            int port = Integer.parseInt(parts[2]);
            if (port == 0) port = port(parts[0]);
            node.ports.put(parts[0], port);
            out.add(parts[0] + "://" + (parts[1].isEmpty() ? "localhost" : parts[1]) + ":" + port);
        }
        values.put("listeners", String.join(",", out));
    }

    /** A node that starts again keeps its ports; the kit may have chosen one. */
    private int port(String listener) {
        if (node.ports.containsKey(listener)) return node.ports.get(listener);
        Integer chosen = Ports.CHOSEN.get(node.id() + "/" + listener);
        if (chosen == null) chosen = Ports.CHOSEN.get(node.id() + "/" + listener.toUpperCase(Locale.ROOT));
        return chosen != null ? chosen : Ports.free();
    }

    private void advertised() {
        String given = values.get("advertised.listeners");
        if (given == null) return;
        List<String> out = new ArrayList<>();
        for (String listener : given.split(",")) {
            String[] parts = endpoint(listener.trim());
            String port = parts[2].equals("0") && node.ports.containsKey(parts[0]) ? String.valueOf(node.ports.get(parts[0])) : parts[2];
            out.add(parts[0] + "://" + parts[1] + ":" + port);
        }
        values.put("advertised.listeners", String.join(",", out));
    }

    private String voters() {
        List<String> out = new ArrayList<>();
        for (String voter : values.get("controller.quorum.voters").split(",")) {
            if (voter.isBlank()) continue;
            int at = voter.indexOf('@'), colon = voter.lastIndexOf(':');
            String port = voter.substring(colon + 1);
            if (port.equals("0")) port = String.valueOf(firstPort(Integer.parseInt(voter.substring(0, at))));
            out.add(voter.substring(0, colon + 1) + port);
        }
        return String.join(",", out);
    }

    private int firstPort(int controller) {
        for (Node other : node.cluster()) if (other.id() == controller && other.isController()) return other.ports.values().iterator().next();
        return 0;
    }
}
