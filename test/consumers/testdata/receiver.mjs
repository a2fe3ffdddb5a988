// Receives events by HTTP until stdin ends. Prints its port, and then what the SDK makes of each, a JSON line each.

import { createServer } from "node:http";
import { HTTP } from "cloudevents";

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  try {
    const got = HTTP.toEvent({ headers: request.headers, body: Buffer.concat(chunks).toString() });
    for (const event of Array.isArray(got) ? got : [got]) {
      event.validate();
      const { data, ...attributes } = { ...event };
      console.log(JSON.stringify({ attributes, data }));
    }
    response.writeHead(204).end();
  } catch (error) {
    response.writeHead(400).end(String(error));
  }
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.resume().on("end", () => process.exit(0));
