"""Reads records from stdin, a JSON line each ({"headers", "body"}), and prints what the SDK makes of them."""

import json
import sys

from cloudevents.core.bindings.http import HTTPMessage, from_http_event

for line in sys.stdin:
    record = json.loads(line)
    event = from_http_event(HTTPMessage(record["headers"], record["body"].encode()))
    attributes = dict(event.get_attributes())
    attributes["time"] = attributes["time"].isoformat()
    print(json.dumps({"attributes": attributes, "data": event.get_data()}))
