// Follows the stream of kubecdc and prints changes. With --once, it prints the objects that exist, and ends.
//
//     node follow.mjs [--server nats://127.0.0.1:4222] [--stream KUBECDC] [--once] [SUBJECT...]
//
// Subjects select the events, by default all: "kubecdc.*.*.core.pods.>" are the Pods of all clusters, stream events
// included.

import { parseArgs } from "node:util";
import { jetstream } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { CloudEvent } from "cloudevents";
import { Table } from "./table.mjs";

const { values: args, positionals: subjects } = parseArgs({
  allowPositionals: true,
  options: {
    server: { type: "string", default: "nats://127.0.0.1:4222" },
    stream: { type: "string", default: "KUBECDC" },
    once: { type: "boolean", default: false },
  },
});

function fail(message) {
  console.error(message);
  process.exit(1);
}

const nc = await connect({ servers: args.server, maxReconnectAttempts: -1 }).catch((err) =>
  fail(`connect to ${args.server}: ${err.message}`),
);
// Without a name it is an ordered consumer: it resumes after the last record if a record, the connection or the server is lost.
const consumer = await jetstream(nc)
  .consumers.get(args.stream, { filter_subjects: subjects.length ? subjects : ["kubecdc.>"] })
  .catch((err) => fail(`stream ${args.stream} at ${args.server}: ${err.message}`));

const table = new Table();
if (!args.once || (await consumer.info()).num_pending > 0) {
  for await (const record of await consumer.consume()) {
    for (const { what, row } of table.apply(new CloudEvent(record.json()))) {
      if (!args.once) console.log(what, row.resource, row.namespace ? `${row.namespace}/${row.name}` : row.name);
    }
    if (args.once && record.info.pending === 0) break;
  }
}
await nc.close();

if (args.once) {
  for (const { source, clusteruid, resource, uid, object } of table.rows.values()) {
    console.log(JSON.stringify({ source, clusteruid, resource, uid, object }));
  }
}
