"""Receives events by HTTP, one or a batch per request, and handles each at least once: it answers after it has handled them.

    python webhook.py [--listen 127.0.0.1:8080]
"""

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from cloudevents.core.exceptions import BaseCloudEventException

BATCH, SINGLE = "application/cloudevents-batch+json", "application/cloudevents+json"


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        # The agent repeats the request after a 5xx or without an answer. A 400 would be final: the agent would write the event to its
        # dead letters.
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            events = events_of(dict(self.headers), body)
        except (BaseCloudEventException, ValueError) as err:
            self.answer(400, str(err))
            return
        for event in events:
            handle(event)
        self.answer(204)

    def answer(self, status, text=""):
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


def events_of(headers, body):
    if headers.get("Content-Type", "").startswith(BATCH):  # The SDK has no batches.
        return [from_http_event(HTTPMessage({"content-type": SINGLE}, json.dumps(e).encode())) for e in json.loads(body)]
    return [from_http_event(HTTPMessage(headers, body))]


def handle(event):
    # Write the effect under source and id, which identify the event. Then a second copy changes nothing.
    print(event.get_time().strftime("%H:%M:%S") + f" {event.get_source()} {event.get_id()}\n", end="", flush=True)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--listen", default="127.0.0.1:8080")
    host, _, port = args.parse_args().listen.rpartition(":")
    server = ThreadingHTTPServer((host, int(port)), Receiver)
    server.daemon_threads = True
    print(f"listening on http://{host}:{server.server_port}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
