import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.clients.admin.SharePartitionOffsetInfo;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What chapters are made of: one topic and one group, both called `name`. */
class GroupSteps {
    /** Beyond any pause of a busy machine. */
    static final long PATIENCE_MS = 120_000;
    /** For what must not come. */
    static final long SILENCE_MS = 1_500;
    static final String IMPLICIT = "implicit", EXPLICIT = "explicit";

    final String bootstrap;
    final String name;
    final Admin admin;
    final List<String> lines = new ArrayList<>();

    GroupSteps(String bootstrap, String name, Admin admin) {
        this.bootstrap = bootstrap;
        this.name = name;
        this.admin = admin;
    }

    interface Chapter<T> {
        void tell(T story) throws Exception;
    }

    interface Story<T> {
        T begin(String bootstrap, String name, Admin admin);
    }

    /** Tell the chapters, several at a time, and print in their order what they say: `BOOTSTRAP [CHAPTER-REGEX]`. */
    static <T extends GroupSteps> void run(String[] arguments, Map<String, Chapter<T>> chapters, Story<T> story) throws Exception {
        Predicate<String> isWanted = arguments.length > 1 ? Pattern.compile(arguments[1]).asMatchPredicate() : each -> true;
        ExecutorService threads = Executors.newFixedThreadPool(8);
        Map<String, Object> settings =
            Map.of("bootstrap.servers", arguments[0], "default.api.timeout.ms", 120_000, "request.timeout.ms", 60_000);
        try (Admin admin = Admin.create(settings)) {
            Map<String, Future<List<String>>> told = new LinkedHashMap<>();
            chapters.forEach((name, chapter) -> {
                if (isWanted.test(name)) {
                    told.put(name, threads.submit(() -> told(story.begin(arguments[0], name, admin), chapter)));
                }
            });
            for (Map.Entry<String, Future<List<String>>> entry : told.entrySet()) {
                for (String line : entry.getValue().get()) {
                    System.out.println(entry.getKey() + " | " + line);
                }
            }
        } finally {
            threads.shutdownNow();
        }
    }

    private static <T extends GroupSteps> List<String> told(T story, Chapter<T> chapter) {
        try {
            chapter.tell(story);
        } catch (Exception | AssertionError error) {
            StackTraceElement[] trace = error.getStackTrace();
            story.say("ended by " + error + " at " + List.of(trace).subList(0, Math.min(6, trace.length)));
        }
        return story.lines;
    }

    void begin(int partitions, Map<String, String> configuration) throws Exception {
        Map<String, String> given = new LinkedHashMap<>(configuration);
        given.putIfAbsent("share.auto.offset.reset", "earliest");
        given.putIfAbsent("share.record.lock.duration.ms", "60000");
        configure(name, given);
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
    }

