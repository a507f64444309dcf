import io.debezium.embedded.Connect;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.RecordChangeEvent;
import io.debezium.engine.format.ChangeEventFormat;
import java.io.Reader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.connect.source.SourceRecord;

/** Receives changes until it has so many, and drops them: PROPERTIES WARM_UP CHANGES STARTED. */
public final class Debezium {
    private static long received;

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (Reader file = Files.newBufferedReader(Path.of(arguments[0]))) {
            properties.load(file);
        }
        long warmUp = Long.parseLong(arguments[1]);
        long all = warmUp + Long.parseLong(arguments[2]);
        Path started = Path.of(arguments[3]);
        CountDownLatch end = new CountDownLatch(1);
        DebeziumEngine<RecordChangeEvent<SourceRecord>> engine = DebeziumEngine
            .create(ChangeEventFormat.of(Connect.class))
            .using(properties)
            .notifying((List<RecordChangeEvent<SourceRecord>> records, DebeziumEngine.RecordCommitter<RecordChangeEvent<SourceRecord>> committer) -> {
                for (RecordChangeEvent<SourceRecord> record : records) {
                    committer.markProcessed(record);
                }
                committer.markBatchFinished();
                if (received < warmUp && received + records.size() >= warmUp) {
                    create(started);
                }
                received += records.size();
                if (received >= all) {
                    end.countDown();
                }
            })
            .build();
        ExecutorService executor = Executors.newSingleThreadExecutor();
        executor.execute(engine);
        end.await();
        System.out.println(received);
        // Not close: what it does afterwards is not measured.
        Runtime.getRuntime().halt(0);
    }

    private static void create(Path file) {
        try {
            Files.createFile(file);
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }
}
