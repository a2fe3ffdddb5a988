package answers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
)

// All answers about an object say that it has redacted values.
func TestAnswersMarkRedactedObjects(t *testing.T) {
	var lines strings.Builder
	line := func(second int, typ, members, data string) {
		fmt.Fprintf(&lines,
			`{"specversion":"1.0","id":"%d/%s","source":"/kubernetes/x","type":"dev.kubecdc.%s","time":"2026-11-20T14:00:%02dZ","cluster":"x",`+
				`"apiversion":"v1","resource":"secrets",%s,"data":{%s}}`+"\n", second, typ, typ, second, members, data)
	}
	secret := func(rv int) string {
		return fmt.Sprintf(
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"db","namespace":"shop","uid":"u","resourceVersion":"%d"},"type":"Opaque"}`,
			rv)
	}
	object := func(second int, op, kind string, rv int, data string) {
		line(second, "object."+kind,
			fmt.Sprintf(
				`"kind":"Secret","namespace":"shop","name":"db","uid":"u","op":%q,"resourceversion":"%d","sequence":"%020[2]d"`,
				op, rv),
			fmt.Sprintf(`"op":%q,"resourceVersion":"%d","after":%s,"redacted":true%s`, op, rv, secret(rv), data))
	}
	line(0, "snapshot.started", `"scope":"secrets"`, `"snapshot":"s1","objects":1,"resourceVersion":"100"`)
	object(1, "r", "read", 90, `,"snapshot":"s1"`)
	line(2, "snapshot.completed", `"scope":"secrets"`, `"snapshot":"s1","objects":1,"resourceVersion":"100"`)
	object(3, "u", "updated", 110, `,"before":`+secret(90))
	path := filepath.Join(t.TempDir(), "record.jsonl")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	early, late := moment(t, "2026-11-20T14:00:02Z"), moment(t, "2026-11-20T14:00:05Z")
	for name, c := range map[string]struct {
		format, want string
		ask          func(q *answers.Question) error
	}{
		"history": {
			printer.Table, "shop/db                      only metadata.resourceVersion (redacted)", history1(t, late),
		},
		"history as JSON": {printer.JSON, `"redacted":true`, history1(t, late)},
		"history as YAML": {
			printer.YAML, "updated secrets shop/db rv:110 by <unknown> (redacted)\n", history1(t, late),
		},
		"get as YAML": {
			printer.YAML, "# redacted: the record does not have all values of this object\n",
			func(q *answers.Question) error { return q.Get(t.Context(), late) },
		},
		"blame": {
			printer.Table, "redacted: the record does not have all values of this object\n",
			func(q *answers.Question) error { return q.Blame(t.Context(), late) },
		},
		"blame as JSON": {printer.JSON, `"redacted": true`, func(q *answers.Question) error {
			return q.Blame(t.Context(), late)
		}},
		"diff": {printer.Table, "(redacted)", func(q *answers.Question) error {
			return q.Diff(t.Context(), early, late)
		}},
		"diff as JSON": {printer.JSON, `"redacted": true`, func(q *answers.Question) error {
			return q.Diff(t.Context(), early, late)
		}},
		"a path": {
			printer.Table, "no version that was read has a value there, and some have redacted values",
			func(q *answers.Question) error {
				return q.History(t.Context(), &answer.Span{Until: late, Filters: answer.Filters{
					Field: mustPath(t, "data.password"),
				}})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			wanted, err := record.NewSelection([]string{"secrets", "db"}, "shop", "", "")
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			q := answers.New(&record.Record{Source: &fromfile.File{Path: path}}, wanted, printer.Format{Name: c.format},
				&terminal.Output{Writer: &out}, &terminal.Output{Writer: &out})
			if err := q.Resolve(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.ask(q); err != nil {
				fmt.Fprintln(&out, err)
			}
			if !strings.Contains(out.String(), c.want) {
				t.Errorf("%q is not in\n%s", c.want, out.String())
			}
		})
	}
}

func history1(t *testing.T, until timeline.Moment) func(q *answers.Question) error {
	t.Helper()
	return func(q *answers.Question) error { return q.History(t.Context(), &answer.Span{Until: until}) }
}
