import static java.nio.charset.StandardCharsets.UTF_8;

import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;

/**
 * Runs a connector of Debezium with the converters of Kafka Connect that its properties name.
 *
 * <p>Sends records to the brokers of the property "brokers"; without them, appends the value of each to a file, a line each.
 */
public class Debezium {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.load(new FileInputStream(arguments[0]));
        Converter keys = converter(properties, "key.converter", true);
        Converter values = converter(properties, "value.converter", false);
        String brokers = properties.getProperty("brokers");
        KafkaProducer<byte[], byte[]> producer = brokers == null ? null : producer(brokers);
        PrintStream out = new PrintStream(new FileOutputStream(arguments[1], true));
        DebeziumEngine.create(Connect.class).using(properties).notifying((records, committer) -> {
            List<Future<?>> sent = new ArrayList<>();
            for (var event : records) {
                SourceRecord record = event.value();
                byte[] value = values.fromConnectData(record.topic(), record.valueSchema(), record.value());
                if (producer == null) {
                    out.writeBytes(((value == null ? "null" : new String(value, UTF_8)) + "\n").getBytes(UTF_8));
                } else {
                    byte[] key = keys.fromConnectData(record.topic(), record.keySchema(), record.key());
                    sent.add(producer.send(new ProducerRecord<>(record.topic(), key, value)));
                }
            }
            for (Future<?> future : sent) {
                wait(future);
            }
            for (var event : records) {
                committer.markProcessed(event);
            }
            committer.markBatchFinished();
        }).using((success, message, error) -> System.out.println("ended: " + message + " " + error)).build().run();
        System.exit(1);
    }

    private static void wait(Future<?> future) {
        try {
            future.get();
        } catch (Exception error) {
            throw new RuntimeException(error);
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String brokers) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", brokers);
        settings.put("acks", "all");
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        return new KafkaProducer<>(settings);
    }

    private static Converter converter(Properties properties, String name, boolean isKey) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        for (String property : properties.stringPropertyNames()) {
            if (property.startsWith(name + ".")) {
                settings.put(property.substring(name.length() + 1), properties.getProperty(property));
            }
        }
        String type = properties.getProperty(name, "org.apache.kafka.connect.json.JsonConverter");
        Converter converter = (Converter) Class.forName(type).getDeclaredConstructor().newInstance();
        converter.configure(settings, isKey);
        return converter;
    }
}
