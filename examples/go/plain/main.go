// Command plain reads events without package consume. It uses a durable consumer of nats.go, and
// handles one record at a time.
//
//	go run ./examples/go/plain [-server nats://127.0.0.1:4222] [-durable plain] [SUBJECT...]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func main() {
	server := flag.String("server", "nats://127.0.0.1:4222", "the URL of NATS")
	durable := flag.String("durable", "plain", "the name of the durable consumer")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *server, *durable, flag.Args()); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, server, durable string, subjects []string) error {
	nc, err := nats.Connect(server, nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	consumer, err := js.CreateOrUpdateConsumer(ctx, "KUBECDC", jetstream.ConsumerConfig{
		Durable:        durable,
		FilterSubjects: subjects,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        time.Minute,
		MaxAckPending:  1, // with more, a record that is delivered again would arrive after later ones
	})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return err
		}
		var event struct {
			Source, ID, Type, Subject string
			Data                      struct{ Before, After, Patch json.RawMessage }
		}
		if err := json.Unmarshal(m.Data(), &event); err != nil {
			return fmt.Errorf("%s: %w", m.Subject(), err)
		}
		fmt.Fprintln(os.Stdout, event.Type, event.Subject, string(event.Data.Patch))
		if err := m.DoubleAck(ctx); err != nil { // returns after the server has stored the acknowledgement
			return err
		}
	}
}
