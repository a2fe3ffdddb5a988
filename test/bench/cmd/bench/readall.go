package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// runReadAll reads a stream and parses each event, as a consumer that cannot ask for less.
func runReadAll(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("bench readall", flag.ContinueOnError)
	source := &consume.JetStream{}
	flags.StringVar(&source.URL, "bus", "", "URL of the bus")
	text := flags.String("at", "", "read up to this time only, from the last snapshot before it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	start, at := consume.Beginning(), time.Time{}
	if *text != "" {
		var err error
		if at, err = time.Parse(time.RFC3339, *text); err != nil {
			return err
		}
		if start, err = lastSnapshot(ctx, source, at); err != nil {
			return err
		}
	}
	n := 0
	err := readUntil(ctx, source, start, at, func(*consume.Event) { n++ })
	if err == nil {
		_, err = fmt.Fprintln(stdout, n)
	}
	return err
}

// lastSnapshot returns where the last snapshots before a time begin. Those of all resources follow each other within a
// minute.
func lastSnapshot(ctx context.Context, source *consume.JetStream, at time.Time) (consume.Start, error) {
	streams := &consume.JetStream{URL: source.URL, Subjects: []string{"kubecdc.*.stream.*.*"}}
	var last consume.Position
	var began time.Time
	err := readUntil(ctx, streams, consume.Beginning(), at, func(e *consume.Event) {
		if e.Type == consume.TypeSnapshotStarted && e.Time.Sub(began) > time.Hour {
			last, began = e.Position, e.Time
		}
	})
	last.Next--
	return consume.After(last), err
}

// readUntil calls f for each event up to a time, zero for all.
func readUntil(ctx context.Context, source *consume.JetStream, start consume.Start, at time.Time, f func(*consume.Event)) error {
	r, err := source.Read(ctx, consume.Query{Start: start, StopAtEnd: true})
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // only read
	for {
		e, err := r.Next(ctx)
		switch {
		case errors.Is(err, io.EOF), err == nil && !at.IsZero() && e.Time.After(at):
			return nil
		case err != nil:
			return err
		}
		f(e)
	}
}
