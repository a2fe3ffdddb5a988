// Handles each event of Kafka topics at least once. The members of its consumer group share the partitions.
//
//     node kafka.mjs [--brokers 127.0.0.1:9092] [--group audit] TOPIC...

import { parseArgs } from "node:util";
import { Kafka as Binding } from "cloudevents";
import { decompress } from "fzstd";
import kafkajs from "kafkajs";

const { values: args, positionals: topics } = parseArgs({
  allowPositionals: true,
  options: {
    brokers: { type: "string", default: "127.0.0.1:9092" },
    group: { type: "string", default: "audit" },
  },
});

// The agent compresses with zstd, which kafkajs cannot read by itself.
kafkajs.CompressionCodecs[kafkajs.CompressionTypes.ZSTD] = () => ({ decompress: async (data) => Buffer.from(decompress(data)) });

const kafka = new kafkajs.Kafka({ brokers: args.brokers.split(","), logLevel: kafkajs.logLevel.NOTHING });
const consumer = kafka.consumer({ groupId: args.group });
consumer.on(consumer.events.CRASH, ({ payload }) => { // for example, the group has members of another protocol
  if (!payload.restart) fail(payload.error);
});

async function run() {
  await consumer.connect();
  await consumer.subscribe({ topics, fromBeginning: true }); // of a group without a stored position
  await consumer.run({
    // The offset of a batch is committed after it. So after a crash, some events come again.
    eachMessage: async ({ message }) => {
      if (message.value === null) return; // A tombstone, which follows a deletion in a compacted topic, is no event.
      handle(Binding.toEvent({ headers: text(message.headers), key: message.key.toString(), value: message.value.toString() }));
    },
  });
}

const text = (headers) => Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, value.toString()]));

function handle(event) {
  // Write the effect under source and id, which identify the event. Then a second copy changes nothing.
  console.log(event.time.slice(11, 19), event.source, event.id);
}

process.on("SIGINT", async () => {
  await consumer.disconnect(); // commits
  process.exit(0);
});
function fail(err) {
  console.error(`Kafka at ${args.brokers}: ${err.message}`);
  process.exit(1);
}

run().catch(fail);
