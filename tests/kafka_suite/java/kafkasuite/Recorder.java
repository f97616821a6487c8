package kafkasuite;

import java.io.FileWriter;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.junit.platform.engine.DiscoverySelector;
import org.junit.platform.engine.FilterResult;
import org.junit.platform.engine.TestDescriptor;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.UniqueId;
import org.junit.platform.engine.discovery.DiscoverySelectors;
import org.junit.platform.launcher.PostDiscoveryFilter;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/** Runs test classes one after the other and appends a line for each test to a file: test, pass|fail|skip|internals, seconds, note. */
public final class Recorder implements TestExecutionListener {
    static volatile String current;
    private static volatile String needed;
    private static final int NOTE_CHARACTERS = 400;
    private final PrintWriter out;
    private final Map<String, Long> begun = new HashMap<>();

    private Recorder(PrintWriter out) {
        this.out = out;
    }

    /** A test asked for an object inside of a broker. */
    static UnsupportedOperationException internals(String what) {
        if (needed == null) needed = what;
        return new UnsupportedOperationException("INSIDE A BROKER: " + what);
    }

    /** What a test relies on that is inside of a broker, though nothing fails for it at once. */
    static void asked(String what) {
        if (needed == null) needed = what;
    }

    /** Metrics in memory are looked for: by a test, they are those that no broker of this process fills. */
    public static void metrics() {
        String between = "kafkasuite\\..*|.*KafkaYammerMetrics|kafka\\.server\\.(Broker|Controller)Server.*";
        StackWalker.getInstance().walk(frames -> frames.filter(frame -> !frame.getClassName().matches(between)).findFirst())
            .filter(frame -> frame.getClassName().matches(".*(Test|TestUtils)(\\$.*)?") && !frame.getMethodName().contains("clearYammerMetrics"))
            .ifPresent(frame -> asked("metrics in memory (" + frame.getMethodName() + ")"));
    }

    private static String name(TestIdentifier test) {
        StringBuilder type = new StringBuilder();
        String method = "", variant = "";
        for (UniqueId.Segment segment : UniqueId.parse(test.getUniqueId()).getSegments()) {
            switch (segment.getType()) {
                case "class": type.append(segment.getValue()); break;
                case "nested-class": type.append('$').append(segment.getValue()); break;
                case "test-template-invocation": variant = segment.getValue(); break;
                case "method": case "test-template": method = segment.getValue().replaceAll("\\(.*", ""); break;
                default: break;
            }
        }
        return type + "." + method + variant;
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        if (!test.isTest()) return;
        current = name(test);
        begun.put(test.getUniqueId(), System.nanoTime());
        System.err.println("=== " + current + " " + test.getDisplayName());
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        if (test.isTest()) line(name(test), "skip", 0, reason);
    }

    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        Throwable thrown = result.getThrowable().orElse(null);
        if (thrown != null) System.err.println("--- " + result.getStatus() + " " + trace(thrown));
        if (test.isTest()) {
            double seconds = (System.nanoTime() - begun.getOrDefault(test.getUniqueId(), System.nanoTime())) / 1e9;
            line(name(test), status(result, thrown), seconds, note(test, thrown));
            needed = null; // Not when a test starts: the fields of its object may have asked before.
        } else if (thrown != null && test.getParentId().isPresent()) {
            line(name(test) + "/container", status(result, thrown), 0, note(test, thrown));
        }
        Node.stopAll();
    }

    private static String status(TestExecutionResult result, Throwable thrown) {
        switch (result.getStatus()) {
            case SUCCESSFUL: return "pass";
            case ABORTED: return "skip";
            default: return needed != null || trace(thrown).contains("INSIDE A BROKER") ? "internals" : "fail";
        }
    }

    private static String note(TestIdentifier test, Throwable thrown) {
        if (thrown == null) return needed == null ? "" : "asked for " + needed;
        Throwable root = thrown;
        while (root.getCause() != null && root.getCause() != root) root = root.getCause();
        String type = name(test).replaceAll("\\.[^.]*$", ""), where = "";
        for (StackTraceElement element : thrown.getStackTrace())
            if (where.isEmpty() && element.getClassName().equals(type)) where = " @" + element.getFileName() + ":" + element.getLineNumber();
        return (needed == null ? "" : needed + "; ") + thrown + where + (root == thrown ? "" : " <- " + root);
    }

    private static String trace(Throwable thrown) {
        StringWriter text = new StringWriter();
        if (thrown != null) thrown.printStackTrace(new PrintWriter(text));
        return text.toString();
    }

    private void line(String test, String status, double seconds, String note) {
        String one = note.replaceAll("[\\t\\n\\r]+", " ");
        out.printf("%s\t%s\t%.1f\t%s%n", test, status, seconds, one.length() > NOTE_CHARACTERS ? one.substring(0, NOTE_CHARACTERS) : one);
        out.flush();
    }

    /** FILE CLASS...; the property kafkasuite.methods is a regular expression of the methods to run, empty for all. */
    public static void main(String[] arguments) throws Exception {
        String methods = System.getProperty("kafkasuite.methods", "");
        List<DiscoverySelector> selectors = new ArrayList<>();
        for (int i = 1; i < arguments.length; i++) selectors.add(DiscoverySelectors.selectClass(arguments[i]));
        LauncherDiscoveryRequestBuilder request = LauncherDiscoveryRequestBuilder.request().selectors(selectors)
            .configurationParameter("junit.jupiter.execution.timeout.default", System.getProperty("kafkasuite.test.timeout"))
            .configurationParameter("junit.jupiter.extensions.autodetection.enabled", "true");
        if (!methods.isEmpty()) request.filters((PostDiscoveryFilter) test -> chosen(test, methods));
        Node.keepCachesFresh();
        Principals.serve();
        Runtime.getRuntime().addShutdownHook(new Thread(Node::stopAll));
        try (PrintWriter out = new PrintWriter(new FileWriter(arguments[0], true))) {
            LauncherFactory.create().execute(request.build(), new Recorder(out));
        }
        Runtime.getRuntime().exit(0);
    }

    private static FilterResult chosen(TestDescriptor test, String methods) {
        boolean leaf = test.isTest() || test.mayRegisterTests();
        boolean wanted = !leaf || !test.getChildren().isEmpty() || test.getUniqueId().toString().matches(".*(" + methods + ").*");
        return wanted ? FilterResult.included("") : FilterResult.excluded("");
    }
}
