package kafkasuite;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.MetadataRecordSerde;

/** The metadata log of one node on disk, read with Kafka's own classes: what the node knows of the cluster. */
final class MetadataLog {
    final File directory;
    private String read = "";
    private MetadataImage image = MetadataImage.EMPTY;

    MetadataLog(File directory) {
        this.directory = directory;
    }

    /** What the log says now; the last image that could be read while a segment is being written. */
    synchronized MetadataImage image() {
        File[] segments = directory.listFiles((d, name) -> name.endsWith(".log"));
        if (segments == null || segments.length == 0) return image;
        Arrays.sort(segments);
        StringBuilder state = new StringBuilder();
        for (File segment : segments) state.append(segment.getName()).append(segment.length()).append(' ');
        if (state.toString().equals(read)) return image;
        try {
            image = replay(segments);
            read = state.toString();
        } catch (IOException | RuntimeException beingWritten) {
            return image;
        }
        return image;
    }

    private static MetadataImage replay(File[] segments) throws IOException {
        MetadataDelta delta = new MetadataDelta.Builder().setImage(MetadataImage.EMPTY).build();
        long offset = -1, time = 0;
        int epoch = 0;
        for (File segment : segments) {
            for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(segment.toPath()))).batches()) {
                if (!batch.isControlBatch()) batch.forEach(record -> replay(delta, record.value(), record.valueSize()));
                offset = batch.lastOffset();
                epoch = batch.partitionLeaderEpoch();
                time = Math.max(time, batch.maxTimestamp());
            }
        }
        return delta.apply(new MetadataProvenance(offset, epoch, time, true));
    }

    private static void replay(MetadataDelta delta, ByteBuffer value, int size) {
        try {
            delta.replay(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(value), size).message());
        } catch (RuntimeException marker) {
            return; // Begin and end of a metadata transaction have no place in a delta.
        }
    }

    int leader() {
        return quorumState("leaderId");
    }

    int leaderEpoch() {
        return quorumState("leaderEpoch");
    }

    private int quorumState(String field) {
        try {
            Matcher found = Pattern.compile("\"" + field + "\"\\s*:\\s*(-?\\d+)").matcher(Files.readString(new File(directory, "quorum-state").toPath()));
            return found.find() ? Integer.parseInt(found.group(1)) : -1;
        } catch (IOException absent) {
            return -1;
        }
    }
}
