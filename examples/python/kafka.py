"""Handles each event of Kafka topics at least once. The members of its consumer group share the partitions.

    python kafka.py [--brokers 127.0.0.1:9092] [--group audit] TOPIC...
"""

import argparse
import sys

from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from confluent_kafka import Consumer, KafkaError, KafkaException


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--brokers", default="127.0.0.1:9092")
    args.add_argument("--group", default="audit")
    args.add_argument("topics", metavar="TOPIC", nargs="+")
    args = args.parse_args()
    consumer = Consumer(
        {
            "bootstrap.servers": args.brokers,
            "group.id": args.group,
            "auto.offset.reset": "earliest",  # A group without a stored position begins with the oldest record.
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(args.topics)
    try:
        while True:
            record = consumer.poll(1)
            if record is None:
                continue
            if record.error():
                if record.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    sys.exit(f"no topic {record.topic()} at {args.brokers}")
                raise KafkaException(record.error())
            if record.value() is not None:  # A tombstone, which follows a deletion in a compacted topic, is no event.
                headers = dict(record.headers() or [])
                handle(from_kafka_event(KafkaMessage(headers, record.key(), record.value())))
            # A service that handles many events a second commits once a second, not after each event.
            consumer.commit(record, asynchronous=False)
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()


def handle(event):
    # Write the effect under source and id, which identify the event. Then a second copy changes nothing.
    print(event.get_time().strftime("%H:%M:%S"), event.get_source(), event.get_id(), flush=True)


if __name__ == "__main__":
    main()
