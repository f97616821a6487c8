package kafkasuite;

import java.io.File;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;

/** Starts the process of a node: of minikafka, by the launcher that has its modules imported, or of Apache Kafka. */
final class Launcher {
    static final String SOCKET = System.getProperty("kafkasuite.launcher", "");

    /** Whether nodes are those of minikafka. */
    static boolean isMinikafka() {
        return !SOCKET.isEmpty();
    }

    /** `asks`: a class of the test makes principals, see Principals. */
    static ProcessHandle start(Path properties, File output, boolean asks) throws IOException {
        return isMinikafka() ? minikafka(properties, output, asks ? Principals.SOCKET.toString() : "") : kafka(properties, output);
    }

    /** One line "PROPERTIES TAB OUTPUT TAB LOGIN-FILE TAB PRINCIPALS", answered with the process id. */
    private static ProcessHandle minikafka(Path properties, File output, String principals) throws IOException {
        String login = System.getProperty("java.security.auth.login.config", "");
        try (SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX)) {
            channel.connect(UnixDomainSocketAddress.of(SOCKET));
            channel.write(ByteBuffer.wrap((properties + "\t" + output + "\t" + login + "\t" + principals + "\n").getBytes(StandardCharsets.UTF_8)));
            ByteBuffer answer = ByteBuffer.allocate(32);
            while (channel.read(answer) >= 0) continue;
            long pid = Long.parseLong(new String(answer.array(), 0, answer.position(), StandardCharsets.UTF_8).trim());
            return ProcessHandle.of(pid).orElseThrow(() -> new IOException("node " + properties + " ended at once"));
        }
    }

    private static ProcessHandle kafka(Path properties, File output) throws IOException {
        List<String> command = new ArrayList<>(List.of(Paths.get(System.getProperty("java.home"), "bin", "java").toString(),
            "-Xmx400m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
            "-Dlog4j2.configurationFile=" + System.getProperty("log4j2.configurationFile"), "-cp", System.getProperty("kafkasuite.libs") + "/*"));
        String login = System.getProperty("java.security.auth.login.config");
        if (login != null) command.add("-Djava.security.auth.login.config=" + login);
        command.addAll(List.of("kafka.Kafka", properties.toString()));
        return new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(output).start().toHandle();
    }

    private Launcher() { }
}
