import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileInputStream;
import java.io.FileWriter;
import java.io.PrintWriter;
import java.util.Properties;

/** Runs a connector of Debezium without Kafka: appends the value of each record to a file, a line each. */
public class Debezium {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.load(new FileInputStream(arguments[0]));
        PrintWriter out = new PrintWriter(new FileWriter(arguments[1], true));
        DebeziumEngine.create(Json.class).using(properties).notifying((records, committer) -> {
            for (var record : records) {
                out.println(record.value() == null ? "null" : record.value());
                committer.markProcessed(record);
            }
            out.flush();
            committer.markBatchFinished();
        }).using((success, message, error) -> System.out.println("ended: " + message + " " + error)).build().run();
    }
}
