package replay_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/bus/stdout"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/relay/replay"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

var recordBegan = time.Date(2026, 11, 20, 14, 0, 0, 0, time.UTC)

func minute(m float64) time.Time { return recordBegan.Add(time.Duration(m * float64(time.Minute))) }

// observedRecord is the record of an agent that observes Pods in two namespaces and ConfigMaps for
// 20 minutes. Every half minute, a ConfigMap changes; its version counts the half minutes. From
// minute 6.2 to 6.8, the ConfigMaps were not observed.
func observedRecord() string {
	var b strings.Builder
	line := func(at float64, id, kind, attributes, data string) {
		fmt.Fprintf(&b,
			`{"specversion":"1.0","id":%q,"source":"/kubernetes/c","type":"dev.kubecdc.%s","time":%q,"cluster":"c","clusteruid":"1",%s"data":%s}`+
				"\n",
			id, kind, minute(at).Format(time.RFC3339Nano), attributes, data)
	}
	const writer = `"writer":"ffff","run":"0-1795183200000"`
	for _, scope := range []string{"pods/a", "pods/b", "configmaps"} {
		resource, _, _ := strings.Cut(scope, "/")
		attributes := fmt.Sprintf(`"apiversion":"v1","resource":%q,"scope":%q,"partitionkey":"c/core/%s",`, resource,
			scope, resource)
		line(0, scope+"/started/1", "scope.started", attributes, `{"resourceVersion":"1",`+writer+`}`)
		line(0, scope+"/s/started", "snapshot.started", attributes,
			`{"snapshot":"s","resourceVersion":"1","objects":0,`+writer+`}`)
		line(0.01, scope+"/s/completed", "snapshot.completed", attributes,
			`{"snapshot":"s","resourceVersion":"1","objects":0}`)
	}
	for half := 1; half <= 40; half++ {
		m, rv := float64(half)/2, half+100
		line(m, fmt.Sprintf("configmaps/u/%d", rv), "object.updated",
			fmt.Sprintf(
				`"apiversion":"v1","resource":"configmaps","namespace":"a","name":"n","uid":"u","op":"u","resourceversion":"%[1]d","sequence":"%020[1]d",`,
				rv),
			fmt.Sprintf(`{"op":"u","resourceVersion":"%d","after":{"metadata":{"name":"n"}}}`, rv))
		if half%2 == 1 {
			continue
		}
		away := ""
		if m > 6 && m < 16 {
			away = fmt.Sprintf(`,"interruptions":[{"why":"cut","from":%q,"until":%q}]`,
				minute(6.2).Format(time.RFC3339), minute(6.8).Format(time.RFC3339))
		}
		line(m+0.1, fmt.Sprintf("progress/ffff/0-1/%d", half), "progress", `"partitionkey":"c/progress/ffff",`,
			fmt.Sprintf(
				`{%s,"number":%d,"since":%q,"to":%q,"snapshotBegan":%q,"scopes":[{"resource":"pods","count":2,"resourceVersion":"%[6]d"},{"resource":"configmaps","resourceVersion":"%[6]d"%s}]}`,
				writer, half, minute(m-10).Format(time.RFC3339), minute(m+0.05).Format(time.RFC3339),
				recordBegan.Format(time.RFC3339), rv, away))
	}
	return b.String()
}

// certainties returns the certainty of each scope that a record has at a moment.
func certainties(tb testing.TB, record string, at timeline.Moment) string {
	tb.Helper()
	f := timeline.NewFold(at, timeline.Options{})
	for _, e := range parse(tb, record) {
		f.Add(e)
	}
	var out []string
	for _, s := range f.Scopes() {
		out = append(out, s.Name+" "+s.Certainty.String())
	}
	return strings.Join(out, ", ")
}

// replayOf returns the replay of a record.
func replayOf(tb rapid.TB, jsonl string, o replay.Options, split bool) string {
	tb.Helper()
	o.Record, o.Selection = &record.Record{Source: lines(jsonl)}, &record.Selection{}
	r, err := replay.Prepare(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	r.Split = split
	var out bytes.Buffer
	if err := r.Run(context.Background(), stdout.New(&out, nil), slog.New(slog.DiscardHandler)); err != nil {
		tb.Fatal(err)
	}
	return out.String()
}

// The events of a replay say how certain the state at each moment of its span is, up to its end and
// no further.
func TestReplayedRecordIsAsCertain(t *testing.T) {
	record := observedRecord()
	const exact = "configmaps exact, pods/a exact, pods/b exact"
	const beyond = "configmaps unknown, pods/a unknown, pods/b unknown"
	for _, c := range []struct {
		name     string
		from, to timeline.Moment
		at       timeline.Moment
		want     string
	}{
		{"inside", timeline.At(minute(2.3)), timeline.At(minute(5.3)), timeline.At(minute(4)), exact},
		{
			"at the end, which is between two progresses", timeline.At(minute(2.3)), timeline.At(minute(5.3)),
			timeline.At(minute(5.3)), exact,
		},
		{"after the end", timeline.At(minute(2.3)), timeline.At(minute(5.3)), timeline.At(minute(5.4)), beyond},
		{"long before the end", timeline.At(minute(2.3)), timeline.At(minute(19.3)), timeline.At(minute(4)), exact},
		{
			"a span without progress", timeline.At(minute(2.3)), timeline.At(minute(2.7)), timeline.At(minute(2.6)),
			exact,
		},
		{
			"in an interruption", timeline.At(minute(5)), timeline.At(minute(8)), timeline.At(minute(6.5)),
			"configmaps late, pods/a exact, pods/b exact",
		},
		{
			"the end is in an interruption", timeline.At(minute(5)), timeline.At(minute(6.5)), timeline.At(minute(6.5)),
			"configmaps late, pods/a exact, pods/b exact",
		},
		{"the end of the record", timeline.At(minute(5)), timeline.Now(minute(21)), timeline.At(minute(20)), exact},
		{
			"after the end of the record", timeline.At(minute(5)), timeline.Now(minute(21)), timeline.At(minute(20.5)),
			beyond,
		},
		{"to a version", timeline.At(minute(2.3)), timeline.AtVersion(109, 0), timeline.AtVersion(109, 0), exact},
		{"after the version", timeline.At(minute(2.3)), timeline.AtVersion(109, 0), timeline.AtVersion(110, 0), beyond},
		{"from a version", timeline.AtVersion(104, 0), timeline.AtVersion(109, 0), timeline.AtVersion(107, 0), exact},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := replayOf(t, record, replay.Options{From: c.from, To: c.to}, false)
			if diff := cmp.Diff(c.want, certainties(t, out, c.at)); diff != "" {
				t.Errorf("-want +got:\n%s\n%s", diff, out)
			}
		})
	}
}

