package kafkasuite;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSession;
import javax.security.sasl.SaslServer;
import org.apache.kafka.common.Configurable;
import org.apache.kafka.common.security.auth.AuthenticationContext;
import org.apache.kafka.common.security.auth.KafkaPrincipalBuilder;
import org.apache.kafka.common.security.auth.PlaintextAuthenticationContext;
import org.apache.kafka.common.security.auth.SaslAuthenticationContext;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.auth.SslAuthenticationContext;

/**
 * Principals of connections, as a class of the test makes them. A node of minikafka loads no Java: it asks here, over
 * a socket, whose a new connection is.
 */
final class Principals {
    static final Path SOCKET = Path.of(Launcher.SOCKET).resolveSibling("principals");
    private static final int QUESTION_BYTES = 16384;
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

    /** One line "NODE TAB LISTENER TAB ADDRESS TAB CERTIFICATE TAB USER", answered with the principal, or with nothing if the builder fails. */
    private static void answer(SocketChannel channel) throws IOException {
        ByteBuffer question = ByteBuffer.allocate(QUESTION_BYTES);
        while (question.position() == 0 || question.get(question.position() - 1) != '\n') if (channel.read(question) < 0) return;
        String[] parts = new String(question.array(), 0, question.position() - 1, StandardCharsets.UTF_8).split("\t", -1);
        KafkaPrincipalBuilder all = BUILDERS.get(List.of(parts[0], ""));
        KafkaPrincipalBuilder builder = BUILDERS.getOrDefault(List.of(parts[0], parts[1].toUpperCase(Locale.ROOT)), all);
        String principal = "";
        try {
            if (builder != null) principal = builder.build(context(parts[1], parts[2], parts[3], parts[4])).toString();
        } catch (RuntimeException | CertificateException refused) {
            System.err.println("no principal for " + String.join(" ", parts) + ": " + refused);
        }
        channel.write(ByteBuffer.wrap(principal.getBytes(StandardCharsets.UTF_8)));
    }

    /** What a builder of principals is given. `certificate` is empty without TLS, "none" for a client that showed none; `user` is that of SASL. */
    private static AuthenticationContext context(String listener, String address, String certificate, String user) throws IOException, CertificateException {
        InetAddress client = InetAddress.getByName(address);
        if (!user.isEmpty()) {
            Object server = Proxy.newProxyInstance(Principals.class.getClassLoader(), new Class<?>[] {SaslServer.class}, (proxy, method, arguments) -> {
                if (!method.getName().equals("getAuthorizationID")) throw new UnsupportedOperationException("SaslServer." + method.getName());
                return user;
            });
            return new SaslAuthenticationContext((SaslServer) server, SecurityProtocol.SASL_SSL, client, listener);
        }
        if (certificate.isEmpty()) return new PlaintextAuthenticationContext(client, listener);
        X509Certificate shown = certificate.equals("none") ? null : (X509Certificate) CertificateFactory.getInstance("X.509")
            .generateCertificate(new ByteArrayInputStream(Base64.getDecoder().decode(certificate)));
        Object session = Proxy.newProxyInstance(Principals.class.getClassLoader(), new Class<?>[] {SSLSession.class}, (proxy, method, arguments) -> {
            if (!method.getName().equals("getPeerPrincipal")) throw new UnsupportedOperationException("SSLSession." + method.getName());
            if (shown == null) throw new SSLPeerUnverifiedException("no certificate");
            return shown.getSubjectX500Principal();
        });
        return new SslAuthenticationContext((SSLSession) session, client, listener);
    }

    private Principals() { }
}
