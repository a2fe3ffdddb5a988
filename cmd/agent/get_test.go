package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// recorded returns the record of the tests: a file, and its lines.
func recorded(t *testing.T) (file string, lines []string) {
	t.Helper()
	file = "testdata/record.jsonl"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, strings.Split(strings.TrimSpace(string(raw)), "\n")
}

// recordedBus is a JetStream with events, each on the subject on which an agent publishes it.
func recordedBus(t *testing.T, dir string, port int, lines []string) (url string) {
	t.Helper()
	s := startServer(t, dir, port)
	fillBus(t, connect(t, s.ClientURL()), lines)
	return s.ClientURL()
}

// fillBus publishes events, and creates the stream.
func fillBus(t *testing.T, js jetstream.JetStream, lines []string) {
	t.Helper()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KUBECDC", Subjects: []string{
		"kubecdc.>",
	}}); err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		e, err := consume.Parse([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		template := subject.Default
		if e.Stream != nil {
			template = subject.Stream
		}
		if e.Progress != nil {
			template = "kubecdc.{cluster}.progress." + e.Progress.Writer
		}
		fields := []string{}
		for field, value := range map[string]string{
			"cluster": e.Cluster, "group": e.Group(), "resource": e.Resource, "namespace": e.Namespace, "name": e.Name,
		} {
			fields = append(fields, "{"+field+"}", subject.Token(field, value))
		}
		m := &nats.Msg{
			Subject: strings.NewReplacer(fields...).Replace(template),
			Header:  nats.Header{},
			Data:    []byte(line),
		}
		m.Header.Set("content-type", "application/cloudevents+json")
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

// printed is what a command prints.
type printed struct {
	Out, Err string
	Code     int
}

func answerOf(t *testing.T, args ...string) printed {
	t.Helper()
	var out, said bytes.Buffer
	code := run(t.Context(), args, &out, &said)
	return printed{out.String(), said.String(), code}
}

// answerOfJetStream is answerOf without the line that only a JetStream has: if it is not read
// whole, late spans are not known, unless --since asks for them.
func answerOfJetStream(t *testing.T, args ...string) printed {
	t.Helper()
	got := answerOf(t, args...)
	said := strings.Replace(got.Err, "  late spans in between are not listed: 'kubecdc history --since' lists them\n",
		"", 1)
	if slices.Contains(args, "--since") && said != got.Err {
		t.Errorf("%v says of late spans: %s", args, got.Err)
	}
	got.Err = said
	return got
}

// On a JetStream a state is read from the last snapshot that was completed; from a file, from the
// beginning. Both say the same.
func TestGetFromASnapshotIsGetFromTheBeginning(t *testing.T) {
	t.Parallel()
	file, lines := recorded(t)
	url := recordedBus(t, t.TempDir(), -1, lines)
	var moments []string
	for rv := 95; rv < 215; rv += 9 {
		moments = append(moments, fmt.Sprint("rv:", rv))
	}
	for second := range 14 {
		moments = append(moments, fmt.Sprintf("2026-11-20T14:%02d:%02dZ", second, second*4))
	}
	for _, at := range moments {
		for _, args := range [][]string{{"all"}, {"cm", "-n", "shop"}, {"deploy/web", "-n", "shop"}, {"wd"}} {
			command := append([]string{"get", "-o", "json", "--at", at}, args...)
			want := answerOf(t, append(command, "--bus", "file:"+file)...)
			got := answerOf(t, append(command, "--bus", url)...)
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("%v: -file +JetStream\n%s", command, diff)
			}
		}
	}
}

// The history of objects is the same from a JetStream, which sends a few subjects, and from a file,
// which is read whole.
func TestHistoryFromJetStreamIsHistoryFromAFile(t *testing.T) {
	t.Parallel()
	file, lines := recorded(t)
	url := recordedBus(t, t.TempDir(), -1, lines)
	for _, args := range [][]string{
		{"deploy/web", "-n", "shop", "--until", "2026-11-21T00:00:00Z"},
		{"cm", "-n", "shop", "--until", "2026-11-21T00:00:00Z"},
		{"wd", "--until", "2026-11-21T00:00:00Z"},
		{"deploy/web", "-n", "shop", "--until", "rv:150"},
		{"deploy/web", "-n", "shop", "--since", "2026-11-20T14:05:00Z", "--until", "2026-11-21T00:00:00Z"},
	} {
		command := append([]string{"history", "-o", "json"}, args...)
		want := answerOf(t, append(command, "--bus", "file:"+file)...)
		got := answerOfJetStream(t, append(command, "--bus", url)...)
		if diff := gocmp.Diff(want, got); diff != "" || want.Out == "" {
			t.Errorf("%v: %s: -file +JetStream\n%s", command, want.Err, diff)
		}
	}
}

// A command that reads the past says what is wrong with a bus and prints no answer.
func TestGetSaysWhatIsWrongWithABus(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := listener.Addr().String()
	listener.Close()
	foreign := startServer(t, t.TempDir(), -1)
	publishForeign(t, foreign.ClientURL())
	for _, c := range []struct{ name, bus, want string }{
		{"nobody listens", "nats://me:hunter2@" + dead, "check that a NATS server listens there"},
		{"no JetStream", startServer(t, "", -1).ClientURL(), "has no JetStream"},
		{"no stream", startServer(t, t.TempDir(), -1).ClientURL(), "no stream KUBECDC"},
		{"a stream of others", foreign.ClientURL(), "the record has no events of kubecdc"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := answerOf(t, "get", "pods", "--at", "1h", "--bus", c.bus)
			if got.Code != exitFailed || got.Out != "" || !strings.Contains(got.Err, c.want) ||
				strings.Contains(got.Err, "hunter2") {
				t.Errorf("want %q, got %+v", c.want, got)
			}
		})
	}
}

