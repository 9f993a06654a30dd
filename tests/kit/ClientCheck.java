import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.MessageFormatter;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * Asks the Java client of MirrorMaker 2 what the topics on a target say. One question a line on standard input, one
 * answer a line on standard output: client properties as k=v;k=v, the call, its arguments, parted by tabs.
 */
public class ClientCheck {
    private static final Duration TIMEOUT = Duration.ofSeconds(60);

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            Map<String, Object> properties = new HashMap<>();
            properties.put("bootstrap.servers", arguments[0]);
            for (String pair : words[0].split(";")) {
                if (!pair.isEmpty()) {
                    properties.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
                }
            }
            out.println(answer(properties, words));
        }
    }

    private static String answer(Map<String, Object> properties, String[] words) throws Exception {
        switch (words[1]) {
            case "translateOffsets":
                return shown(RemoteClusterUtils.translateOffsets(properties, words[2], words[3], TIMEOUT));
            case "translateOffsetsOfGroups":
                Map<String, String> groups = new TreeMap<>();
                RemoteClusterUtils.translateOffsets(properties, words[2], Pattern.compile(words[3]), TIMEOUT)
                    .forEach((group, offsets) -> groups.put(group, shown(offsets)));
                return groups.toString();
            case "replicationHops":
                return String.valueOf(RemoteClusterUtils.replicationHops(properties, words[2]));
            case "upstreamClusters":
                return new TreeSet<>(RemoteClusterUtils.upstreamClusters(properties)).toString();
            case "heartbeatTopics":
                return new TreeSet<>(RemoteClusterUtils.heartbeatTopics(properties)).toString();
            case "checkpointTopics":
                return new TreeSet<>(RemoteClusterUtils.checkpointTopics(properties)).toString();
            case "remoteTopics":
                try (MirrorClient client = new MirrorClient(properties)) {
                    return new TreeSet<>(client.remoteTopics(words[2])).toString();
                }
            case "format":
                return formatted(properties, words[2], words[3]);
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    private static String shown(Map<TopicPartition, OffsetAndMetadata> offsets) {
        Map<String, String> found = new TreeMap<>();
        offsets.forEach((partition, at) -> found.put(partition.toString(), at.offset() + "/" + at.metadata()));
        return found.toString();
    }

    private static String formatted(Map<String, Object> properties, String topic, String formatter) throws Exception {
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        Map<String, Object> options = new HashMap<>(properties);
        options.put("auto.offset.reset", "earliest");
        try (PrintStream out = new PrintStream(text, true, StandardCharsets.UTF_8);
             KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             MessageFormatter format = (MessageFormatter) Class.forName(formatter).getConstructor().newInstance()) {
            List<TopicPartition> one = List.of(new TopicPartition(topic, 0));
            consumer.assign(one);
            consumer.seekToBeginning(one);
            long end = consumer.endOffsets(one).get(one.get(0));
            while (consumer.position(one.get(0)) < end) {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> format.writeTo(record, out));
            }
        }
        return text.toString(StandardCharsets.UTF_8).strip().replace("\n", "|");
    }
}
