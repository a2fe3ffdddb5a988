package answers_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
)

// change is a version of the Deployment web in a record.
type change struct {
	op, manager string
	object      string // its members beside metadata; "": it is deleted
}

// deploymentRecord writes the record of a Deployment, which a snapshot reads first. It returns the
// path of the file.
func deploymentRecord(t *testing.T, changes ...change) string {
	t.Helper()
	var lines strings.Builder
	line := func(minute int, typ, members, data string) {
		fmt.Fprintf(&lines,
			`{"specversion":"1.0","id":"%d/%s","source":"/kubernetes/x","type":"dev.kubecdc.%s","time":"2026-11-20T14:%02d:00Z","cluster":"x",`+
				`"apiversion":"apps/v1","resource":"deployments",%s,"data":{%s}}`+"\n", minute, typ, typ, minute,
			members,
			data)
	}
	line(0, "snapshot.started", `"scope":"deployments.apps"`, `"snapshot":"s1","objects":1,"resourceVersion":"100"`)
	before := "null"
	for k, c := range changes {
		rv := 100 + k
		kind := map[string]string{"r": "read", "c": "created", "u": "updated", "d": "deleted"}[c.op]
		after := "null"
		if c.object != "" {
			after = fmt.Sprintf(`{"metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"%d"},%s}`,
				rv, c.object)
		}
		data := fmt.Sprintf(`"op":%q,"resourceVersion":"%d","after":%s`, c.op, rv, after)
		switch c.op {
		case "r":
			data += `,"snapshot":"s1"`
		default:
			data += `,"before":` + before
		}
		if c.manager != "" {
			data += fmt.Sprintf(`,"changedBy":[{"manager":%q,"operation":"Update","time":"2026-11-20T14:%02d:00Z"}]`,
				c.manager, k)
		}
		line(k, "object."+kind,
			fmt.Sprintf(
				`"kind":"Deployment","namespace":"shop","name":"web","uid":"u1","op":%q,"resourceversion":"%d","sequence":"%020[2]d"`,
				c.op, rv), data)
		if k == 0 {
			line(0, "snapshot.completed", `"scope":"deployments.apps"`,
				`"snapshot":"s1","objects":1,"resourceVersion":"100"`)
		}
		before = after
	}
	path := filepath.Join(t.TempDir(), "record.jsonl")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// historyOf asks for the history of the Deployment in a record.
func historyOf(t *testing.T, path, format string, f answer.Filters) (stdout, stderr string, err error) {
	t.Helper()
	wanted, err := record.NewSelection([]string{"deployments", "web"}, "shop", "", "")
	if err != nil {
		t.Fatal(err)
	}
	var out, errors strings.Builder
	q := answers.New(&record.Record{Source: &fromfile.File{Path: path}}, wanted, printer.Format{Name: format},
		&terminal.Output{Writer: &out}, &terminal.Output{Writer: &errors})
	if err := q.Resolve(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = q.History(t.Context(), &answer.Span{
		Until:   timeline.Now(time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)),
		Filters: f,
	})
	return out.String(), errors.String(), err
}

// shown returns the minutes and the changes of a table.
func shown(table string) string {
	var lines []string
	for line := range strings.Lines(table) {
		at, _, _ := strings.Cut(line, "Z ")
		_, text, _ := strings.Cut(line, "shop/web")
		lines = append(lines, strings.TrimSpace(at[len(at)-5:len(at)-3]+" "+strings.TrimSpace(text)))
	}
	return strings.Join(lines, "; ")
}

func mustPath(t *testing.T, text string) answer.Path {
	t.Helper()
	p, err := answer.ParsePath(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestHistoryFilters(t *testing.T) {
	const container = `{"name":"app","image":"%s"}`
	spec := func(text string) string { return `"spec":{` + text + `}` }
	image := func(v string) string { return `"containers":[` + fmt.Sprintf(container, v) + `]` }
	path := deploymentRecord(t,
		change{"r", "", spec(image("a:1"))},
		change{"u", "kubectl-edit", spec(image("a:1") + `,"paused":true`)},
		change{"u", "controller", spec(image("a:1")+`,"paused":true`) + `,"status":{"replicas":1}`},
		change{
			"u", "helm",
			spec(`"containers":[{"name":"log","image":"l:1"},`+fmt.Sprintf(container, "a:1")+`]`) +
				`,"status":{"replicas":1}`,
		},
		change{"u", "helm", spec(image("a:2")) + `,"status":{"replicas":2}`},
		change{"u", "", spec(image("a:2")) + `,"status":{"replicas":2}`}, // of a value that the record does not have
		change{"d", "", ""},
	)
	for _, c := range []struct {
		name    string
		filters answer.Filters
		shown   string
		hidden  string
	}{
		{
			"none",
			answer.Filters{},
			"00; 01 +spec.paused true  by kubectl-edit; 02 +status  by controller; " +
				"03 +spec.containers[log], -spec.paused  by helm; " +
				"04 spec.containers[app].image a:1→a:2, -spec.containers[log], status.replicas 1→2  by helm; 05 only metadata.resourceVersion; 06",
			"",
		},
		{
			"a field that comes and goes",
			answer.Filters{Field: mustPath(t, "spec.paused")},
			"01 +spec.paused true  by kubectl-edit; 03 -spec.paused  by helm",
			"hidden: 5 of 7 versions (--field: 5)",
		},
		{
			"the field of an element",
			answer.Filters{Field: mustPath(t, "spec.containers[app].image")},
			"00; 04 spec.containers[app].image a:1→a:2  by helm; 06",
			"hidden: 4 of 7 versions (--field: 4)",
		},
		{
			"the field of all elements",
			answer.Filters{
				Field: mustPath(t, "spec.containers[*].image"),
			},
			"00; 03 +spec.containers[log]  by helm; " +
				"04 spec.containers[app].image a:1→a:2, -spec.containers[log]  by helm; 06",
			"hidden: 3 of 7 versions (--field: 3)",
		},
		{
			"managers",
			answer.Filters{By: []string{"he?m", "kubectl*"}},
			"01 +spec.paused true  by kubectl-edit; " +
				"03 +spec.containers[log], -spec.paused  by helm; 04 spec.containers[app].image a:1→a:2, -spec.containers[log], status.replicas 1→2  by helm",
			"hidden: 4 of 7 versions (--by: 4); of those of --by, without any manager (such as deletions): 3",
		},
		{
			"not some managers",
			answer.Filters{By: []string{"!contr*", "!kubectl-edit"}},
			"00; 03 +spec.containers[log], -spec.paused  by helm; " +
				"04 spec.containers[app].image a:1→a:2, -spec.containers[log], status.replicas 1→2  by helm; 05 only metadata.resourceVersion; 06",
			"hidden: 2 of 7 versions (--by: 2)",
		},
		{
			"some managers, and not all of them",
			answer.Filters{By: []string{"*", "!kube*", "!helm"}},
			"02 +status  by controller",
			"hidden: 6 of 7 versions (--by: 6); of those of --by, without any manager (such as deletions): 3",
		},
		{"operations", answer.Filters{Ops: []consume.Op{
			consume.Read, consume.Deleted,
		}}, "00; 06", "hidden: 5 of 7 versions (--op: 5)"},
		{
			"a part",
			answer.Filters{Changed: []answer.Path{mustPath(t, "status")}},
			"02 +status  by controller; " +
				"04 spec.containers[app].image a:1→a:2, -spec.containers[log], status.replicas 1→2  by helm; 06",
			"hidden: 4 of 7 versions (--changed: 4)",
		},
		{
			"not only status",
			answer.Filters{NoStatus: true},
			"00; 01 +spec.paused true  by kubectl-edit; " +
				"03 +spec.containers[log], -spec.paused  by helm; " +
				"04 spec.containers[app].image a:1→a:2, -spec.containers[log], status.replicas 1→2  by helm; 05 only metadata.resourceVersion; 06",
			"hidden: 1 of 7 versions (--no-status: 1)",
		},
		{
			"several",
			answer.Filters{By: []string{
				"helm",
			}, Field: mustPath(t, "spec.containers[app].image"), Changed: []answer.Path{
				mustPath(t, "status.replicas"), mustPath(t, "spec.paused"),
			}},
			"04 spec.containers[app].image a:1→a:2  by helm",
			"hidden: 6 of 7 versions (--by: 5, --field: 1); of those of --by, without any manager (such as deletions): 3",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, stderr, err := historyOf(t, path, printer.Table, c.filters)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(c.shown, shown(out)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if !strings.Contains(stderr, c.hidden) || c.hidden == "" && strings.Contains(stderr, "hidden") {
				t.Errorf("standard error: %s, want %s", stderr, c.hidden)
			}
			out, _, err = historyOf(t, path, printer.JSON, c.filters)
			if err != nil || strings.Contains(out, `"hidden":{"`) != (c.hidden != "") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// A path that no version has is an error with similar paths, whichever versions other filters hide.
func TestHistoryOfAPathThatNoVersionHas(t *testing.T) {
	path := deploymentRecord(t, change{"r", "", `"spec":{"replicas":3}`}, change{"u", "helm", `"spec":{"replicas":4}`})
	for text, want := range map[string]string{
		"spec.replica":  "spec.replica: no version that was read has a value there; similar: spec.replicas",
		"replicas":      "replicas: no version that was read has a value there; similar: spec.replicas",
		"spec.template": "spec.template: no version that was read has a value there; spec has: replicas",
		"else":          "else: no version that was read has a value there; at the top are: metadata, spec",
	} {
		_, _, err := historyOf(t, path, printer.Table, answer.Filters{Field: mustPath(t, text)})
		if err == nil || err.Error() != "--field "+want {
			t.Errorf("%v, want --field %s", err, want)
		}
		_, _, err = historyOf(t, path, printer.JSON, answer.Filters{By: []string{"nobody"}, Changed: []answer.Path{
			mustPath(t, "spec"), mustPath(t, text),
		}})
		if err == nil || err.Error() != "--changed "+want {
			t.Errorf("%v, want --changed %s", err, want)
		}
	}
	if _, _, err := historyOf(t, path, printer.Table, answer.Filters{By: []string{
		"nobody",
	}, Field: mustPath(t, "spec.replicas")}); err != nil {
		t.Errorf("a path of versions that are hidden: %v", err)
	}
}
