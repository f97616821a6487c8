import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordDeserializationException;
import org.apache.kafka.common.serialization.IntegerDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What a KafkaShareConsumer and an Admin see of share groups, line by line: `ShareStory BOOTSTRAP [CHAPTER-REGEX]`. Each chapter has a
 * topic and a group of its own, so that chapters run beside each other. */
public final class ShareStory extends GroupSteps {
    private ShareStory(String bootstrap, String name, Admin admin) {
        super(bootstrap, name, admin);
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Chapter<ShareStory>> chapters = new LinkedHashMap<>();
        chapters.put("implicit", ShareStory::implicit);
        chapters.put("explicit", ShareStory::explicit);
        chapters.put("mistakes", ShareStory::mistakes);
        chapters.put("async", ShareStory::async);
        chapters.put("closing", ShareStory::closing);
        chapters.put("limit", ShareStory::limit);
        chapters.put("portions", ShareStory::portions);
        chapters.put("locks", ShareStory::locks);
        chapters.put("renewals", ShareStory::renewals);
        chapters.put("no-renewals", ShareStory::noRenewals);
        chapters.put("optimized", story -> story.amounts("batch_optimized"));
        chapters.put("strict", story -> story.amounts("record_limit"));
        chapters.put("record-locks", ShareStory::recordLocks);
        chapters.put("committed", story -> story.transactions("read_committed"));
        chapters.put("uncommitted", story -> story.transactions("read_uncommitted"));
        chapters.put("offsets", ShareStory::offsets);
        chapters.put("latest", ShareStory::latest);
        chapters.put("members", ShareStory::members);
        chapters.put("groups", ShareStory::groups);
        chapters.put("deleted-records", ShareStory::deletedRecords);
        chapters.put("bad-values", ShareStory::badValues);
        chapters.put("topics", ShareStory::topics);
        run(arguments, chapters, ShareStory::new);
    }

    // -- chapters --------------------------------------------------------------------------------------------------

    private void implicit() throws Exception {
        begin(1, Map.of());
        produce(0, "a", "b", "c", "d");
        List<String> heard;
        try (KafkaShareConsumer<String, String> one = consumer(IMPLICIT, Map.of())) {
            heard = heard(one);
            say("subscribed to nothing: " + attempt(() -> one.poll(Duration.ZERO)));
            one.subscribe(List.of(name));
            say("before the first poll: " + one.acquisitionLockTimeoutMs() + " " + one.subscription());
            say("first " + read(one, 4));
            say("locked for " + one.acquisitionLockTimeoutMs());
            say("acknowledged " + commit(one));
            say("nothing to acknowledge " + commit(one));
            produce(0, "e", "f");
            say("then " + read(one, 2));
            say("nothing more " + silence(one));
        }
        say("one heard " + heard);
        try (KafkaShareConsumer<String, String> two = subscribed(IMPLICIT, Map.of())) {
            say("the next has " + silence(two));
        }
        say("lag " + lags());
    }

    private void explicit() throws Exception {
        begin(1, Map.of());
        produce(0, "a", "b", "c", "d", "e", "f");
        List<String> heard;
        try (KafkaShareConsumer<String, String> one = subscribed(EXPLICIT, Map.of())) {
            heard = heard(one);
            List<ConsumerRecord<String, String>> found = fetch(one, 6);
            say("first " + words(found));
            AcknowledgeType[] types = {AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RELEASE,
                AcknowledgeType.ACCEPT, AcknowledgeType.REJECT};
            for (int index = 0; index < types.length; index++) {
                one.acknowledge(found.get(index), types[index]);
            }
            say("acknowledged " + commit(one));
            found = fetch(one, 2);
            say("again " + words(found));
            one.acknowledge(found.get(0), AcknowledgeType.REJECT);
            ConsumerRecord<String, String> rejected = found.get(0);
            say("twice: " + attempt(() -> run(() -> one.acknowledge(rejected))));
            say("by its place: " + attempt(() -> run(() -> one.acknowledge(name, 0, 3, AcknowledgeType.RELEASE))));
            one.acknowledge(found.get(1), AcknowledgeType.RELEASE);
            say("acknowledged " + commit(one));
            found = fetch(one, 1);
            say("once more " + words(found));
            one.acknowledge(found.get(0), AcknowledgeType.ACCEPT);
            say("acknowledged by the next poll " + silence(one));
        }
        say("one heard " + heard);
        say("lag " + lags());
    }

