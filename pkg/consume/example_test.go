package consume_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// A cache of the cluster's objects, built from the stream. It ignores duplicates, and drops objects that a snapshot shows to be gone.
func Example() {
	ctx := context.Background()
	url, stop := exampleBus(
		snapshotMarker("started", "S1"),
		podEvent("r", "web", "uid-1", 100, "S1"),
		podEvent("r", "old", "uid-2", 90, "S1"),
		snapshotMarker("completed", "S1"),
		podEvent("u", "web", "uid-1", 120, ""),
		podEvent("u", "web", "uid-1", 120, "again, since the agent did not get the acknowledgement"),
		// The agent was down when old was deleted. It takes another snapshot, which does not have it.
		snapshotMarker("started", "S2"),
		podEvent("r", "web", "uid-1", 120, "S2"),
		snapshotMarker("completed", "S2"),
	)
	defer stop()

	bus := &consume.JetStream{URL: url}
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

// A service. Run delivers an event again if the handler fails; after a restart, it resumes after the last acknowledged event.
func ExampleRun() {
	url, stop := exampleBus(podEvent("c", "web", "uid-1", 100, ""), podEvent("u", "web", "uid-1", 101, ""))
	defer stop()

	o := consume.RunOptions{Durable: "billing"}
	o.URL, o.Start = url, consume.Beginning()
	o.OnRetry = func(err error) { fmt.Println("retry:", err) }
	done := errors.New("that was the last one")
	ctx, cancel := context.WithCancelCause(context.Background())
	refused := false
	err := consume.Run(ctx, o, func(_ context.Context, e *consume.Event) error {
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

// The history of one object, from Kafka. If the name of the cluster is given, only the object's partition is read.
func ExampleKafka() {
	ctx := context.Background()
	bus := &consume.Kafka{Brokers: []string{"127.0.0.1:9092"}, Topics: []string{"kubecdc.prod"}, Cluster: "prod"}
	web := consume.Objects{Groups: []string{"apps"}, Resource: "deployments", Namespace: "shop", Name: "web"}
	r, err := bus.Read(ctx, consume.Query{
		Objects: []consume.Objects{web}, Events: consume.ObjectEvents, Start: consume.Since(time.Now().Add(-time.Hour)), StopAtEnd: true,
	})
	if err != nil {
		panic(err)
	}
	defer r.Close()
	for {
		e, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(err)
		}
		if e.Data != nil && e.Name == "web" { // the partition has other objects too
			fmt.Println(e.Time, e.Op, e.ResourceVersion)
		}
	}
}

// A receiver built on the CloudEvents SDK, here over HTTP, that applies the rules of the contract.
func ExampleFromCloudEvent() {
	var rules consume.Tracker
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ce, err := binding.ToEvent(r.Context(), cehttp.NewMessageFromHttpRequest(r))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		e, err := consume.FromCloudEvent(ce)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Println(e.ID, "news:", rules.Apply(e).News)
	}))
	defer receiver.Close()

	for range 2 { // a duplicate, as after a lost answer
		body := strings.NewReader(podEvent("c", "web", "uid-1", 100, ""))
		res, err := http.Post(receiver.URL, "application/cloudevents+json", body)
		if err != nil {
			panic(err)
		}
		res.Body.Close()
	}
	// Output:
	// pods/uid-1/100 news: true
	// pods/uid-1/100 news: false
}

// An event for a sender or a router built on the CloudEvents SDK. It has the same id, attributes and data.
func ExampleEvent_CloudEvent() {
	e, err := consume.Parse([]byte(podEvent("c", "web", "uid-1", 100, "")))
	if err != nil {
		panic(err)
	}
	ce, err := e.CloudEvent()
	if err != nil {
		panic(err)
	}
	fmt.Println(ce.Type(), ce.ID())
	fmt.Println(ce.Extensions()["kind"], ce.Extensions()["namespace"], ce.Extensions()["name"])
	// Output:
	// dev.kubecdc.object.created pods/uid-1/100
	// Pod shop web
}

