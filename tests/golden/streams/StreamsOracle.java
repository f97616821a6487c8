import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.api.streams.assignor.TopologyDescriber;
import org.apache.kafka.coordinator.group.generated.StreamsGroupTopologyValueJsonConverter;
import org.apache.kafka.coordinator.group.streams.StreamsTopology;
import org.apache.kafka.coordinator.group.streams.assignor.AssignmentConfigsImpl;
import org.apache.kafka.coordinator.group.streams.assignor.GroupSpecImpl;
import org.apache.kafka.coordinator.group.streams.assignor.MemberMetadataAndStateImpl;
import org.apache.kafka.coordinator.group.streams.assignor.StickyTaskAssignor;
import org.apache.kafka.coordinator.group.streams.topics.InternalTopicManager;
import org.slf4j.LoggerFactory;

/** Asks Apache Kafka 4.4: a case a line in (JSON), the same line with its "result" out. helpers/streams_cases.py writes the cases. */
public class StreamsOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            ObjectNode asked = (ObjectNode) JSON.readTree(line);
            asked.set("result", JSON.valueToTree(asked.has("members") ? assigned(asked) : configured(asked)));
            System.out.println(JSON.writeValueAsString(asked));
        }
    }

    private static Object assigned(JsonNode asked) {
        Map<String, MemberMetadataAndStateImpl> members = new LinkedHashMap<>();
        asked.get("members").properties().forEach(entry -> {
            JsonNode member = entry.getValue();
            members.put(entry.getKey(), new MemberMetadataAndStateImpl(
                Optional.empty(), Optional.empty(), member.get("process").asText(), Map.of(),
                tasks(member.path("active")), tasks(member.path("standby")), tasks(member.path("warmup")),
                offsets(member.path("offsets")), Map.of()));
        });
        Map<String, JsonNode> subtopologies = new TreeMap<>();
        asked.get("subtopologies").properties().forEach(entry -> subtopologies.put(entry.getKey(), entry.getValue()));
        TopologyDescriber describer = new TopologyDescriber() {
            public List<String> subtopologies() {
                return new ArrayList<>(subtopologies.keySet());
            }

            public int maxNumInputPartitions(String subtopology) {
                return subtopologies.get(subtopology).get(0).asInt();
            }

            public boolean isStateful(String subtopology) {
                return subtopologies.get(subtopology).get(1).asBoolean();
            }
        };
        var configs = new AssignmentConfigsImpl(asked.get("standbys").asInt(), List.of());
        Map<String, Object> result = new LinkedHashMap<>();
        new StickyTaskAssignor().assign(new GroupSpecImpl(members, configs), describer).members().forEach((id, found) ->
            result.put(id, List.of(sorted(found.activeTasks()), sorted(found.standbyTasks()))));
        return new TreeMap<>(result);
    }

    private static Map<String, Set<Integer>> tasks(JsonNode listed) {
        Map<String, Set<Integer>> found = new LinkedHashMap<>();
        listed.properties().forEach(entry -> {
            Set<Integer> partitions = new HashSet<>();
            entry.getValue().forEach(partition -> partitions.add(partition.asInt()));
            found.put(entry.getKey(), partitions);
        });
        return found;
    }

    private static Map<String, Map<Integer, Long>> offsets(JsonNode listed) {
        Map<String, Map<Integer, Long>> found = new LinkedHashMap<>();
        listed.properties().forEach(entry -> {
            Map<Integer, Long> partitions = new LinkedHashMap<>();
            entry.getValue().properties().forEach(pair -> partitions.put(Integer.parseInt(pair.getKey()), pair.getValue().asLong()));
            found.put(entry.getKey(), partitions);
        });
        return found;
    }

    private static Map<String, Set<Integer>> sorted(Map<String, Set<Integer>> tasks) {
        Map<String, Set<Integer>> found = new TreeMap<>();
        tasks.forEach((subtopology, partitions) -> found.put(subtopology, new TreeSet<>(partitions)));
        return found;
    }

    private static Object configured(JsonNode asked) {
        Map<String, Object> result = new LinkedHashMap<>();
        try {
            var topology = StreamsTopology.fromRecord(StreamsGroupTopologyValueJsonConverter.read(asked.get("topology"), (short) 0));
            var found = InternalTopicManager.configureTopics(
                LoggerFactory.getLogger("oracle"), "group", "member", 1L, topology, image(asked.get("topics")), Time.SYSTEM);
            found.topicConfigurationException().ifPresent(problem ->
                result.put("problem", List.of(problem.status().code(), problem.getMessage())));
            found.subtopologies().ifPresent(subtopologies -> {
                Map<String, Object> described = new LinkedHashMap<>();
                subtopologies.forEach((id, subtopology) -> {
                    Map<String, Object> internal = new TreeMap<>();
                    subtopology.repartitionSourceTopics().values().forEach(topic -> internal.put("r " + topic.name(), List.of(
                        topic.numberOfPartitions(), topic.replicationFactor().orElse((short) 0), new TreeMap<>(topic.topicConfigs()))));
                    subtopology.stateChangelogTopics().values().forEach(topic -> internal.put("c " + topic.name(), List.of(
                        topic.numberOfPartitions(), topic.replicationFactor().orElse((short) 0), new TreeMap<>(topic.topicConfigs()))));
                    described.put(id, List.of(subtopology.numberOfTasks(), internal));
                });
                result.put("subtopologies", described);
            });
            result.put("missing", new TreeSet<>(found.internalTopicsToBeCreated().keySet()));
        } catch (RuntimeException refused) {
            result.put("refused", List.of(refused.getClass().getSimpleName(), String.valueOf(refused.getMessage())));
        }
        return result;
    }

    private static CoordinatorMetadataImage image(JsonNode topics) {
        return (CoordinatorMetadataImage) Proxy.newProxyInstance(
            StreamsOracle.class.getClassLoader(), new Class<?>[] {CoordinatorMetadataImage.class}, (proxy, method, arguments) -> {
                if (!method.getName().equals("topicMetadata") || !(arguments[0] instanceof String name)) {
                    throw new UnsupportedOperationException(method.getName());
                }
                return topics.has(name) ? Optional.of(topic(name, topics.get(name).asInt())) : Optional.empty();
            });
    }

    private static CoordinatorMetadataImage.TopicMetadata topic(String name, int partitions) {
        return new CoordinatorMetadataImage.TopicMetadata() {
            public String name() {
                return name;
            }

            public Uuid id() {
                return Uuid.ZERO_UUID;
            }

            public int partitionCount() {
                return partitions;
            }

            public List<String> partitionRacks(int partition) {
                return List.of();
            }
        };
    }
}
