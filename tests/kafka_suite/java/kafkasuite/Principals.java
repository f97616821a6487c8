package kafkasuite;

import java.io.IOException;
import java.net.InetAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.security.auth.KafkaPrincipalBuilder;
import org.apache.kafka.common.security.auth.PlaintextAuthenticationContext;

/**
 * Principals of connections without TLS and SASL, as a class of the test makes them. A node of minikafka loads no Java: it asks here, over
 * a socket, whose a new connection is.
 */
final class Principals {
    static final Path SOCKET = Path.of(System.getProperty("kafkasuite.work"), "principals");
    private static final int QUESTION_BYTES = 4096;
    /** By node and listener; the listener "" is that of all others. */
    private static final Map<List<String>, KafkaPrincipalBuilder> BUILDERS = new ConcurrentHashMap<>();

    /** Whether `name` is such a class. From now on it answers for this listener of `node`. */
    static boolean add(String node, String listener, String name, Map<String, Object> configs) {
        try {
            Object builder = Class.forName(name).getDeclaredConstructor().newInstance();
            if (!(builder instanceof KafkaPrincipalBuilder)) return false;
            if (builder instanceof Configurable) ((Configurable) builder).configure(configs);
            BUILDERS.put(List.of(node, listener.toUpperCase(Locale.ROOT)), (KafkaPrincipalBuilder) builder);
            return true;
        } catch (ReflectiveOperationException | LinkageError other) {
            return false;
        }
    }

    /** Answer in one thread, which begins before any test: the kits count threads, and pass this name over. */
    static void serve() throws IOException {
        Files.deleteIfExists(SOCKET);
        ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX).bind(UnixDomainSocketAddress.of(SOCKET));
        Thread thread = new Thread(() -> {
            for (;;) {
                try (SocketChannel channel = server.accept()) {
                    answer(channel);
                } catch (IOException gone) {
                    System.err.println("a node that asked for a principal is gone: " + gone);
                }
            }
        }, "Attach Listener kafkasuite principals");
        thread.setDaemon(true);
        thread.start();
    }

    /** One line "NODE TAB LISTENER TAB ADDRESS", answered with the principal, or with nothing if the builder fails. */
    private static void answer(SocketChannel channel) throws IOException {
        ByteBuffer question = ByteBuffer.allocate(QUESTION_BYTES);
        while (question.position() == 0 || question.get(question.position() - 1) != '\n') if (channel.read(question) < 0) return;
        String[] parts = new String(question.array(), 0, question.position() - 1, StandardCharsets.UTF_8).split("\t");
        KafkaPrincipalBuilder all = BUILDERS.get(List.of(parts[0], ""));
        KafkaPrincipalBuilder builder = BUILDERS.getOrDefault(List.of(parts[0], parts[1].toUpperCase(Locale.ROOT)), all);
        String principal = "";
        try {
            if (builder != null) principal = builder.build(new PlaintextAuthenticationContext(InetAddress.getByName(parts[2]), parts[1])).toString();
        } catch (RuntimeException refused) {
            System.err.println("no principal for " + String.join(" ", parts) + ": " + refused);
        }
        channel.write(ByteBuffer.wrap(principal.getBytes(StandardCharsets.UTF_8)));
    }

    private Principals() { }
}
