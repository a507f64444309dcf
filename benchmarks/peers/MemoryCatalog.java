import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.InMemoryBaseTable;
import org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/** Spark's own in-memory catalog of its tests, with a namespace; at the end it writes the rows of a table to a file. */
public class MemoryCatalog extends SharedTablesInMemoryRowLevelOperationTableCatalog {
    private static final String[] NAMESPACE = {"d"};

    @Override
    public void initialize(String name, CaseInsensitiveStringMap options) {
        super.initialize(name, options);
        if (namespaceExists(NAMESPACE)) return;
        createNamespace(NAMESPACE, Map.of());
        Path out = Path.of(System.getenv("AUTO_CDC_ROWS"));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> write(out)));
    }

    private void write(Path out) {
        try (PrintWriter writer = new PrintWriter(Files.newBufferedWriter(out))) {
            InMemoryBaseTable table = (InMemoryBaseTable) loadTable(Identifier.of(NAMESPACE, "target"));
            StructType schema = table.schema();
            for (InternalRow row : CollectionConverters.asJava(table.rows())) {
                StringJoiner line = new StringJoiner("\t");
                for (int field = 0; field < schema.length(); field++) {
                    line.add(String.valueOf(row.get(field, schema.apply(field).dataType())));
                }
                writer.println(line);
            }
        } catch (Exception error) {
            error.printStackTrace();
        }
    }
}