// A file of events, read in two parts: the second reader continues at the position at which the first one stopped.
func ExampleFile() {
	ctx := context.Background()
	file := &consume.File{Path: exampleFile(
		podEvent("c", "web", "uid-1", 100, ""),
		podEvent("u", "web", "uid-1", 101, ""),
		podEvent("d", "web", "uid-1", 102, ""),
	)}
	defer func() { _ = os.Remove(file.Path) }()

	start := consume.Beginning()
	for _, part := range []int{1, 10} { // at most this number of events
		r, err := file.Read(ctx, consume.Query{Start: start})
		if err != nil {
			panic(err)
		}
		for range part {
			e, err := r.Next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				panic(err)
			}
			fmt.Println(e.Op, e.Name, e.ResourceVersion)
		}
		start = consume.After(r.Positions()...)
		fmt.Println("the next line is", r.Positions()[0].Next)
		r.Close()
	}
	// Output:
	// c web 100
	// the next line is 2
	// u web 101
	// d web 102
	// the next line is 4
}

// The pods that have been deleted, from a file of JSON lines.
func ExampleNewLines() {
	file := strings.NewReader(podEvent("c", "web", "uid-1", 100, "") + "\n" + podEvent("d", "web", "uid-1", 102, "") + "\n")
	lines := consume.NewLines("", file, consume.Query{})
	for {
		e, err := lines.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			panic(err)
		}
		if e.GroupResource() == "pods" && e.Op == consume.Deleted {
			fmt.Println("deleted:", e.Subject)
		}
	}
	// Output:
	// deleted: /api/v1/namespaces/shop/pods/web
}

// A Tracker is saved together with the position in the stream, and resumes from there.
func ExampleTracker_saved() {
	var rules consume.Tracker
	first, err := consume.Parse([]byte(podEvent("c", "web", "uid-1", 100, "")))
	if err != nil {
		panic(err)
	}
	rules.Apply(first)
	saved, err := json.Marshal(&rules)
	if err != nil {
		panic(err)
	}

	var restored consume.Tracker
	if err := json.Unmarshal(saved, &restored); err != nil {
		panic(err)
	}
	fmt.Println("objects:", restored.Len())
	fmt.Println("news:", restored.Apply(first).News)
	// Output:
	// objects: 1
	// news: false
}

func podEvent(op, name, uid string, rv int, snapshot string) string {
	verbs := map[string]string{"c": "created", "u": "updated", "d": "deleted", "r": "read"}
	id := fmt.Sprintf("pods/%s/%d", uid, rv)
	if op == "r" {
		id += "/r/" + snapshot
	}
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/kubernetes/prod","type":"dev.kubecdc.object.%s",`+
		`"subject":"/api/v1/namespaces/shop/pods/%s","apiversion":"v1","kind":"Pod","resource":"pods","namespace":"shop","name":%q,`+
		`"uid":%q,"op":%q,"resourceversion":"%d","sequence":"%020d","data":{"op":%q,"resourceVersion":"%d","snapshot":%q,"after":{}}}`,
		id, verbs[op], name, name, uid, op, rv, rv, op, rv, snapshot)
}

func snapshotMarker(what, snapshot string) string {
	rv := map[string]int{"S1": 100, "S2": 150}[snapshot]
	return fmt.Sprintf(`{"specversion":"1.0","id":"pods/%s/%s","source":"/kubernetes/prod","type":"dev.kubecdc.snapshot.%s",`+
		`"apiversion":"v1","kind":"Pod","resource":"pods","scope":"pods","resourceversion":"%d","sequence":"%020d",`+
		`"data":{"snapshot":%q,"resourceVersion":"%d","objects":1}}`, snapshot, what, what, rv, rv, snapshot, rv)
}

// exampleFile is a file that has the records, one on each line.
func exampleFile(records ...string) (path string) {
	f, err := os.CreateTemp("", "kubecdc-example-*.jsonl")
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Join(records, "\n") + "\n"); err != nil {
		panic(err)
	}
	return f.Name()
}

// exampleBus is a JetStream that holds the records.
func exampleBus(records ...string) (url string, stop func()) {
	dir, err := os.MkdirTemp("", "kubecdc-example-")
	if err != nil {
		panic(err)
	}
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true})
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
	if _, err := js.AddStream(&nats.StreamConfig{Name: consume.DefaultStream, Subjects: []string{"kubecdc.>"}}); err != nil {
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
