"""Follows the stream of kubecdc and prints changes. With --once, it prints the objects that exist, and ends.

    python follow.py [--server nats://127.0.0.1:4222] [--stream KUBECDC] [--once] [SUBJECT...]

Subjects select the events, by default all: "kubecdc.*.*.core.pods.>" are the Pods of all clusters, stream events included.
"""

import argparse
import asyncio
import json
import sys

import nats
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError, ServiceUnavailableError

from table import Table


class Lost(Exception):
    """A record was lost on its way, or the server lost the consumer."""


async def records(js, stream, subjects):
    """Yields each record of the stream in order, from the first one on, and None whenever there are no more for now."""
    last = 0  # position of the last record that was yielded
    while True:
        try:
            # Nothing is acknowledged: after a loss, reading resumes after the last record.
            config = ConsumerConfig(
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=last + 1,
                filter_subjects=subjects,
                ack_policy=AckPolicy.NONE,
                inactive_threshold=60,
                mem_storage=True,
            )
            consumer = await js.add_consumer(stream, config)
            pull = await js.pull_subscribe_bind(stream=stream, consumer=consumer.name)
            pending, received = consumer.num_pending, 0
            while True:
                if not pending:
                    yield None
                for record in await fetch(pull, pending, received):
                    received += 1
                    if record.metadata.sequence.consumer != received:
                        raise Lost
                    last, pending = record.metadata.sequence.stream, record.metadata.num_pending
                    yield record
        except (Lost, nats.errors.TimeoutError, nats.errors.NoRespondersError, ServiceUnavailableError):
            await asyncio.sleep(1)


async def fetch(pull, pending, received):
    """The records that are there, or the next one; after five seconds without any, none."""
    try:
        return await pull.fetch(min(pending, 256) or 1, timeout=5)
    except nats.errors.TimeoutError:
        if pending:
            raise Lost from None
    try:
        info = await pull.consumer_info()
    except NotFoundError:
        raise Lost from None
    if info.delivered.consumer_seq != received:
        raise Lost
    return []


async def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--server", default="nats://127.0.0.1:4222")
    args.add_argument("--stream", default="KUBECDC")
    args.add_argument("--once", action="store_true")
    args.add_argument("subjects", metavar="SUBJECT", nargs="*", default=["kubecdc.>"])
    args = args.parse_args()

    async def report(err):
        print("NATS:", err, file=sys.stderr)  # The client reconnects by itself.

    try:
        nc = await asyncio.wait_for(nats.connect(args.server, max_reconnect_attempts=-1, error_cb=report), timeout=5)
    except (asyncio.TimeoutError, OSError, nats.errors.Error):
        sys.exit(f"no NATS server answers at {args.server}")
    table = Table()
    try:
        async for record in records(nc.jetstream(), args.stream, args.subjects):
            if record is None:
                if args.once:
                    break
                continue
            event = from_http_event(HTTPMessage(record.headers, record.data))
            for what, row in table.apply(event):
                if not args.once:
                    print(what, row.resource, f"{row.namespace}/{row.name}".lstrip("/"), flush=True)
    except NotFoundError:
        sys.exit(f"no stream {args.stream} at {args.server}")
    finally:
        await nc.close()

    if args.once:
        for ((source, clusteruid), resource, uid), row in table.rows.items():
            print(json.dumps({"source": source, "clusteruid": clusteruid, "resource": resource, "uid": uid, "object": row.object}))


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
