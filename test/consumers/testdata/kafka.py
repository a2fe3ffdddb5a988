"""Reads Kafka records from stdin, a JSON line each ({"headers", "key", "value"}), and prints what the SDK makes of them."""

import json
import sys

from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event

for line in sys.stdin:
    record = json.loads(line)
    # As clients hand them over: bytes.
    headers = {name: value.encode() for name, value in record["headers"].items()}
    event = from_kafka_event(KafkaMessage(headers, record["key"].encode(), record["value"].encode()))
    attributes = dict(event.get_attributes())
    attributes["time"] = attributes["time"].isoformat()
    print(json.dumps({"attributes": attributes, "data": event.get_data()}))
