import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.MemberToRemove;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** What KafkaConsumers of both protocols and an Admin see of consumer groups (KIP-848), line by line: `ConsumerStory BOOTSTRAP
 * [CHAPTER-REGEX]`. Each chapter has topics and a group of its own. */
public final class ConsumerStory extends GroupSteps {
    private ConsumerStory(String bootstrap, String name, Admin admin) {
        super(bootstrap, name, admin);
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Chapter<ConsumerStory>> chapters = new LinkedHashMap<>();
        chapters.put("patterns", ConsumerStory::patterns);
        chapters.put("instances", ConsumerStory::instances);
        chapters.put("assignors", ConsumerStory::assignors);
        chapters.put("commits", ConsumerStory::commits);
        chapters.put("new-topics", ConsumerStory::newTopics);
        chapters.put("to-consumer", ConsumerStory::toConsumer);
        chapters.put("to-classic", ConsumerStory::toClassic);
        chapters.put("empty", ConsumerStory::emptyGroups);
        run(arguments, chapters, ConsumerStory::new);
    }

    // -- chapters --------------------------------------------------------------------------------------------------

    private void patterns() throws Exception {
        create("patterns-a", 2);
        create("patterns-b", 1);
        create("other-patterns", 1);
        try (Member one = new Member("consumer", Map.of()); Member two = new Member("consumer", Map.of())) {
            one.consumer.subscribe(new SubscriptionPattern("patterns-.*"), one);
            owns(one, "patterns-a-0", "patterns-a-1", "patterns-b-0");
            say("subscribed " + one.consumer.subscription());
            create("patterns-c", 1);
            owns(one, "patterns-a-0", "patterns-a-1", "patterns-b-0", "patterns-c-0");
            two.consumer.subscribe(new SubscriptionPattern("(patterns-[ab]|nothing)"), two);
            until(() -> poll(one, two) && two.owned.size() == 2 && together(one, two) == 4);
            say("two members " + together(one, two));
            one.consumer.subscribe(new SubscriptionPattern("[bad"), one);
            say("not a pattern: " + failure(one));
        }
        try (Member three = new Member("classic", Map.of())) {
            three.consumer.subscribe(new SubscriptionPattern("patterns-.*"));
            say("of the classic protocol: " + failure(three));
        } catch (UnsupportedOperationException error) {
            say("of the classic protocol: " + words(error));
        }
    }

