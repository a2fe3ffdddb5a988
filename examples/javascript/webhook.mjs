// Receives events by HTTP, one or a batch per request, and handles each at least once: it answers after it has handled them.
//
//     node webhook.mjs [--listen 127.0.0.1:8080]

import { createServer } from "node:http";
import { parseArgs } from "node:util";
import { HTTP } from "cloudevents";

const { values: args } = parseArgs({ options: { listen: { type: "string", default: "127.0.0.1:8080" } } });
const [host, port] = args.listen.split(":");

const server = createServer(async (request, response) => {
  // The agent repeats the request after a 5xx or without an answer. A 400 would be final: the agent would write the event to its dead letters.
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks).toString();
  let events;
  try {
    events = [HTTP.toEvent({ headers: request.headers, body })].flat();
    events.forEach((event) => event.validate());
  } catch (err) {
    response.writeHead(400).end(err.message);
    return;
  }
  events.forEach(handle);
  response.writeHead(204).end();
});

function handle(event) {
  // Write the effect under source and id, which identify the event. Then a second copy changes nothing.
  console.log(event.time.slice(11, 19), event.source, event.id);
}

server.listen(Number(port), host, () => console.log(`listening on http://${host}:${server.address().port}`));
process.on("SIGINT", () => process.exit(0));
