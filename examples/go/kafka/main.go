// Command kafka handles each event of Kafka topics at least once. The members of its consumer group
// share the partitions, and the broker stores the group's position.
//
//	go run ./examples/go/kafka [-brokers 127.0.0.1:9092] [-group audit] TOPIC...
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromkafka"
)

func main() {
	brokers := flag.String("brokers", "127.0.0.1:9092", "addresses of brokers, separated by commas")
	group := flag.String("group", "audit", "name of the consumer group")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	bus := &fromkafka.Kafka{Brokers: strings.Split(*brokers, ","), Topics: flag.Args(), Group: *group}
	if err := run(ctx, bus); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bus *fromkafka.Kafka) error {
	// A group without a stored position begins with the oldest record.
	events, err := bus.Read(ctx, consume.Query{Start: consume.Beginning()})
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }() // only read
	group, ok := events.(fromkafka.Committer)
	if !ok {
		return errors.New("-group: must not be empty")
	}
	for {
		e, err := events.Next(ctx)
		if record, missed := new(consume.RecordError), new(consume.MissedError); errors.As(err, &record) ||
			errors.As(err, &missed) {
			fmt.Fprintln(os.Stderr, err) // Next continues after it
			continue
		}
		if err != nil {
			return err
		}
		// Write the effect under e.Source and e.ID, which identify the event. Then a second copy
		// changes nothing.
		if _, err := fmt.Fprintln(os.Stdout, e.Time.Format("15:04:05"), e.Source, e.ID); err != nil {
			return err
		}
		// A service that handles many events a second commits once a second, not after each event.
		if err := group.Commit(ctx, events.Positions()...); err != nil {
			return err
		}
	}
}