// A replay sends progress about the scopes that it sends whole.
func TestProgressOfAReplay(t *testing.T) {
	record := observedRecord()
	span := replay.Options{From: timeline.At(minute(2.3)), To: timeline.At(minute(4.3))}
	for _, c := range []struct {
		name   string
		record string
		whole  func(resource, scope string) bool
		split  bool
		want   []string
	}{
		{"all", record, nil, false, []string{
			"ffff 106 14:03: pods configmaps", "ffff 108 14:04: pods configmaps",
			"replay 108 14:04: configmaps configmaps pods pods/a pods pods/b",
		}},
		{
			"one namespace", record,
			func(_, scope string) bool { return scope == "pods/a" },
			false,
			[]string{"replay 108 14:04: pods pods/a"},
		},
		{"nothing", record, func(string, string) bool { return false }, false, nil},
		{"a target with a topic for each namespace", record, nil, true, nil},
		{"a record that cannot be read", "no JSON\n" + record, nil, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := span
			o.Whole = c.whole
			var got []string
			for _, e := range parse(t, replayOf(t, c.record, o, c.split)) {
				p := e.Progress
				if p == nil {
					continue
				}
				writer, rv := p.Writer, ""
				if writer != "ffff" {
					writer = "replay"
				}
				var scopes []string
				for _, s := range p.Scopes {
					scopes = append(scopes, strings.TrimSpace(s.Resource+" "+s.Scope))
					rv = s.ResourceVersion
				}
				got = append(got,
					fmt.Sprintf("%s %s %s: %s", writer, rv, e.Time.Format("15:04"), strings.Join(scopes, " ")))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// A second replay sends the same progress, and another one does not.
func TestProgressOfAReplayHasTheSameID(t *testing.T) {
	id := func(to float64) string {
		all := parse(t,
			replayOf(t, observedRecord(), replay.Options{From: timeline.At(minute(2.3)), To: timeline.At(minute(to))},
				false))
		last := all[len(all)-1]
		if last.Type != consume.TypeProgress {
			t.Errorf("the last event is %s", last.Type)
		}
		return last.ID
	}
	first := id(4.3)
	second := id(4.3)
	other := id(4.4)
	if first != second || first == other {
		t.Errorf("ids: %s, %s, and of another replay %s", first, second, other)
	}
}

// The progress of a replay repeats the names of etcds in the record, although the agent says them
// seldom.
// Another agent has other names for them.
func TestReplayRepeatsWhatItKnowsOfEtcds(t *testing.T) {
	record := strings.Replace(observedRecord(), `{"resource":"pods",`, `{"resource":"pods","etcd":"1",`, 1)
	record = strings.Replace(record, `{"resource":"configmaps",`, `{"resource":"configmaps","etcd":"2",`, 1)
	etcds := func(record string) map[string]string {
		out := map[string]string{}
		for _, e := range parse(t,
			replayOf(t, record, replay.Options{From: timeline.At(minute(5)), To: timeline.At(minute(10))}, false)) {
			if e.Progress == nil || e.Progress.Writer == "ffff" || e.Progress.Writer == "eeee" {
				continue
			}
			for _, s := range e.Progress.Scopes {
				out[s.Scope] = s.Etcd
			}
		}
		return out
	}
	if diff := cmp.Diff(map[string]string{"pods/a": "1", "pods/b": "1", "configmaps": "2"}, etcds(record)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var two strings.Builder
	for _, line := range strings.SplitAfter(record, "\n") {
		isOther := strings.Contains(line, `"etcd":"2"`)
		two.WriteString(line)
		if isOther { // another agent names the etcd of ConfigMaps first
			other := strings.NewReplacer(`progress/ffff/`, `progress/eeee/`, `"writer":"ffff"`, `"writer":"eeee"`,
				`"etcd":"1"`, `"etcd":"8"`, `"etcd":"2"`, `"etcd":"1"`)
			two.WriteString(other.Replace(line))
		}
	}
	if diff := cmp.Diff(map[string]string{"pods/a": "1", "pods/b": "1", "configmaps": "2"},
		etcds(two.String())); diff != "" {
		t.Errorf("with another agent (-want +got):\n%s", diff)
	}
}