    private void mistakes() throws Exception {
        begin(1, Map.of());
        produce(0, "a", "b");
        try (KafkaShareConsumer<String, String> one = subscribed(EXPLICIT, Map.of())) {
            List<ConsumerRecord<String, String>> found = fetch(one, 2);
            one.acknowledge(found.get(0));
            say("one is not acknowledged: " + attempt(() -> one.poll(Duration.ZERO)));
            say("no such record: " + attempt(() -> run(() -> one.acknowledge(name, 0, 77, AcknowledgeType.ACCEPT))));
            say("no such topic: " + attempt(() -> run(() -> one.acknowledge("none", 0, 0, AcknowledgeType.ACCEPT))));
            say("no type: " + attempt(() -> run(() -> one.acknowledge(found.get(1), null))));
            one.acknowledge(found.get(1), AcknowledgeType.RELEASE);
            say("both " + commit(one));
            say("after the acknowledgement: " + attempt(() -> run(() -> one.acknowledge(found.get(0)))));
            List<ConsumerRecord<String, String>> again = fetch(one, 1);
            say("again " + words(again));
            one.acknowledge(again.get(0));
        }
        try (KafkaShareConsumer<String, String> two = subscribed(IMPLICIT, Map.of())) {
            produce(0, "c");
            List<ConsumerRecord<String, String>> found = fetch(two, 1);
            say("implicitly " + words(found));
            say("an explicit word: " + attempt(() -> run(() -> two.acknowledge(found.get(0)))));
            two.wakeup();
            say("woken: " + attempt(() -> two.poll(Duration.ofSeconds(5))));
            say("unsubscribed " + attempt(() -> run(two::unsubscribe)) + " " + two.subscription());
        }
        say("a wrong mode: " + attempt(() -> consumer("both", Map.of())));
        say("a wrong acquire mode: " + attempt(() -> consumer(IMPLICIT, Map.of("share.acquire.mode", "all"))));
        say("no group: " + attempt(() -> {
            try (KafkaShareConsumer<String, String> none = consumer(IMPLICIT, Map.of("group.id", ""))) {
                none.subscribe(List.of(name));
                return none.poll(Duration.ofSeconds(1)).count();
            }
        }));
    }

    private void async() throws Exception {
        begin(1, Map.of());
        produce(0, "a", "b", "c", "d");
        try (KafkaShareConsumer<String, String> one = subscribed(EXPLICIT, Map.of())) {
            // Which answers come together is a matter of time.
            Map<Long, String> heard = Collections.synchronizedMap(new TreeMap<>());
            one.setAcknowledgementCommitCallback((offsets, error) -> offsets.values().forEach(found -> found.forEach(
                offset -> heard.merge(offset, error == null ? "done" : words(error), (before, then) -> before + ", " + then))));
            List<ConsumerRecord<String, String>> found = fetch(one, 4);
            one.acknowledge(found.get(0));
            one.commitAsync();
            one.acknowledge(found.get(1), AcknowledgeType.RELEASE);
            one.acknowledge(found.get(2), AcknowledgeType.REJECT);
            one.acknowledge(found.get(3));
            one.commitAsync();
            List<ConsumerRecord<String, String>> again = fetch(one, 1);
            say("again " + words(again));
            one.acknowledge(again.get(0));
            one.commitAsync();
            until(() -> {
                // Answers are heard in polls.
                one.poll(Duration.ofMillis(100));
                return heard.size() == 4 && heard.get(1L).contains(", ");
            });
            say("heard " + heard);
        }
        say("lag " + lags());
    }

    private void closing() throws Exception {
        begin(1, Map.of("share.delivery.count.limit", "3"));
        produce(0, "a", "b", "c", "d");
        try (KafkaShareConsumer<String, String> one = subscribed(EXPLICIT, Map.of())) {
            List<ConsumerRecord<String, String>> found = fetch(one, 4);
            one.acknowledge(found.get(0));
            one.acknowledge(found.get(2), AcknowledgeType.REJECT);
        }
        try (KafkaShareConsumer<String, String> two = subscribed(IMPLICIT, Map.of())) {
            say("what was said counts, the others come again " + read(two, 2));
        }
    }