    Object configure(String group, Map<String, String> configuration) throws Exception {
        Collection<AlterConfigOp> changes = configuration.entrySet().stream()
            .map(each -> new AlterConfigOp(new ConfigEntry(each.getKey(), each.getValue()), AlterConfigOp.OpType.SET)).toList();
        return admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), changes)).all().get();
    }

    Properties producing() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("linger.ms", "3000"); // flush ends it
        properties.put("delivery.timeout.ms", "120000");
        return properties;
    }

    /** One batch. */
    void produce(int partition, String... values) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing(), new StringSerializer(), new StringSerializer())) {
            producer.partitionsFor(name);
            for (String value : values) {
                producer.send(new ProducerRecord<>(name, partition, "k", value));
            }
            producer.flush();
        }
    }

    void send(KafkaProducer<String, String> producer, String... values) {
        for (String value : values) {
            producer.send(new ProducerRecord<>(name, 0, "k", value));
        }
        producer.flush();
    }

    Properties consuming(String mode, Map<String, String> more) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("group.id", name);
        properties.put("share.acknowledgement.mode", mode);
        properties.put("default.api.timeout.ms", "120000");
        properties.putAll(more);
        return properties;
    }

    KafkaShareConsumer<String, String> consumer(String mode, Map<String, String> more) {
        return new KafkaShareConsumer<>(consuming(mode, more), new StringDeserializer(), new StringDeserializer());
    }

    KafkaShareConsumer<String, String> subscribed(String mode, Map<String, String> more) {
        KafkaShareConsumer<String, String> made = consumer(mode, more);
        made.subscribe(List.of(name));
        return made;
    }

    /** What one poll brings that brings `least` records in all. */
    List<ConsumerRecord<String, String>> fetch(KafkaShareConsumer<String, String> consumer, int least) throws Exception {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        until(() -> {
            consumer.poll(Duration.ofMillis(500)).forEach(found::add);
            return !found.isEmpty();
        });
        if (found.size() < least) {
            say("only " + words(found));
        }
        return found;
    }

    /** What polls bring until there are `count` records. */
    Set<String> read(KafkaShareConsumer<String, String> consumer, int count) throws Exception {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        until(() -> {
            if (found.size() < count) {
                consumer.poll(Duration.ofMillis(200)).forEach(found::add);
            }
            return found.size() >= count;
        });
        return new TreeSet<>(words(found));
    }

    List<ConsumerRecord<String, String>> polled(KafkaShareConsumer<String, String> consumer, long forMs) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long end = System.currentTimeMillis() + forMs;
        while (found.isEmpty() && System.currentTimeMillis() < end) {
            consumer.poll(Duration.ofMillis(100)).forEach(found::add);
        }
        return found;
    }

    List<String> silence(KafkaShareConsumer<String, String> consumer) {
        return words(polled(consumer, SILENCE_MS));
    }

    static List<String> words(List<ConsumerRecord<String, String>> records) {
        return records.stream()
            .map(each -> each.partition() + "@" + each.offset() + "#" + each.deliveryCount().get() + "=" + each.value()).toList();
    }

    static Map<String, String> commit(KafkaShareConsumer<String, String> consumer) {
        Map<String, String> found = new TreeMap<>();
        for (Map.Entry<TopicIdPartition, Optional<KafkaException>> each : consumer.commitSync().entrySet()) {
            found.put(String.valueOf(each.getKey().partition()), each.getValue().map(GroupSteps::words).orElse("done"));
        }
        return found;
    }

    /** What acknowledgements of a consumer are answered with, in the order in which it is heard. */
    static List<String> heard(KafkaShareConsumer<String, String> consumer) {
        List<String> heard = Collections.synchronizedList(new ArrayList<>());
        consumer.setAcknowledgementCommitCallback((offsets, error) -> offsets.forEach((partition, found) ->
            heard.add(partition.partition() + "@" + new TreeSet<>(found) + " " + (error == null ? "done" : words(error)))));
        return heard;
    }

    static String words(Throwable error) {
        Throwable found = error instanceof ExecutionException && error.getCause() != null ? error.getCause() : error;
        return found.getClass().getSimpleName() + ": " + found.getMessage();
    }

    static <T> Object attempt(Callable<T> work) {
        try {
            T found = work.call();
            return found instanceof ConsumerRecords || found == null ? "done" : found;
        } catch (Exception error) {
            return words(error);
        }
    }

    static Object run(Runnable work) {
        work.run();
        return null;
    }

    static void until(Callable<Boolean> condition) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (!condition.call()) {
            if (System.currentTimeMillis() > end) {
                throw new AssertionError("it took too long");
            }
            Thread.sleep(10);
        }
    }

    Object alter(Map<Integer, Long> offsets) throws Exception {
        Map<TopicPartition, Long> given = new LinkedHashMap<>();
        offsets.forEach((partition, offset) -> given.put(new TopicPartition(name, partition), offset));
        Map<String, String> found = new TreeMap<>();
        var result = admin.alterShareGroupOffsets(name, given);
        for (TopicPartition partition : given.keySet()) {
            found.put(String.valueOf(partition.partition()), String.valueOf(attempt(() -> result.partitionResult(partition).get())));
        }
        return found;
    }

    Object deleteOffsets(String topic) throws Exception {
        KafkaFuture<Void> done = admin.deleteShareGroupOffsets(name, Set.of(topic)).topicResult(topic);
        return done.get();
    }

    Object deleteGroup() throws Exception {
        return admin.deleteShareGroups(List.of(name)).all().get();
    }

    /** The lag of each partition. */
    String lags() {
        return String.valueOf(attempt(() -> offsets(info -> "" + info.lag().orElse(-1L))));
    }

    /** The start offset, and the lag. With members, what they acknowledged last may or may not have moved the start offset. */
    String starts() {
        return String.valueOf(attempt(() -> offsets(info -> info.startOffset() + " with a lag of " + info.lag().orElse(-1L))));
    }

    Map<Integer, String> offsets(Function<SharePartitionOffsetInfo, String> words) throws Exception {
        Map<Integer, String> found = new TreeMap<>();
        Map<TopicPartition, SharePartitionOffsetInfo> all =
            admin.listShareGroupOffsets(Map.of(name, new ListShareGroupOffsetsSpec())).partitionsToOffsetInfo(name).get();
        all.forEach((partition, info) -> found.put(partition.partition(), info == null ? "none" : words.apply(info)));
        return found;
    }

    ShareGroupDescription description() throws Exception {
        return admin.describeShareGroups(List.of(name)).all().get().get(name);
    }

    static long covered(ShareGroupDescription group) {
        return group.members().stream().flatMap(each -> each.assignment().topicPartitions().stream()).distinct().count();
    }

    static String words(ShareGroupDescription group) {
        return group.groupState() + " of " + group.members().stream()
            .map(each -> each.clientId().replaceAll("\\d+", "N") + " " + each.host()).sorted().toList();
    }

    /** Wait until the group has no member. */
    void empty() throws Exception {
        until(() -> description().members().isEmpty());
    }

    synchronized void say(String line) {
        lines.add(line.replaceAll("(?<![\\w-])(?=[A-Za-z_-]*\\d)[\\w-]{22}(?![\\w-])", "<id>"));
    }
}
