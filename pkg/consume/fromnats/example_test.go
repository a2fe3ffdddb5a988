package fromnats_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

// A cache of the cluster's objects, built from the stream. It ignores duplicates, and drops objects
// that a snapshot shows to be gone.
func Example() {
	ctx := context.Background()
	url, stop := exampleBus(
		consumetest.SnapshotMarker("started", "S1"),
		consumetest.PodEvent("r", "web", "uid-1", 100, "S1"),
		consumetest.PodEvent("r", "old", "uid-2", 90, "S1"),
		consumetest.SnapshotMarker("completed", "S1"),
		consumetest.PodEvent("u", "web", "uid-1", 120, ""),
		consumetest.PodEvent("u", "web", "uid-1", 120, "again, since the agent did not get the acknowledgement"),
		// The agent was down when old was deleted. It takes another snapshot, which does not have
		// it.
		consumetest.SnapshotMarker("started", "S2"),
		consumetest.PodEvent("r", "web", "uid-1", 120, "S2"),
		consumetest.SnapshotMarker("completed", "S2"),
	)
	defer stop()

	bus := &fromnats.JetStream{URL: url}
	r, err := bus.Read(ctx, consume.Query{Start: consume.Beginning(), StopAtEnd: true})
	if err != nil {
		panic(err)
	}
	defer r.Close()
	var rules consume.Tracker
	cache := map[string]json.RawMessage{} // by uid
	for {
		e, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			panic(err)
		}
		verdict := rules.Apply(e)
		for _, gone := range verdict.Gone {
			fmt.Println("gone:", gone.Namespace, gone.Name)
			delete(cache, gone.UID)
		}
		if !verdict.News || e.Data == nil {
			continue
		}
		fmt.Println(e.Op, e.Namespace, e.Name, e.ResourceVersion)
		switch e.Op {
		case consume.Deleted, consume.Left:
			delete(cache, e.UID)
		default:
			cache[e.UID] = e.Data.After
		}
	}
	fmt.Println(len(cache), "in the cache, the next record is", r.Positions()[0].Next)
	// Output:
	// r shop web 100
	// r shop old 90
	// u shop web 120
	// gone: shop old
	// 1 in the cache, the next record is 10
}

// A service. Run delivers an event again if the handler fails; after a restart, it resumes after
// the last acknowledged event.
func ExampleRun() {
	url, stop := exampleBus(consumetest.PodEvent("c", "web", "uid-1", 100, ""),
		consumetest.PodEvent("u", "web", "uid-1", 101, ""))
	defer stop()

	o := fromnats.RunOptions{Durable: "billing"}
	o.URL, o.Start = url, consume.Beginning()
	o.OnRetry = func(err error) { fmt.Println("retry:", err) }
	done := errors.New("that was the last one")
	ctx, cancel := context.WithCancelCause(context.Background())
	refused := false
	err := fromnats.Run(ctx, o, func(_ context.Context, e *consume.Event) error {
		if !refused {
			refused = true
			return errors.New("the database is away")
		}
		fmt.Println("handled", e.ID)
		if e.ResourceVersion == "101" {
			cancel(done)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// retry: stream KUBECDC, record 1: handle pods/uid-1/100: the database is away
	// handled pods/uid-1/100
	// handled pods/uid-1/101
	// that was the last one
}

// exampleBus is a JetStream that holds the records.
func exampleBus(records ...string) (url string, stop func()) {
	dir, err := os.MkdirTemp("", "kubecdc-example-")
	if err != nil {
		panic(err)
	}
	s, err := server.NewServer(&server.Options{
		Host:      "127.0.0.1",
		Port:      server.RANDOM_PORT,
		JetStream: true,
		StoreDir:  dir,
		NoSigs:    true,
		NoLog:     true,
	})
	if err != nil {
		panic(err)
	}
	s.Start()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		panic(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		panic(err)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: fromnats.DefaultStream, Subjects: []string{
		"kubecdc.>",
	}}); err != nil {
		panic(err)
	}
	for _, r := range records {
		if _, err := js.Publish("kubecdc.prod.object.core.pods.shop.web", []byte(r)); err != nil {
			panic(err)
		}
	}
	return s.ClientURL(), func() {
		s.Shutdown()
		s.WaitForShutdown()
		_ = os.RemoveAll(dir)
	}
}
