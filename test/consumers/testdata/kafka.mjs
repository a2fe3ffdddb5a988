// Reads Kafka records from stdin, a JSON line each ({"headers", "key", "value"}), and prints what the SDK makes of them.

import { createInterface } from "node:readline";
import { Kafka } from "cloudevents";

for await (const line of createInterface({ input: process.stdin })) {
  const event = Kafka.toEvent(JSON.parse(line));
  event.validate();
  const { data, ...attributes } = { ...event };
  console.log(JSON.stringify({ attributes, data }));
}
