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
    static void limit(String metadataDirectory) throws Exception {
        String given = System.getProperty("kafkasuite.features", "");
        File file = new File(metadataDirectory, "bootstrap.checkpoint");
        if (given.isEmpty() || !file.exists()) return;
        Map<String, Short> highest = new HashMap<>();
        for (String feature : given.split(",")) highest.put(feature.split("=")[0], Short.valueOf(feature.split("=")[1]));
        BootstrapDirectory directory = new BootstrapDirectory(metadataDirectory);
        List<ApiMessageAndVersion> kept = new ArrayList<>(), before = directory.read().records();
        for (ApiMessageAndVersion record : before) {
            if (record.message() instanceof FeatureLevelRecord) {
                FeatureLevelRecord level = ((FeatureLevelRecord) record.message()).duplicate();
                level.setFeatureLevel((short) Math.min(level.featureLevel(), highest.getOrDefault(level.name(), (short) 0)));
                if (level.featureLevel() > 0 || highest.containsKey(level.name())) kept.add(new ApiMessageAndVersion(level, record.version()));
            } else {
                kept.add(record);
            }
        }
        if (kept.equals(before)) return;
        file.delete();
        directory.writeBinaryFile(BootstrapMetadata.fromRecords(kept, "kafka_suite"));
    }

    private Bootstrap() { }
}
