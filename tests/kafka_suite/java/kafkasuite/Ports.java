package kafkasuite;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;

/** Ports that nobody listens on, below those that the kernel gives to clients. */
final class Ports {
    /** Those that a test kit asked for before its nodes started, by "NODE/LISTENER". */
    static final Map<String, Integer> CHOSEN = new ConcurrentHashMap<>();
    private static final int LOWEST = 22000, COUNT = 9000;
    private static int next = new Random().nextInt(COUNT);

    static synchronized int free() {
        for (;;) {
            int port = LOWEST + next++ % COUNT;
            try (ServerSocket socket = new ServerSocket()) {
                socket.setReuseAddress(true);
                socket.bind(new InetSocketAddress("127.0.0.1", port));
                return port;
            } catch (IOException taken) {
                continue;
            }
        }
    }

    private Ports() { }
}
