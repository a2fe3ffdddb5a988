// Command service handles each event of the stream at least once, also across its own restarts: the server stores
// its position.
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
)

func main() {
	server := flag.String("server", "nats://127.0.0.1:4222", "where NATS is")
	stream := flag.String("stream", consume.DefaultStream, "the stream")
	durable := flag.String("durable", "audit", "the name under which the server remembers how far this service is")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	options := consume.RunOptions{
		JetStream: consume.JetStream{URL: *server, Stream: *stream, Subjects: flag.Args()},
		Start:     consume.Beginning(),
		Durable:   *durable,
	}
	err := consume.Run(ctx, options, func(_ context.Context, e *consume.Event) error {
		// Once this returns nil the event does not come again; before, it may. Let it be written by e.Source and e.ID, which
		// name it, and a second time changes nothing.
		_, err := fmt.Fprintln(os.Stdout, e.Time.Format("15:04:05"), e.Source, e.ID)
		return err
	})
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