    private void instances() throws Exception {
        create(name, 4);
        Map<String, String> first = Map.of("group.instance.id", "first"), second = Map.of("group.instance.id", "second");
        Member two = new Member("consumer", second);
        Set<String> before;
        try (Member one = new Member("consumer", first)) {
            one.subscribe();
            two.subscribe();
            until(() -> poll(one, two) && one.owned.size() == 2 && two.owned.size() == 2);
            before = new TreeSet<>(one.owned);
            try (Member rival = new Member("consumer", first)) {
                rival.subscribe();
                say("in use: " + failure(rival));
            }
            say("instances " + new TreeSet<>(group().members().stream().map(each -> String.valueOf(each.groupInstanceId())).toList()));
        }
        try (Member again = new Member("consumer", first)) {
            again.subscribe();
            until(() -> poll(again, two) && again.owned.size() == 2);
            say("it has what it had: " + again.owned.equals(before));
            say("the other gave up nothing: " + two.lost);
        }
        two.consumer.close();
        say("left for a while " + group().members().size());
        say("removed " + attempt(() -> admin.removeMembersFromConsumerGroup(
            name, new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("second")))).all().get()));
        say("nobody: " + attempt(() -> admin.removeMembersFromConsumerGroup(
            name, new RemoveMembersFromConsumerGroupOptions(List.of(new MemberToRemove("third")))).all().get()));
        say("one is left " + group().members().size());
        say("all removed "
            + attempt(() -> admin.removeMembersFromConsumerGroup(name, new RemoveMembersFromConsumerGroupOptions()).all().get()));
        say(words(group()));
    }

    private void assignors() throws Exception {
        create(name + "-a", 3);
        create(name + "-b", 3);
        List<String> both = List.of(name + "-a", name + "-b");
        for (String assignor : List.of("range", "uniform")) {
            Map<String, String> settings = Map.of("group.remote.assignor", assignor, "group.id", name + "-" + assignor);
            try (Member one = new Member("consumer", settings); Member two = new Member("consumer", settings)) {
                one.consumer.subscribe(both, one);
                two.consumer.subscribe(both, two);
                until(() -> poll(one, two) && together(one, two) == 6 && one.owned.size() > 1 && two.owned.size() > 1);
                Set<Integer> sizes = new TreeSet<>(List.of(one.owned.size(), two.owned.size()));
                say(assignor + " " + sizes + " " + words(group(name + "-" + assignor)));
            }
        }
        try (Member one = new Member("consumer", Map.of("group.remote.assignor", "best"))) {
            one.consumer.subscribe(both, one);
            say("unknown: " + failure(one));
        }
    }

    private void commits() throws Exception {
        create(name, 2);
        produce(0, "a", "b", "c");
        TopicPartition zero = new TopicPartition(name, 0), one = new TopicPartition(name, 1);
        try (Member member = new Member("consumer", Map.of())) {
            member.subscribe();
            List<String> seen = new ArrayList<>();
            until(() -> {
                member.consumer.poll(Duration.ofMillis(100)).forEach(each -> seen.add(each.offset() + "=" + each.value()));
                return seen.size() >= 3;
            });
            say("read " + seen);
            member.consumer.commitSync(Map.of(zero, new OffsetAndMetadata(2, Optional.of(0), "so far")));
            say("committed " + member.consumer.committed(Set.of(zero, one)));
            say("as an admin sees it " + committed());
            say("altered: " + attempt(() -> admin.alterConsumerGroupOffsets(name, Map.of(zero, new OffsetAndMetadata(0))).all().get()));
            say("deleted: " + attempt(() -> admin.deleteConsumerGroupOffsets(name, Set.of(zero)).all().get()));
            say("the group deleted: " + attempt(() -> admin.deleteConsumerGroups(List.of(name)).all().get()));
            say("of another group's member: " + attempt(() -> {
                try (Member stranger = new Member("consumer", Map.of())) {
                    stranger.consumer.assign(List.of(zero));
                    stranger.consumer.commitSync(Map.of(zero, new OffsetAndMetadata(1)));
                    return "done";
                }
            }));
        }
        until(() -> group().members().isEmpty());
        say(words(group()));
        say("altered " + attempt(() -> admin.alterConsumerGroupOffsets(name, Map.of(zero, new OffsetAndMetadata(1))).all().get()));
        try (Member member = new Member("consumer", Map.of("enable.auto.commit", "true"))) {
            member.subscribe();
            List<String> seen = new ArrayList<>();
            until(() -> {
                member.consumer.poll(Duration.ofMillis(100)).forEach(each -> seen.add(each.offset() + "=" + each.value()));
                return seen.size() >= 2;
            });
            say("read again " + seen);
        }
        say("committed as it left " + committed().get(zero.toString()));
        say("deleted " + attempt(() -> admin.deleteConsumerGroupOffsets(name, Set.of(zero, one)).all().get()));
        say("the group deleted " + attempt(() -> admin.deleteConsumerGroups(List.of(name)).all().get()));
        say("and again: " + attempt(() -> admin.deleteConsumerGroups(List.of(name)).all().get()));
        say("described: " + attempt(() -> words(group())));
    }

    private void newTopics() throws Exception {
        try (Member one = new Member("consumer", Map.of())) {
            one.subscribe();
            until(() -> poll(one) && attempt(() -> group().members().size()).equals(1));
            say("not there yet " + one.owned);
            create(name, 1);
            owns(one, name + "-0");
            admin.createPartitions(Map.of(name, NewPartitions.increaseTo(2))).all().get();
            owns(one, name + "-0", name + "-1");
            admin.deleteTopics(List.of(name)).all().get();
            owns(one);
            one.consumer.unsubscribe();
            say("unsubscribed " + one.consumer.subscription());
            until(() -> group().members().isEmpty());
        }
    }

    /** A member of the consumer protocol comes to a classic group, and goes. */
    private void toConsumer() throws Exception {
        create(name, 2);
        try (Member classic = new Member("classic", Map.of())) {
            classic.subscribe();
            owns(classic, name + "-0", name + "-1");
            say("at first " + listed());
            try (Member modern = new Member("consumer", Map.of())) {
                modern.subscribe();
                say("a member of the other protocol: " + joins(modern, classic));
                say("then " + listed());
            }
            alone(classic);
            say("when it has gone " + listed());
        }
        say("when all have gone " + listed());
    }

    /** A classic member comes to a group of the consumer protocol; then the others go. */
    private void toClassic() throws Exception {
        create(name, 2);
        Member modern = new Member("consumer", Map.of());
        try (Member classic = new Member("classic", Map.of())) {
            modern.subscribe();
            owns(modern, name + "-0", name + "-1");
            say("at first " + listed());
            classic.subscribe();
            String how = joins(classic, modern);
            say("a classic member: " + how);
            say("then " + listed());
            modern.close();
            if (how.equals("shares")) {
                alone(classic);
            }
            say("when the other has gone " + listed());
        }
        say("when all have gone " + listed());
    }

    /** The last member gets everything. In a group that stays one of the consumer protocol, Apache Kafka never tells a classic one. */
    private void alone(Member classic) throws Exception {
        if (listed().contains("Classic")) {
            owns(classic, name + "-0", name + "-1");
        }
    }

    /** Empty groups take members of either protocol. */
    private void emptyGroups() throws Exception {
        create(name, 1);
        for (String protocol : List.of("classic", "consumer", "classic", "consumer")) {
            try (Member one = new Member(protocol, Map.of())) {
                one.subscribe();
                owns(one, name + "-0");
                one.consumer.commitSync(Map.of(new TopicPartition(name, 0), new OffsetAndMetadata(0)));
                say(protocol + " " + listed());
            }
            say("empty " + listed() + " " + committed());
        }
    }

    // -- what chapters are made of ---------------------------------------------------------------------------------

    /** A consumer, and what it owns. */
    private final class Member implements ConsumerRebalanceListener, AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        final Set<String> owned = new TreeSet<>();
        /** Partitions that it had to give up. */
        final Set<String> lost = new TreeSet<>();

        Member(String protocol, Map<String, String> more) {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", bootstrap);
            properties.put("group.id", name);
            properties.put("group.protocol", protocol);
            properties.put("client.id", protocol);
            properties.put("auto.offset.reset", "earliest");
            properties.put("enable.auto.commit", "false");
            properties.put("default.api.timeout.ms", "120000");
            properties.put("metadata.max.age.ms", "1000");
            if (protocol.equals("classic")) {
                properties.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
                properties.put("session.timeout.ms", "60000");
                properties.put("heartbeat.interval.ms", "200");
            }
            properties.putAll(more);
            consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
        }

        void subscribe() {
            consumer.subscribe(List.of(name), this);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(each -> owned.add(each.toString()));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(each -> {
                owned.remove(each.toString());
                lost.add(each.toString());
            });
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    private static boolean poll(ConsumerStory.Member... members) {
        for (Member each : members) {
            each.consumer.poll(Duration.ofMillis(50));
        }
        return true;
    }

    private static int together(Member... members) {
        Set<String> all = new TreeSet<>();
        int count = 0;
        for (Member each : members) {
            all.addAll(each.owned);
            count += each.owned.size();
        }
        return all.size() == count ? count : -1;
    }

    private void owns(Member member, String... expected) throws Exception {
        until(() -> poll(member) && member.owned.equals(Set.of(expected)));
        say("owns " + member.owned);
    }

    /** How the polls of a member fail. */
    private String failure(Member member) throws Exception {
        List<String> found = new ArrayList<>();
        until(() -> {
            found.add(String.valueOf(attempt(() -> poll(member))));
            return !found.get(found.size() - 1).equals("true");
        });
        return found.get(found.size() - 1);
    }

    /** Whether a member gets its share beside another, or how it fails. */
    private String joins(Member member, Member other) throws Exception {
        List<String> found = new ArrayList<>();
        until(() -> {
            Object polled = attempt(() -> poll(member));
            poll(other);
            if (!polled.equals(true)) {
                found.add(String.valueOf(polled));
            } else if (together(member, other) == 2 && member.owned.size() == 1) {
                found.add("shares");
            }
            return !found.isEmpty();
        });
        return found.get(0);
    }

    private void create(String topic, int partitions) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
    }

    private Map<String, String> committed() throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get();
        Map<String, String> found = new TreeMap<>();
        offsets.forEach((partition, offset) -> found.put(
            partition.toString(), offset == null ? "none" : offset.offset() + offset.metadata()));
        return found;
    }

    private ConsumerGroupDescription group() throws Exception {
        return group(name);
    }

    private ConsumerGroupDescription group(String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
    }

    private static String words(ConsumerGroupDescription group) {
        return group.type() + " " + group.groupState() + " " + group.partitionAssignor() + " of " + group.members().size();
    }

    /** The type of the group in the list of groups. */
    private String listed() throws Exception {
        return admin.listGroups(new ListGroupsOptions()).all().get().stream().filter(each -> each.groupId().equals(name))
            .map(each -> each.type().map(Object::toString).orElse("none") + " " + each.protocol()).toList().toString();
    }
}