func publishForeign(t *testing.T, url string) {
	t.Helper()
	js := connect(t, url)
	defer js.Conn().Close()
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KUBECDC", Subjects: []string{
		"orders.>",
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "orders.1", []byte(`{"order":1}`)); err != nil {
		t.Fatal(err)
	}
}

// Objects of several clusters are not mixed in one answer.
func TestGetAsksForTheCluster(t *testing.T) {
	t.Parallel()
	file, lines := recorded(t)
	var two strings.Builder
	for _, line := range lines {
		two.WriteString(
			line + "\n" +
				strings.ReplaceAll(strings.ReplaceAll(line, `"cluster":"prod"`, `"cluster":"test"`), "/kubernetes/prod",
					"/kubernetes/test") + "\n")
	}
	both := filepath.Join(t.TempDir(), "both.jsonl")
	if err := os.WriteFile(both, []byte(two.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	got := answerOf(t, "get", "all", "--at", "rv:145", "--bus", "file:"+both)
	if got.Code != exitUsage || got.Out != "" || !strings.Contains(got.Err, "name one with --cluster: prod, test") {
		t.Errorf("got %+v", got)
	}
	got = answerOf(t, "get", "all", "--at", "rv:145", "--bus", "file:"+both, "--cluster", "prod", "-o", "json")
	want := answerOf(t, "get", "all", "--at", "rv:145", "--bus", "file:"+file, "-o", "json")
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("-record of one cluster +of two\n%s", diff)
	}
	got = answerOf(t, "get", "all", "--at", "rv:145", "--bus", "file:"+both, "--cluster", "other")
	if got.Code != exitFailed || !strings.Contains(got.Err, "it has no cluster other") {
		t.Errorf("got %+v", got)
	}
}

// A record that cannot be read makes the answer uncertain.
func TestGetCountsRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	_, lines := recorded(t)
	broken := filepath.Join(t.TempDir(), "broken.jsonl")
	if err := os.WriteFile(broken, []byte("{\n"+strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := answerOf(t, "get", "cm", "--at", "rv:145", "--bus", "file:"+broken, "-o", "json", "--exact")
	var list struct{ Kubecdc certaintyOfJSON }
	if err := json.Unmarshal([]byte(got.Out), &list); err != nil {
		t.Fatal(err)
	}
	if want := (certaintyOfJSON{"uncertain", 1}); got.Code != exitNotExact || list.Kubecdc != want {
		t.Errorf("got %+v", got)
	}
}

type certaintyOfJSON struct {
	Certainty  string
	Unreadable int
}

// ofAnotherHistory returns a record. If it is progress, events and gauges have what secrets have;
// the resourceVersions of events are 50,000 higher.
func ofAnotherHistory(line string) string {
	entry := regexp.MustCompile(`\{"resource":"secrets","resourceVersion":"([0-9]+)"\}`)
	return entry.ReplaceAllStringFunc(line, func(text string) string {
		rv := entry.FindStringSubmatch(text)[1]
		n, _ := strconv.Atoi(rv)
		return fmt.Sprintf(
			`%s,{"resource":"events","etcd":"2","resourceVersion":"%d"},{"resource":"gauges.metrics.example.com","etcd":"3","resourceVersion":%q}`,
			text, n+50_000, rv)
	})
}

// A resourceVersion says nothing about resources of another etcd. Progress says that Events are
// stored apart, and that an API is aggregated; so does its APIService.
func TestGetOfAnotherHistory(t *testing.T) {
	t.Parallel()
	_, lines := recorded(t)
	var all []string
	for _, line := range lines {
		line = ofAnotherHistory(line)
		for _, kind := range []struct{ resource, apiVersion string }{{"events", "v1"}, {
			"gauges", "metrics.example.com/v1",
		}} {
			if !strings.Contains(line, `"resource":"secrets"`) || strings.Contains(line, "dev.kubecdc.progress") ||
				strings.Contains(line, "dev.kubecdc.object.updated") {
				continue
			}
			line, rv := line, regexp.MustCompile(`"(resourceVersion|resourceversion|sequence)":"(0*)([0-9]+)"`)
			if kind.resource == "events" {
				line = rv.ReplaceAllStringFunc(line, func(text string) string {
					m := rv.FindStringSubmatch(text)
					n, _ := strconv.Atoi(m[3])
					if m[1] == "sequence" {
						return fmt.Sprintf(`"sequence":"%020d"`, n+50_000)
					}
					return fmt.Sprintf(`"%s":"%d"`, m[1], n+50_000)
				})
			}
			line = strings.NewReplacer(`"resource":"secrets"`, `"resource":"`+kind.resource+`"`, `"id":"secrets/`,
				`"id":"`+kind.resource+`/`,
				`"scope":"secrets"`, `"scope":"`+scopeOf(kind.resource, kind.apiVersion)+`"`, `"apiversion":"v1"`,
				`"apiversion":"`+kind.apiVersion+`"`,
				"u-token", "u-"+kind.resource).Replace(line)
			all = append(all, line)
		}
		all = append(all, line)
		if strings.Contains(line, `"resource":"configmaps"`) && strings.Contains(line, "object.read") &&
			strings.Contains(line, "u-set") {
			line = strings.NewReplacer(`"resource":"configmaps"`, `"resource":"apiservices"`, `"id":"configmaps/`,
				`"id":"apiservices.apiregistration.k8s.io/`,
				`"apiversion":"v1"`, `"apiversion":"apiregistration.k8s.io/v1"`, "u-set", "u-api",
				`"namespace":"shop",`, "",
				`"data":{"mode":"fast"}`,
				`"spec":{"group":"metrics.example.com","service":{"name":"api"}}`).Replace(line)
			all = append(all, line)
		}
	}
	file := filepath.Join(t.TempDir(), "record.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(all, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bus := range []string{"file:" + file, recordedBus(t, t.TempDir(), -1, all)} {
		for _, resource := range []string{"events", "gauges.metrics.example.com"} {
			got := answerOf(t, "get", resource, "--at", "rv:145", "--bus", bus)
			if got.Code != exitFailed || got.Out != "" ||
				!strings.Contains(got.Err, resource+" are of another etcd than rv:145, or not numbers: use a time") {
				t.Errorf("%s: %s at rv:145: got %+v", bus, resource, got)
			}
			got = answerOf(t, "get", resource, "--at", "2026-11-20T14:05:00Z", "--bus", bus, "-o", "name", "--exact")
			if got.Code != exitOK || !strings.Contains(got.Out, "/token") {
				t.Errorf("%s: %s at a time: got %+v", bus, resource, got)
			}
		}
		got := answerOf(t, "get", "all", "--at", "rv:145", "--bus", bus, "-o", "name")
		if got.Code != exitOK || strings.Count(got.Out, "/token") != 1 ||
			!strings.Contains(got.Err,
				"events, gauges.metrics.example.com: unknown: its resourceVersions are of another etcd") {
			t.Errorf("%s: all: got %+v", bus, got)
		}
	}
}

// At now, the answer says up to when it is exact: what changed since the last progress is not in
// the record.
func TestGetNowSaysUpToWhen(t *testing.T) {
	_, lines := recorded(t)
	times := regexp.MustCompile(`"(time|since|to)":"([^"]+)"`)
	var last time.Time
	for _, line := range lines {
		if e, err := consume.Parse([]byte(line)); err == nil && e.Progress != nil && e.Time.After(last) {
			last = e.Time
		}
	}
	for _, c := range []struct {
		ago  time.Duration
		code int
		want string
	}{
		{30 * time.Second, exitOK, ": exact up to "},
		{10 * time.Minute, exitNotExact, "unknown: the record ends earlier, at "},
	} {
		end := time.Now().Add(-c.ago).Truncate(time.Second)
		var shifted []string
		for _, line := range lines {
			shifted = append(shifted, times.ReplaceAllStringFunc(line, func(text string) string {
				member := times.FindStringSubmatch(text)
				at, err := time.Parse(time.RFC3339Nano, member[2])
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprintf(`%q:%q`, member[1], at.Add(end.Sub(last)).Format(time.RFC3339Nano))
			}))
		}
		file := filepath.Join(t.TempDir(), "record.jsonl")
		if err := os.WriteFile(file, []byte(strings.Join(shifted, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got := answerOf(t, "get", "deploy", "--exact", "--bus", "file:"+file)
		if want := c.want + end.Local().Format(time.RFC3339); got.Code != c.code || !strings.Contains(got.Err, want) {
			t.Errorf("%s after the last progress: got %+v, want %d and %q", c.ago, got, c.code, want)
		}
	}
}

func scopeOf(resource, apiVersion string) string {
	group, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		return resource
	}
	return resource + "." + group
}