    private void limit() throws Exception {
        begin(1, Map.of("share.delivery.count.limit", "3"));
        produce(0, "a", "b");
        try (KafkaShareConsumer<String, String> one = subscribed(EXPLICIT, Map.of())) {
            for (int times = 0; times < 3; times++) {
                List<ConsumerRecord<String, String>> found = fetch(one, 2);
                say("delivered " + words(found));
                for (ConsumerRecord<String, String> each : found) {
                    one.acknowledge(each, AcknowledgeType.RELEASE);
                }
                say("released " + commit(one));
            }
            say("no more " + silence(one));
        }
        say("lag " + lags());
    }

    /** Returned records come in smaller and smaller portions. What a consumer fetches ahead is a matter of time, and so is their order. */
    private void portions() throws Exception {
        begin(1, Map.of());
        String[] values = new String[24];
        java.util.Arrays.fill(values, "x");
        produce(0, values);
        Set<String> portions = new TreeSet<>();
        int delivered = 0;
        try (KafkaShareConsumer<String, String> one = subscribed(EXPLICIT, Map.of())) {
            while (delivered < 5 * values.length) {
                List<ConsumerRecord<String, String>> found = fetch(one, 1);
                delivered += found.size();
                Set<String> counts = new TreeSet<>(found.stream().map(each -> "#" + each.deliveryCount().get()).toList());
                portions.add("%s %02d to %02d".formatted(counts, found.get(0).offset(), found.get(found.size() - 1).offset()));
                for (ConsumerRecord<String, String> each : found) {
                    one.acknowledge(each, AcknowledgeType.RELEASE);
                }
                commit(one);
            }
            portions.forEach(this::say);
            say("no more " + silence(one));
        }
        say("lag " + lags());
    }

    private void locks() throws Exception {
        begin(1, Map.of("share.record.lock.duration.ms", "6000", "share.delivery.count.limit", "2"));
        produce(0, "a", "b");
        try (KafkaShareConsumer<String, String> one = subscribed(EXPLICIT, Map.of());
                KafkaShareConsumer<String, String> two = subscribed(EXPLICIT, Map.of())) {
            List<ConsumerRecord<String, String>> first = fetch(one, 2);
            say("one has " + words(first) + ", locked for " + one.acquisitionLockTimeoutMs());
            List<ConsumerRecord<String, String>> second = fetch(two, 2);
            say("when the locks have ended, two has " + words(second));
            first.forEach(one::acknowledge);
            say("one is too late " + commit(one));
            Thread.sleep(6_500);
            second.forEach(two::acknowledge);
            say("two is too late " + commit(two));
            say("and nobody has them " + silence(one) + silence(two));
        }
        say("lag " + lags());
    }

    private void renewals() throws Exception {
        begin(1, Map.of("share.record.lock.duration.ms", "6000"));
        produce(0, "a", "b", "c");
        List<String> heard;
        try (KafkaShareConsumer<String, String> one = subscribed(EXPLICIT, Map.of());
                KafkaShareConsumer<String, String> two = subscribed(EXPLICIT, Map.of())) {
            heard = heard(one);
            List<ConsumerRecord<String, String>> first = fetch(one, 3);
            say("one has " + words(first));
            for (int times = 0; times < 3; times++) {
                one.acknowledge(first.get(0), AcknowledgeType.RENEW);
                one.acknowledge(first.get(1), AcknowledgeType.RENEW);
                if (times == 0) {
                    one.acknowledge(first.get(2), AcknowledgeType.ACCEPT);
                }
                say("renewed " + commit(one));
                say("two has " + words(polled(two, 3_000)));
                first = fetch(one, 2);
                say("renewed records are returned again " + words(first));
            }
            one.acknowledge(first.get(0), AcknowledgeType.ACCEPT);
            one.acknowledge(first.get(1), AcknowledgeType.RELEASE);
            say("acknowledged " + commit(one));
            List<ConsumerRecord<String, String>> last = fetch(two, 1);
            say("two has " + words(last));
            two.acknowledge(last.get(0));
            say("acknowledged " + commit(two));
        }
        say("one heard " + heard);
        say("lag " + lags());
    }

    private void noRenewals() throws Exception {
        begin(1, Map.of("share.renew.acknowledge.enable", "false"));
        produce(0, "a", "b");
        try (KafkaShareConsumer<String, String> one = subscribed(EXPLICIT, Map.of())) {
            List<ConsumerRecord<String, String>> found = fetch(one, 2);
            one.acknowledge(found.get(0), AcknowledgeType.RENEW);
            one.acknowledge(found.get(1), AcknowledgeType.ACCEPT);
            say("renewed " + commit(one));
        }
        try (KafkaShareConsumer<String, String> two = subscribed(IMPLICIT, Map.of())) {
            say("the next has " + read(two, 1) + silence(two));
        }
    }

