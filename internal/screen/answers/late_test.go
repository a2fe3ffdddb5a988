package answers_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
)

// outageRecord writes the record of an agent that was not there from 14:03 to 14:20. ConfigMap app
// was changed in between, and found at 14:20:10. It returns the path of the file.
func outageRecord(t *testing.T, ends bool) string {
	t.Helper()
	clock := func(minute, second int) time.Time { return time.Date(2026, 11, 20, 14, minute, second, 0, time.UTC) }
	run := func(at time.Time) string { return fmt.Sprintf("0-%d", at.UnixMilli()) }
	began, again := clock(0, 0), clock(20, 0)
	var lines strings.Builder
	line := func(at time.Time, typ, id, members, data string) {
		fmt.Fprintf(&lines,
			`{"specversion":"1.0","id":%q,"source":"/kubernetes/x","type":"dev.kubecdc.%s","time":%q,"cluster":"x",%s"data":{%s}}`+
				"\n",
			id, typ, at.Format(time.RFC3339), members, data)
	}
	about := func(at time.Time, typ, run, data string) {
		line(at, typ, typ+at.Format("0405"), `"apiversion":"v1","resource":"configmaps","scope":"configmaps",`,
			data+`,"writer":"w","run":"`+run+`"`)
	}
	object := func(at time.Time, op, kind string, rv int, color, before string) string {
		after := fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"app","namespace":"shop","uid":"u","resourceVersion":"%d"},"data":{"color":%q,"size":"s"}}`,
			rv, color)
		line(at, "object."+kind, fmt.Sprintf("configmaps/u/%d", rv),
			fmt.Sprintf(
				`"apiversion":"v1","kind":"ConfigMap","resource":"configmaps","namespace":"shop","name":"app","uid":"u","op":%q,"resourceversion":"%d","sequence":"%020[2]d",`,
				op, rv),
			fmt.Sprintf(
				`"op":%q,"resourceVersion":"%d","previousResourceVersion":"%d","snapshot":"s1","before":%s,"after":%s,"changedBy":[{"manager":"helm","operation":"Update","time":%q}]`,
				op, rv, rv-10, before, after, at.Format(time.RFC3339)))
		return after
	}
	progress := func(at, run0 time.Time, number, rv int, more, away string) {
		line(at, "progress", fmt.Sprintf("progress/w/%s/%d", run(run0), number), "", fmt.Sprintf(
			`"writer":"w","run":%q,"number":%d,"since":%q%s,"scopes":[{"resource":"configmaps","scope":"configmaps","resourceVersion":"%d","to":%q%s}]`,
			run(run0), number, run0.Format(time.RFC3339), more, rv, at.Format(time.RFC3339), away))
	}
	about(began, "scope.started", run(began), `"initial":true,"resourceVersion":"100"`)
	about(began, "snapshot.started", run(began), `"snapshot":"s1","objects":1,"resourceVersion":"100","initial":true`)
	after := object(clock(0, 1), "r", "read", 90, "blue", "null")
	about(clock(0, 2), "snapshot.completed", run(began), `"snapshot":"s1","objects":1,"resourceVersion":"100"`)
	after = object(clock(1, 30), "u", "updated", 110, "green", after)
	progress(clock(2, 0), began, 1, 110, "", "")
	more := ""
	if ends {
		more = `,"ends":true`
	}
	progress(clock(3, 0), began, 2, 120, more, "")
	about(again, "scope.started", run(again), `"continued":true,"resourceVersion":"120"`)
	after = strings.Replace(after, `"size":"s"`, `"size":"m"`, 1)
	line(clock(20, 10), "object.updated", "configmaps/u/120",
		`"apiversion":"v1","kind":"ConfigMap","resource":"configmaps","namespace":"shop","name":"app","uid":"u","op":"u","resourceversion":"130","sequence":"00000000000000000130",`,
		`"op":"u","resourceVersion":"130","previousResourceVersion":"110","before":`+
			strings.Replace(after, `"size":"m"`, `"size":"s"`, 1)+
			`,"after":`+strings.Replace(after, `"110"`, `"130"`, 1)+
			`,"changedBy":[{"manager":"kubectl-edit","operation":"Update","time":"2026-11-20T14:10:00Z"}]`)
	away := `,"interruptions":[{"why":"start","from":"2026-11-20T14:03:00Z","until":"2026-11-20T14:20:12Z"}]`
	progress(clock(21, 0), again, 1, 140, "", away)
	progress(clock(22, 0), again, 2, 150, "", away)
	progress(clock(23, 0), again, 3, 160, "", away)
	path := filepath.Join(t.TempDir(), "record.jsonl")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ask calls f with a question about ConfigMap app of a record.
func ask(t *testing.T, path, format string, f func(q *answers.Question) error) (stdout, stderr string, err error) {
	t.Helper()
	wanted, err := record.NewSelection([]string{"configmaps", "app"}, "shop", "", "")
	if err != nil {
		t.Fatal(err)
	}
	var out, errors strings.Builder
	q := answers.New(&record.Record{Source: &fromfile.File{Path: path}}, wanted, printer.Format{Name: format},
		&terminal.Output{Writer: &out}, &terminal.Output{Writer: &errors})
	q.Exact = true
	if err := q.Resolve(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = f(q)
	return out.String(), errors.String(), err
}

// A history lists the spans in which no agent observed its objects, between the versions and in
// JSON. As gaps inside, they do not make the answer less exact: that is the certainty of its ends.
func TestHistoryListsLateSpans(t *testing.T) {
	ofSpan := func(since, until string) func(q *answers.Question) error {
		return func(q *answers.Question) error {
			s := &answer.Span{Until: moment(t, until)}
			if since != "" {
				at := moment(t, since)
				s.Since = &at
			}
			return q.History(t.Context(), s)
		}
	}
	path := outageRecord(t, true)
	const span = "the agent did not observe it from 2026-11-20T14:03:00Z to 2026-11-20T14:20:12Z (the agent was stopped at 2026-11-20T14:03:00Z)"
	out, said, err := ask(t, path, printer.Table, ofSpan("", "2026-11-20T14:22:00Z"))
	want := "2026-11-20T14:20:12Z LATE     configmaps     " + span +
		"; changes in between have the time at which they were found\n"
	if err != nil || !strings.HasSuffix(out, want) || strings.Count(out, "LATE") != 1 {
		t.Errorf("%v: got\n%s\nwant the end\n%s", err, out, want)
	}
	if !strings.Contains(said, "in between, late spans: 1 ('kubecdc audit' judges a whole span)\n") {
		t.Errorf("standard error has\n%s", said)
	}
	_, said, err = ask(t, path, printer.Name, ofSpan("2026-11-20T14:01:00Z", "2026-11-20T14:22:00Z"))
	if want := "  configmaps: late: " + span; err != nil || !strings.Contains(said, want) {
		t.Errorf("%v: standard error has\n%s\nwant\n%s", err, said, want)
	}
	out, _, err = ask(t, path, printer.JSON, ofSpan("", "2026-11-20T14:22:00Z"))
	var got struct {
		Late []struct {
			Cluster, Scope, Why  string
			From, Until, Stopped time.Time
		}
	}
	if json.Unmarshal([]byte(out), &got) != nil || err != nil || len(got.Late) != 1 || got.Late[0].Why != "start" ||
		got.Late[0].Cluster != "x" ||
		got.Late[0].Stopped.Minute() != 3 || got.Late[0].Until.Minute() != 20 {
		t.Errorf("%v: %+v in %s", err, got, out)
	}
	out, _, err = ask(t, path, printer.Table, ofSpan("2026-11-20T14:21:00Z", "2026-11-20T14:22:00Z"))
	if err != nil || strings.Contains(out, "LATE") {
		t.Errorf("%v: a span after it has it: %s", err, out)
	}
	out, _, _ = ask(t, outageRecord(t, false), printer.Table, ofSpan("", "2026-11-20T14:22:00Z"))
	if !strings.Contains(out,
		"nothing proves that the agent observed it from 2026-11-20T14:03:00Z to 2026-11-20T14:20:12Z (the agent was started again") {
		t.Errorf("of an agent that was killed: %s", out)
	}
}

// A line that a late version has set was set by then.
func TestBlameOfLateVersions(t *testing.T) {
	path := outageRecord(t, false)
	blame := func(q *answers.Question) error { return q.Blame(t.Context(), moment(t, "2026-11-20T14:22:00Z")) }
	out, said, err := ask(t, path, printer.Table, blame)
	for _, want := range []string{
		"2026-11-20T14:01:30Z   helm         |   color: green", "<=2026-11-20T14:20:10Z kubectl-edit |   size: m",
	} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: %q is not in\n%s", err, want, out)
		}
	}
	if !strings.Contains(said, "in between, late spans: 1") ||
		!strings.Contains(said, "configmaps: late: nothing proves") {
		t.Errorf("standard error has\n%s", said)
	}
	out, _, _ = ask(t, path, printer.JSON, blame)
	if !strings.Contains(out, `"since": "2026-11-20T14:03:00Z"`) || !strings.Contains(out, `"late": [`) {
		t.Errorf("JSON has no late line: %s", out)
	}
}

func moment(t *testing.T, text string) timeline.Moment {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return timeline.At(at)
}
