// Reads records from stdin, a JSON line each ({"headers", "body"}), and prints what the SDK makes of them.

import { createInterface } from "node:readline";
import { CloudEvent, HTTP } from "cloudevents";

for await (const line of createInterface({ input: process.stdin })) {
  const { headers, body } = JSON.parse(line);
  const structured = headers["content-type"].startsWith("application/cloudevents+json");
  const event = structured ? new CloudEvent(JSON.parse(body)) : HTTP.toEvent({ headers, body });
  event.validate();
  const { data, ...attributes } = { ...event };
  console.log(JSON.stringify({ attributes, data }));
}