    /** Without delivery counts: a consumer may fetch ahead, and what it has then is released when it is closed. */
    private static List<String> places(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(each -> each.offset() + "=" + each.value()).toList();
    }

    /** How many records a fetch brings of batches of 1, 2, 3 .. 10 records. */
    private void amounts(String mode) throws Exception {
        begin(1, Map.of());
        for (int count = 1; count <= 10; count++) {
            String[] values = new String[count];
            java.util.Arrays.fill(values, "batch" + count);
            produce(0, values);
        }
        for (int most : new int[] {1, 4, 5, 9}) {
            try (KafkaShareConsumer<String, String> one =
                    subscribed(EXPLICIT, Map.of("share.acquire.mode", mode, "max.poll.records", String.valueOf(most)))) {
                List<ConsumerRecord<String, String>> found = fetch(one, 1);
                say("of at most " + most + ": " + places(found));
                found.forEach(one::acknowledge);
                say("acknowledged " + commit(one));
                List<ConsumerRecord<String, String>> following = fetch(one, 1);
                say("and then: " + places(following));
                following.forEach(each -> one.acknowledge(each, AcknowledgeType.REJECT));
                commit(one);
            }
        }
        say("lag " + lags());
    }

    private void recordLocks() throws Exception {
        begin(1, Map.of("share.partition.max.record.locks", "100"));
        String[] values = new String[10];
        java.util.Arrays.fill(values, "x");
        for (int batch = 0; batch < 25; batch++) {
            produce(0, values);
        }
        try (KafkaShareConsumer<String, String> one = subscribed(EXPLICIT, Map.of());
                KafkaShareConsumer<String, String> two = subscribed(EXPLICIT, Map.of())) {
            List<ConsumerRecord<String, String>> first = fetch(one, 1);
            say("one has " + first.size());
            say("two has " + polled(two, SILENCE_MS).size());
            for (ConsumerRecord<String, String> each : first) {
                // The first stays, so that the start offset does.
                one.acknowledge(each, each.offset() == 0 ? AcknowledgeType.RENEW : AcknowledgeType.ACCEPT);
            }
            say("acknowledged all but the first " + commit(one).size());
            say("two has " + polled(two, SILENCE_MS).size());
            List<ConsumerRecord<String, String>> kept = fetch(one, 1);
            say("one has " + words(kept));
            kept.forEach(one::acknowledge);
            say("acknowledged " + commit(one));
            List<ConsumerRecord<String, String>> second = fetch(two, 1);
            say("two has " + second.size() + " from " + second.get(0).offset());
            second.forEach(two::acknowledge);
        }
        say("lag " + lags());
    }

    /** Whether a marker comes before the next record is a matter of time. */
    private static List<String> values(Set<String> words) {
        return words.stream().map(each -> each.substring(each.indexOf('#'))).toList();
    }

