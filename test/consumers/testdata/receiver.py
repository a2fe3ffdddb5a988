"""Receives events by HTTP until stdin ends. Prints its port, and then what the SDK makes of each, a JSON line each."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from cloudevents.core.bindings.http import HTTPMessage, from_http_event

printing = threading.Lock()


def show(event):
    attributes = dict(event.get_attributes())
    attributes["time"] = attributes["time"].isoformat()
    with printing:
        print(json.dumps({"attributes": attributes, "data": event.get_data()}), flush=True)


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        headers = dict(self.headers)
        body = self.rfile.read(int(headers["Content-Length"]))
        if headers["Content-Type"].startswith("application/cloudevents-batch+json"):
            # The SDK knows no batches: it gets the events of one, as structured mode has them.
            single = {"content-type": "application/cloudevents+json"}
            for event in json.loads(body):
                show(from_http_event(HTTPMessage(single, json.dumps(event).encode())))
        else:
            show(from_http_event(HTTPMessage(headers, body)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
server.daemon_threads = True
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_port, flush=True)
sys.stdin.read()
