package answers_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// podBus is a JetStream with the Pod shop/web, which is deleted later, and many stream events. It
// returns the number of these.
func podBus(t *testing.T) (url string, streamEvents int) {
	t.Helper()
	bus, err := server.NewServer(&server.Options{
		Host:      "127.0.0.1",
		Port:      server.RANDOM_PORT,
		JetStream: true,
		StoreDir:  t.TempDir(),
		NoSigs:    true,
		NoLog:     true,
	})
	if err != nil {
		t.Fatal(err)
	}
	bus.Start()
	t.Cleanup(func() {
		bus.Shutdown()
		bus.WaitForShutdown()
	})
	if !bus.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not come up")
	}
	nc, err := nats.Connect(bus.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: fromnats.DefaultStream, Subjects: []string{
		"kubecdc.>",
	}}); err != nil {
		t.Fatal(err)
	}
	rv := 0
	publish := func(subject, id, typ, members, data string) {
		rv++
		body := fmt.Sprintf(
			`{"specversion":"1.0","id":%q,"source":"/kubernetes/x","type":"dev.kubecdc.%s","time":%q,"cluster":"x","apiversion":"v1","kind":"Pod",`+
				`"resource":"pods",%s,"resourceversion":"%[5]d","sequence":"%020[5]d","partitionkey":"k","data":{%s"resourceVersion":"%[5]d"}}`,
			id, typ, time.Date(2026, 11, 20, 14, rv, 0, 0, time.UTC).Format(time.RFC3339), members, rv, data)
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{
			Subject: "kubecdc.x." + subject, Data: []byte(body), Header: nats.Header{"content-type": {
				"application/cloudevents+json",
			}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	stream := func(typ, data string) {
		streamEvents++
		publish("stream.core.pods", fmt.Sprint("pods/", rv), typ, `"scope":"pods"`, data)
	}
	object := func(typ, op, id, data string) {
		publish("object.core.pods.shop.web", id, "object."+typ,
			`"namespace":"shop","name":"web","uid":"u1","op":"`+op+`"`, `"op":"`+op+`",`+data)
	}
	stream("snapshot.started", `"snapshot":"s1","objects":1,`)
	object("read", "r", "pods/u1/1/r/s1", `"snapshot":"s1","after":{"metadata":{"name":"web"}},`)
	stream("snapshot.completed", `"snapshot":"s1","objects":1,`)
	object("deleted", "d", "pods/u1/d", `"after":null,`)
	for range 300 {
		stream("progress", "")
	}
	return bus.ClientURL(), streamEvents
}

// The explanation of an empty answer reads the events of the object alone if it has none: stream
// events do not say that a name never existed.
func TestMistypedNameReadsNoMoreStreamEvents(t *testing.T) {
	url, streamEvents := podBus(t)
	choose := func(_ context.Context, _ jetstream.Stream, q *consume.Query) []string {
		switch q.Events {
		case consume.ProgressEvents:
			return []string{"kubecdc.*.progress.*"}
		case consume.ScopeEvents:
			return []string{"kubecdc.*.scope.core.pods.*", "kubecdc.*.progress.*"}
		}
		object, stream := "kubecdc.*.object.core.pods.shop."+q.Objects[0].Name, "kubecdc.*.stream.core.pods"
		switch q.Events {
		case consume.ObjectEvents:
			return []string{object}
		case consume.StreamEvents:
			return []string{stream}
		}
		return []string{object, stream}
	}
	at := timeline.At(time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC))
	open := func() *record.Record {
		return &record.Record{Source: &fromnats.JetStream{URL: url, Choose: choose}}
	}
	for _, c := range []struct {
		name, want string
		reads      int // events, beside those of the state
	}{
		{"wbe", `pods "wbe" is not in the record in namespace shop at any moment`, 0},
		// The stream events are read to find the progress around the end, and with the object. They
		// are read twice to find where its history begins, because the scope has no start.
		{"web", `pods "web" did not exist in namespace shop at `, 1 + 1 + 2 + 4*streamEvents},
	} {
		wanted, err := record.NewSelection([]string{"pods", c.name}, "shop", "", "")
		if err != nil {
			t.Fatal(err)
		}
		state := open()
		if err := state.Resolve(t.Context(), wanted); err != nil {
			t.Fatal(err)
		}
		if _, _, err := state.States(t.Context(), wanted, at); err != nil {
			t.Fatal(err)
		}
		q := answers.New(open(), wanted, printer.Format{Name: printer.JSON},
			&terminal.Output{Writer: io.Discard}, &terminal.Output{Writer: io.Discard})
		if err := q.Get(t.Context(), at); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
		if got := q.Record.Events() - state.Events(); got != int64(c.reads) {
			t.Errorf("%s: the explanation reads %d events, want %d", c.name, got, c.reads)
		}
	}
}
