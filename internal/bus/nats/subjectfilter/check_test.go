package subjectfilter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/nats/subjectfilter"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// others returns subjects of a form that is neither that of objects nor that of stream events.
func others(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("kubecdc.other.%d", i))
	}
	return out
}

// A query that ends with the records of the stream asks for no more subjects, and no wider ones,
// than these records have. It asks for the last record of each subject only if all records are
// under subjects of the template.
func TestSubjectsOfAStream(t *testing.T) {
	s, err := server.NewServer(&server.Options{
		Host:      "127.0.0.1",
		Port:      server.RANDOM_PORT,
		JetStream: true,
		StoreDir:  t.TempDir(),
		NoSigs:    true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(30 * time.Second) {
		t.Fatal("the server does not start")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	const (
		anywhere = "kubecdc.*.object.core.pods.shop.web kubecdc.*.stream.core.pods kubecdc.*.scope.core.pods.* kubecdc.*.progress.*"
		foreign  = " * *.* *.*.* *.*.*.*.*.*.*.>"
	)
	for i, c := range []struct {
		name     string
		clusters []string
		subjects []string // of further records
		follow   bool
		last     bool // of each subject
		want     string
	}{
		{
			"one cluster",
			[]string{"prod"},
			nil, false, true,
			"kubecdc.prod.object.core.pods.shop.web kubecdc.prod.stream.core.pods kubecdc.prod.scope.core.pods.* kubecdc.prod.progress.*",
		},
		{
			"a cluster whose name is escaped",
			[]string{"prod.eu"},
			nil, false, true,
			"kubecdc.prod%2Eeu.object.core.pods.shop.web kubecdc.prod%2Eeu.stream.core.pods kubecdc.prod%2Eeu.scope.core.pods.* kubecdc.prod%2Eeu.progress.*",
		},
		{
			"two clusters",
			[]string{"prod", "test"},
			nil, false, true,
			"kubecdc.prod.object.core.pods.shop.web kubecdc.test.object.core.pods.shop.web kubecdc.prod.stream.core.pods kubecdc.test.stream.core.pods " +
				"kubecdc.*.scope.core.pods.* kubecdc.prod.progress.3f0a kubecdc.test.progress.3f0a",
		},
		{
			"stream events of another cluster",
			[]string{"prod"},
			[]string{"kubecdc.test.stream.core.pods"},
			false, true,
			"kubecdc.prod.object.core.pods.shop.web kubecdc.prod.stream.core.pods kubecdc.test.stream.core.pods kubecdc.*.scope.core.pods.* kubecdc.prod.progress.3f0a",
		},
		{
			"dead letters",
			[]string{"prod"},
			[]string{"kubecdc.prod.dead"},
			false, false,
			"kubecdc.prod.object.core.pods.shop.web kubecdc.prod.stream.core.pods kubecdc.*.scope.core.pods.* kubecdc.prod.progress.3f0a kubecdc.prod.dead",
		},
		{
			"more other subjects than a filter may have", []string{
				"prod",
			}, others(65), false, false, anywhere + foreign,
		},
		{"records of another template", []string{"prod"}, []string{
			"kubecdc.prod.things.core.pods.shop.web",
		}, false, false, ""},
		{"more may come", []string{"prod"}, nil, true, false, anywhere + foreign},
	} {
		t.Run(c.name, func(t *testing.T) {
			stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
				Name: fmt.Sprint("s", i), Subjects: []string{"kubecdc.>"}, Storage: jetstream.MemoryStorage,
			})
			if err != nil {
				t.Fatal(err)
			}
			// its subjects are those of the next one
			defer func() { _ = js.DeleteStream(t.Context(), fmt.Sprint("s", i)) }()
			put := func(subject, cluster string) {
				t.Helper()
				body := fmt.Sprintf(
					`{"specversion":"1.0","id":"pods/u/1","source":"/kubernetes/c","type":"dev.kubecdc.object.updated","time":"2026-11-20T15:00:00Z",`+
						`"cluster":%q,"apiversion":"v1","kind":"Pod","resource":"pods","namespace":"shop","name":"web","uid":"u","op":"u","data":{"op":"u","after":{}}}`,
					cluster)
				if _, err := js.Publish(t.Context(), subject, []byte(body)); err != nil {
					t.Fatal(err)
				}
			}
			for _, cluster := range c.clusters {
				escaped := strings.ReplaceAll(cluster, ".", "%2E")
				put("kubecdc."+escaped+".object.core.pods.shop.web", cluster)
				put("kubecdc."+escaped+".stream.core.pods", cluster)
				put("kubecdc."+escaped+".scope.core.pods.pods", cluster)
				put("kubecdc."+escaped+".progress.3f0a", cluster)
			}
			for _, subject := range c.subjects {
				put(subject, "prod")
			}
			var whyNot error
			choose, err := subjectfilter.Choose("", func(err error) { whyNot = err })
			if err != nil {
				t.Fatal(err)
			}
			q := &consume.Query{
				Objects:    []consume.Objects{{Groups: []string{""}, Resource: "pods", Namespace: "shop", Name: "web"}},
				StopAtEnd:  !c.follow,
				LastOfEach: true,
			}
			got := strings.Join(choose(t.Context(), stream, q), " ")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s%v", diff, whyNot)
			}
			if q.LastOfEach != c.last {
				t.Errorf("last of each subject: got %t, want %t", q.LastOfEach, c.last)
			}
		})
	}
}
