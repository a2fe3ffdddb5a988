import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Properties;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends a record for each line of standard input, the key, with Java's own partitioner, and prints where it went. */
public class Produce {
  public static void main(String[] args) throws Exception {
    Properties config = new Properties();
    config.put("bootstrap.servers", args[0]);
    config.put("acks", "all");
    try (KafkaProducer<String, byte[]> producer =
            new KafkaProducer<>(config, new StringSerializer(), new ByteArraySerializer());
        BufferedReader keys = new BufferedReader(new InputStreamReader(System.in, "UTF-8"))) {
      for (String key = keys.readLine(); key != null; key = keys.readLine()) {
        int partition = producer.send(new ProducerRecord<>(args[1], key, "java".getBytes("UTF-8"))).get().partition();
        System.out.println(partition + " " + key);
      }
    }
  }
}
