import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.TableEnvironment;

/** Runs the SQL of a file in this JVM: SET and CREATE one by one, and all INSERTs as one job. Ends when the job ends. */
public class Run {
  public static void main(String[] args) throws Exception {
    Configuration config = new Configuration();
    config.setString("execution.checkpointing.interval", "2 s");
    config.setString("parallelism.default", "1");
    config.setString("rest.port", "0");
    config.setString("restart-strategy.type", "disable");
    TableEnvironment env = TableEnvironment.create(EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(config).build());
    StatementSet inserts = env.createStatementSet();
    for (String statement : Files.readString(Path.of(args[0])).split(";\\s*\n")) {
      String s = statement.strip();
      if (s.startsWith("SET ")) {
        String[] parts = s.substring(4).split("=", 2);
        env.getConfig().set(unquote(parts[0]), unquote(parts[1]));
      } else if (s.startsWith("INSERT ")) {
        inserts.addInsertSql(s);
      } else if (!s.isEmpty()) {
        env.executeSql(s);
      }
    }
    System.out.println("running");
    inserts.execute().await();
  }

  private static String unquote(String s) {
    return s.strip().replaceAll("^'|'$", "");
  }
}