    private void transactions(String isolation) throws Exception {
        begin(1, Map.of("share.isolation.level", isolation));
        Properties properties = producing();
        properties.put("transactional.id", name);
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
                KafkaShareConsumer<String, String> one = subscribed(IMPLICIT, Map.of())) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, "committed-1", "committed-2");
            producer.commitTransaction();
            produce(0, "plain-1");
            say("committed " + values(read(one, 3)));
            producer.beginTransaction();
            send(producer, "aborted-1", "aborted-2");
            produce(0, "plain-2");
            say("in a transaction " + values(read(one, isolation.equals("read_committed") ? 0 : 3)) + silence(one));
            producer.abortTransaction();
            say("aborted " + values(read(one, isolation.equals("read_committed") ? 1 : 0)) + silence(one));
            producer.beginTransaction();
            send(producer, "committed-3");
            producer.commitTransaction();
            say("the last " + values(read(one, 1)) + silence(one));
        }
    }

    private void offsets() throws Exception {
        begin(2, Map.of());
        produce(0, "a", "b", "c", "d");
        produce(1, "e", "f");
        say("of a group that is not there " + starts());
        say("altered before there is a group " + attempt(() -> alter(Map.of(0, 1L))));
        say("then " + starts());
        try (KafkaShareConsumer<String, String> one = subscribed(IMPLICIT, Map.of())) {
            say("read " + read(one, 5));
            say("acknowledged " + new TreeSet<>(commit(one).values()));
            say("altered while there is a member: " + attempt(() -> alter(Map.of(0, 0L))));
            say("deleted while there is a member: " + attempt(() -> deleteOffsets(name)));
            say("the group deleted while there is a member: " + attempt(this::deleteGroup));
        }
        empty();
        say("empty " + lags());
        say("back " + attempt(() -> alter(Map.of(0, 2L, 1, 0L))));
        say("then " + starts());
        try (KafkaShareConsumer<String, String> two = subscribed(IMPLICIT, Map.of())) {
            say("read " + read(two, 4));
        }
        empty();
        say("beyond the end " + attempt(() -> alter(Map.of(0, 99L))));
        say("below the start " + attempt(() -> alter(Map.of(0, -5L))));
        say("no such partition " + attempt(() -> alter(Map.of(7, 0L))));
        say("then " + starts());
        say("of another topic: " + attempt(() -> deleteOffsets("none")));
        say("deleted " + attempt(() -> deleteOffsets(name)));
        say("then " + starts());
        try (KafkaShareConsumer<String, String> three = subscribed(IMPLICIT, Map.of())) {
            say("read from the start " + read(three, 6));
        }
        empty();
        say("the group deleted " + attempt(this::deleteGroup));
        say("and again: " + attempt(this::deleteGroup));
        say("then " + starts());
        try (KafkaShareConsumer<String, String> four = subscribed(IMPLICIT, Map.of())) {
            say("a group of the same name " + read(four, 6));
        }
    }

    private void latest() throws Exception {
        begin(1, Map.of("share.auto.offset.reset", "latest"));
        produce(0, "before");
        try (KafkaShareConsumer<String, String> one = subscribed(IMPLICIT, Map.of())) {
            // Where the last record is, is decided when a member first fetches.
            List<String> seen = new ArrayList<>();
            until(() -> {
                produce(0, "after");
                polled(one, 500).forEach(each -> seen.add(each.value()));
                return !seen.isEmpty();
            });
            say("latest " + new TreeSet<>(seen));
        }
        configure(name + "-duration", Map.of("share.auto.offset.reset", "by_duration:PT1H"));
        try (KafkaShareConsumer<String, String> two = consumer(IMPLICIT, Map.of("group.id", name + "-duration"))) {
            two.subscribe(List.of(name));
            say("of the last hour " + new ArrayList<>(read(two, 2)).get(0));
        }
        for (String value : List.of("by_duration:PT-1H", "by_duration:", "none", "never", "")) {
            say(value + ": " + attempt(() -> configure(name, Map.of("share.auto.offset.reset", value))));
        }
        Map<String, String> refused = new TreeMap<>(Map.of(
            "share.record.lock.duration.ms", "999", "share.delivery.count.limit", "1", "share.partition.max.record.locks", "99",
            "share.isolation.level", "committed", "share.renew.acknowledge.enable", "maybe", "share.heartbeat.interval.ms", "1",
            "share.session.timeout.ms", "1", "share.unknown", "1"));
        for (Map.Entry<String, String> each : refused.entrySet()) {
            say(each + ": " + attempt(() -> configure(name, Map.of(each.getKey(), each.getValue()))));
        }
    }

    private void members() throws Exception {
        begin(3, Map.of());
        for (int partition = 0; partition < 3; partition++) {
            produce(partition, "a", "b", "c", "d", "e", "f");
        }
        try (KafkaShareConsumer<String, String> one = subscribed(EXPLICIT, Map.of("client.id", name + "-one"));
                KafkaShareConsumer<String, String> two = subscribed(EXPLICIT, Map.of("client.id", name + "-two", "client.rack", "r"))) {
            Map<String, Integer> seen = new TreeMap<>();
            until(() -> {
                for (KafkaShareConsumer<String, String> each : List.of(one, two)) {
                    for (ConsumerRecord<String, String> record : each.poll(Duration.ofMillis(200))) {
                        seen.merge(record.partition() + "@" + record.offset() + "#" + record.deliveryCount().get(), 1, Integer::sum);
                        each.acknowledge(record);
                    }
                    each.commitSync();
                }
                return seen.size() >= 18 && description().members().size() == 2 && covered(description()) == 3;
            });
            say("seen " + seen);
            say(words(description()));
        }
        empty();
        say(words(description()));
        say("listed " + admin.listGroups(new ListGroupsOptions()).all().get().stream().filter(each -> each.groupId().equals(name))
            .map(each -> each.type() + " " + each.protocol() + " " + each.groupState() + " " + each.isSimpleConsumerGroup()).toList());
        say("lag " + lags());
    }

    /** Share groups and others. */
    private void groups() throws Exception {
        begin(1, Map.of());
        say("described without being there: " + attempt(() -> words(description())));
        produce(0, "a");
        try (KafkaShareConsumer<String, String> one = subscribed(IMPLICIT, Map.of())) {
            read(one, 1);
            say("as a consumer group: " + attempt(() -> admin.describeConsumerGroups(List.of(name)).all().get()));
            say("its offsets as a consumer group: "
                + attempt(() -> admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get()));
            say("deleted as a consumer group: " + attempt(() -> admin.deleteConsumerGroups(List.of(name)).all().get()));
        }
        empty();
        say("committed to as a consumer group: " + attempt(() -> admin.alterConsumerGroupOffsets(
            name, Map.of(new TopicPartition(name, 0), new org.apache.kafka.clients.consumer.OffsetAndMetadata(1))).all().get()));
        say("deleted as a consumer group: " + attempt(() -> admin.deleteConsumerGroups(List.of(name)).all().get()));
        String other = name + "-other";
        admin.alterConsumerGroupOffsets(
            other, Map.of(new TopicPartition(name, 0), new org.apache.kafka.clients.consumer.OffsetAndMetadata(1))).all().get();
        try (KafkaShareConsumer<String, String> two = consumer(IMPLICIT, Map.of("group.id", other))) {
            two.subscribe(List.of(name));
            say("a consumer group joined: " + attempt(() -> {
                until(() -> two.poll(Duration.ofMillis(200)).count() > 0);
                return null;
            }));
        }
        say("a consumer group described: " + attempt(() -> admin.describeShareGroups(List.of(other)).all().get()));
        say("a consumer group deleted: " + attempt(() -> admin.deleteShareGroups(List.of(other)).all().get()));
        say("no name: " + attempt(() -> admin.describeShareGroups(List.of("")).all().get()));
    }

    private void deletedRecords() throws Exception {
        begin(1, Map.of());
        produce(0, "a", "b", "c", "d");
        produce(0, "e", "f");
        TopicPartition partition = new TopicPartition(name, 0);
        try (KafkaShareConsumer<String, String> one = subscribed(EXPLICIT, Map.of("max.poll.records", "1"))) {
            List<ConsumerRecord<String, String>> found = fetch(one, 1);
            say("read " + words(found));
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4))).all().get();
            found.forEach(each -> one.acknowledge(each, AcknowledgeType.RELEASE));
            say("released, but deleted meanwhile " + commit(one));
            found = fetch(one, 1);
            say("then " + words(found));
            found.forEach(one::acknowledge);
            say("acknowledged " + commit(one));
        }
    }

    private void badValues() throws Exception {
        begin(1, Map.of());
        produce(0, "abcd", "bad", "efgh");
        Properties properties = consuming(EXPLICIT, Map.of());
        try (KafkaShareConsumer<String, Integer> one =
                new KafkaShareConsumer<>(properties, new StringDeserializer(), new IntegerDeserializer())) {
            one.subscribe(List.of(name));
            List<String> seen = new ArrayList<>();
            until(() -> {
                try {
                    for (ConsumerRecord<String, Integer> each : one.poll(Duration.ofMillis(200))) {
                        seen.add(each.offset() + "#" + each.deliveryCount().get() + "=" + each.value());
                        one.acknowledge(each);
                    }
                } catch (RecordDeserializationException error) {
                    seen.add(error.offset() + " " + error.origin());
                    one.acknowledge(name, error.topicPartition().partition(), error.offset(), AcknowledgeType.REJECT);
                }
                return seen.size() >= 3;
            });
            say("read " + seen + " " + one.commitSync().size());
        }
    }

    /** Topics that come and go. */
    private void topics() throws Exception {
        configure(name, Map.of("share.auto.offset.reset", "earliest"));
        try (KafkaShareConsumer<String, String> one = subscribed(IMPLICIT, Map.of())) {
            say("not there yet " + silence(one));
            admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get();
            produce(0, "a");
            say("created " + read(one, 1));
            admin.createPartitions(Map.of(name, org.apache.kafka.clients.admin.NewPartitions.increaseTo(2))).all().get();
            until(() -> admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions().size() == 2);
            produce(1, "b");
            say("grown " + read(one, 1));
            admin.deleteTopics(List.of(name)).all().get();
            say("deleted " + silence(one));
        }
        empty();
        say(words(description()) + " " + lags());
    }
}
