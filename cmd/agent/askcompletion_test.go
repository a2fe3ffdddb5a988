package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/internal/past/record"
)

// Completion offers the names of all objects, whatever subjects the record has. It reads one event
// of each object if each object has a subject of its own.
func TestNamesOfALongRecord(t *testing.T) {
	t.Parallel()
	const (
		versions    = 50
		byNamespace = "kubecdc.{cluster}.object.{group}.{resource}.{namespace}"
		inOneToken  = "kubecdc.{cluster}.object.{group}.{resource}.{namespace}-{name}"
	)
	pods := []string{"shop/api", "shop/web", "test/job"}
	for _, c := range []struct {
		name, template string // of the subjects of the record
		config         bool   // the reader knows the template
		clusters       []string
		deadLetters    int
		want           int // events
	}{
		{"a subject for each object", subject.Default, false, []string{"x"}, 0, len(pods)},
		{"two clusters", subject.Default, false, []string{"x", "y"}, 0, 2 * len(pods)},
		{"dead letters", subject.Default, false, []string{"x"}, 1, versions*len(pods) + 1},
		{"a subject for each namespace", byNamespace, true, []string{"x"}, 0, versions * len(pods)},
		{"a subject for each namespace, unknown to the reader", byNamespace, false, []string{
			"x",
		}, 0, versions * len(pods)},
		{"a subject that two objects may share", inOneToken, true, []string{"x"}, 0, versions * len(pods)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := startServer(t, t.TempDir(), -1).ClientURL()
			js := connect(t, url)
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KUBECDC", Subjects: []string{
				"kubecdc.>",
			}}); err != nil {
				t.Fatal(err)
			}
			put := func(subject, cluster, namespace, name, more string, rv int) {
				t.Helper()
				if _, err := js.Publish(t.Context(), subject,
					fmt.Appendf(nil, `{"specversion":"1.0","id":"pods/%[3]s/%[4]d","source":"/kubernetes/%[1]s",`+
						`"type":"dev.kubecdc.object.updated","time":"2026-11-20T14:00:00Z","cluster":%[1]q,"apiversion":"v1","kind":"Pod","resource":"pods","namespace":%[2]q,`+
						`"name":%[3]q,"uid":%[3]q,"op":"u",%[5]s"resourceversion":"%[4]d","sequence":"%020[4]d","data":{"op":"u","resourceVersion":"%[4]d","after":{}}}`,
						cluster, namespace, name, rv, more)); err != nil {
					t.Fatal(err)
				}
			}
			for n := range c.deadLetters {
				put("kubecdc.x.dead", "x", "shop", "api", `"deadletterreason":"too large",`, n+1)
			}
			for version := range versions {
				for _, cluster := range c.clusters {
					for _, pod := range pods {
						namespace, name, _ := strings.Cut(pod, "/")
						fields := strings.NewReplacer("{cluster}", cluster, "{group}", "core", "{resource}", "pods",
							"{namespace}", namespace, "{name}", name)
						put(fields.Replace(c.template), cluster, namespace, name, "", version+100)
					}
				}
			}
			var f askFlags
			f.bus.Bus = url
			if c.config {
				f.bus.Config = filepath.Join(t.TempDir(), "kubecdc.yaml")
				text := "apiVersion: kubecdc.dev/v1\nbus:\n  nats:\n    subject: '" + c.template + "'\n"
				if err := os.WriteFile(f.bus.Config, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r, err := f.open(io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			got := r.ObjectNames(t.Context(), &record.Selection{Resources: []record.Resource{{Plural: "pods"}}})
			if want := []string{"api", "job", "web"}; !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if got := int(r.Events()); got != c.want {
				t.Errorf("%d events were delivered, want %d", got, c.want)
			}
		})
	}
}
