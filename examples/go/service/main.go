// Command service handles each event of the stream at least once, even if it restarts. The NATS
// server stores its position.
//
//	go run ./examples/go/service [-server nats://127.0.0.1:4222] [-stream KUBECDC] [-durable audit] [SUBJECT...]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

func main() {
	server := flag.String("server", "nats://127.0.0.1:4222", "the URL of NATS")
	stream := flag.String("stream", fromnats.DefaultStream, "the stream")
	durable := flag.String("durable", "audit",
		"the name of the durable consumer, in which the server stores the position")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	options := fromnats.RunOptions{
		JetStream: fromnats.JetStream{URL: *server, Stream: *stream, Subjects: flag.Args()},
		Start:     consume.Beginning(),
		Durable:   *durable,
	}
	err := fromnats.Run(ctx, options, func(_ context.Context, e *consume.Event) error {
		// After this function returns nil, the event is not delivered again. Until then it may be:
		// after a crash, for example. Write idempotently, with e.Source and e.ID as the key of the
		// event.
		_, err := fmt.Fprintln(os.Stdout, e.Time.Format("15:04:05"), e.Source, e.ID)
		return err
	})
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
