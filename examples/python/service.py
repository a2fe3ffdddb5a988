"""Handles each event of the stream at least once, even if it restarts. The NATS server stores its position.

    python service.py [--server nats://127.0.0.1:4222] [--creds FILE] [--tls-ca FILE] [--stream KUBECDC] [--durable audit] [SUBJECT...]
"""

import argparse
import asyncio
import ssl
import sys

import nats
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from nats.js.api import ConsumerConfig


async def run(args):
    async def report(err):
        print("NATS:", err, file=sys.stderr)  # The client reconnects by itself.

    tls = ssl.create_default_context(cafile=args.tls_ca) if args.tls_ca else None
    nc = await nats.connect(args.server, user_credentials=args.creds, tls=tls, max_reconnect_attempts=-1, error_cb=report)
    try:
        js = nc.jetstream()
        config = ConsumerConfig(
            name=args.durable,
            durable_name=args.durable,
            filter_subjects=args.subjects,
            ack_wait=60,
            max_ack_pending=1,  # With more, a record that is delivered again would arrive after later ones.
        )
        await js.add_consumer(args.stream, config)
        pull = await js.pull_subscribe_bind(stream=args.stream, consumer=args.durable)
        while True:
            try:
                for record in await pull.fetch(timeout=5):
                    handle(from_http_event(HTTPMessage(record.headers, record.data)))
                    await record.ack_sync()  # Returns after the server has stored the acknowledgement.
            except nats.errors.TimeoutError:
                pass  # There is no new record, or no connection.
    finally:
        await nc.close()


def handle(event):
    # Write the effect under source and id, which identify the event. Then a second copy changes nothing.
    print(event.get_time().strftime("%H:%M:%S"), event.get_source(), event.get_id(), flush=True)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--server", default="nats://127.0.0.1:4222")
    args.add_argument("--creds", help="credentials of the user, for example user.creds")
    args.add_argument("--tls-ca", help="authority of the server's certificate, for example ca.crt")
    args.add_argument("--stream", default="KUBECDC")
    args.add_argument("--durable", default="audit", help="name of the consumer, in which the server stores the position")
    args.add_argument("subjects", metavar="SUBJECT", nargs="*", default=["kubecdc.>"])
    args = args.parse_args()
    try:
        asyncio.run(run(args))
    except nats.errors.Error as err:  # Started again, the program resumes after the last acknowledged record.
        sys.exit(f"stream {args.stream} at {args.server}: {err}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
