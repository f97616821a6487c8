package kafkasuite;

import java.io.File;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.metadata.bootstrap.BootstrapDirectory;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/** The features that a test's cluster begins with: levels that the nodes do not have are lowered (kafkasuite.features: those they have). */
final class Bootstrap {
    /** `given`: what the test's controller would begin with in memory; users are in the directory that the kit formatted. */
    static void write(String metadataDirectory, BootstrapMetadata given) throws Exception {
        File file = new File(metadataDirectory, "bootstrap.checkpoint");
        if (!file.exists()) return;
        BootstrapDirectory directory = new BootstrapDirectory(metadataDirectory);
        List<ApiMessageAndVersion> before = directory.read().records(), kept = new ArrayList<>();
        for (ApiMessageAndVersion record : given == null ? before : given.records()) if (isFeature(record)) kept.add(record);
        kept = limited(kept);
        for (ApiMessageAndVersion record : before) if (!isFeature(record)) kept.add(record);
        if (kept.equals(before)) return;
        file.delete();
        directory.writeBinaryFile(BootstrapMetadata.fromRecords(kept, "kafka_suite"));
    }

    private static boolean isFeature(ApiMessageAndVersion record) {
        return record.message() instanceof FeatureLevelRecord;
    }

    private static List<ApiMessageAndVersion> limited(List<ApiMessageAndVersion> levels) {
        String given = System.getProperty("kafkasuite.features", "");
        if (given.isEmpty()) return levels;
        Map<String, Short> highest = new HashMap<>();
        for (String feature : given.split(",")) highest.put(feature.split("=")[0], Short.valueOf(feature.split("=")[1]));
        List<ApiMessageAndVersion> kept = new ArrayList<>();
        for (ApiMessageAndVersion record : levels) {
            FeatureLevelRecord level = ((FeatureLevelRecord) record.message()).duplicate();
            level.setFeatureLevel((short) Math.min(level.featureLevel(), highest.getOrDefault(level.name(), (short) 0)));
            if (level.featureLevel() > 0 || highest.containsKey(level.name())) kept.add(new ApiMessageAndVersion(level, record.version()));
        }
        return kept;
    }

    private Bootstrap() { }
}
