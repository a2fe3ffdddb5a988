package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/past/audit"
)

// auditOf asks for an audit from 14:01 to a minute of the test's record.
func auditOf(t *testing.T, bus, until string, args ...string) (r audit.Report, code int, stderr string) {
	t.Helper()
	command := append(
		[]string{
			"audit", "-o", "json", "--since", "2026-11-20T14:01:00Z", "--until", "2026-11-20T" + until + "Z", "--bus",
			bus,
		}, args...)
	said := answerOf(t, command...)
	if said.Code == exitOK || said.Code == exitNotExact {
		if err := json.Unmarshal([]byte(said.Out), &r); err != nil {
			t.Fatalf("%v: %v: %s", command, err, said.Out)
		}
	}
	return r, said.Code, said.Err
}

// auditedAt is the time of an audit.
var auditedAt = regexp.MustCompile(`"auditedAt": "[^"]*"`)

// The report of a JetStream is that of a file, except the name of the bus.
func TestAuditOfAJetStreamIsThatOfAFile(t *testing.T) {
	t.Parallel()
	file, lines := recorded(t)
	url := recordedBus(t, t.TempDir(), -1, lines)
	for _, args := range [][]string{
		{"all"}, {"cm"}, {"deploy/web", "-n", "shop"}, {"secrets", "-n", "shop"}, {"cm,roles"}, {
			"all", "-l", "app=web",
		},
	} {
		for _, span := range [][2]string{{"14:01:00", "14:06:00"}, {"13:00:00", "14:11:00"}, {
			"14:02:00", "14:30:00",
		}, {"14:08:31", "14:08:33"}} {
			command := append(
				[]string{
					"audit", "-o", "json", "--since", "2026-11-20T" + span[0] + "Z", "--until",
					"2026-11-20T" + span[1] + "Z",
				}, args...)
			want := answerOf(t, append(command, "--bus", "file:"+file)...)
			got := answerOf(t, append(command, "--bus", url)...)
			for _, text := range []*string{&want.Out, &got.Out} {
				*text = auditedAt.ReplaceAllString(*text, `"auditedAt": ""`)
				*text = strings.NewReplacer("file:"+file, "BUS", url, "BUS", filepath.Base(file), "LOG", file, "LOG",
					"KUBECDC", "LOG").Replace(*text)
			}
			if diff := gocmp.Diff(want, got); diff != "" || want.Out == "" {
				t.Errorf("%v: %s: -file +JetStream\n%s", command, want.Err, diff)
			}
		}
	}
}

// An audit that is proven says that each moment of its span is exact. One that is not proven names
// a span in which no answer is.
func TestAuditAgreesWithGet(t *testing.T) {
	t.Parallel()
	file, _ := recorded(t)
	began := time.Date(2026, 11, 20, 13, 59, 30, 0, time.UTC)
	exact := map[time.Time]bool{}
	for at := began; at.Before(began.Add(14 * time.Minute)); at = at.Add(15 * time.Second) {
		code := answerOf(t, "get", "cm", "--at", at.Format(time.RFC3339), "--exact", "--bus", "file:"+file).Code
		exact[at] = code == exitOK
	}
	for since := range exact {
		for _, length := range []time.Duration{30 * time.Second, 5 * time.Minute} {
			until := since.Add(length)
			all := true
			for at, is := range exact {
				all = all && (is || at.Before(since) || at.After(until))
			}
			if _, known := exact[until]; !known {
				continue
			}
			got := answerOf(t, "audit", "cm", "--since", since.Format(time.RFC3339), "--until",
				until.Format(time.RFC3339), "--bus", "file:"+file)
			if isProven := got.Code == exitOK; isProven != all {
				t.Errorf("from %s to %s: proven: %t, all moments exact: %t\n%s%s", since, until, isProven, all, got.Out,
					got.Err)
			}
		}
	}
}

// damage changes the lines of a record.
type damage func(t *testing.T, lines []string) []string

// without removes the line of an event.
func without(id string) damage {
	return func(t *testing.T, lines []string) []string {
		t.Helper()
		out := slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
			return strings.Contains(line, `"id":"`+id+`"`)
		})
		if len(out) != len(lines)-1 {
			t.Fatalf("%d lines of %s", len(lines)-len(out), id)
		}
		return out
	}
}

// replaced replaces a text in the line of an event.
func replaced(id, from, to string) damage {
	return func(t *testing.T, lines []string) []string {
		t.Helper()
		out := slices.Clone(lines)
		for k, line := range out {
			if strings.Contains(line, `"id":"`+id+`"`) && strings.Contains(line, from) {
				out[k] = strings.Replace(line, from, to, 1)
				return out
			}
		}
		t.Fatalf("%s has no %s", id, from)
		return nil
	}
}

// followedBy adds lines after that of an event.
func followedBy(id string, added ...string) damage {
	return func(t *testing.T, lines []string) []string {
		t.Helper()
		at := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, `"id":"`+id+`"`) })
		if at < 0 {
			t.Fatalf("no %s", id)
		}
		return slices.Insert(slices.Clone(lines), at+1, added...)
	}
}

func allOf(all ...damage) damage {
	return func(t *testing.T, lines []string) []string {
		t.Helper()
		for _, d := range all {
			lines = d(t, lines)
		}
		return lines
	}
}

const progressOf = "progress/3f0a5c1e9b7d2846/0-1795183199000/"

// about is an event about the scopes of Deployments at a second after 14:00.
func about(kind string, second, rv int, scope, data string) string {
	at := time.Date(2026, 11, 20, 14, 0, second, 0, time.UTC).Format(time.RFC3339)
	return fmt.Sprintf(
		`{"specversion":"1.0","source":"/kubernetes/prod","id":"deployments.apps/%s/%d","type":"dev.kubecdc.%s","subject":"/x","time":"%s",`+
			`"cluster":"prod","apiversion":"apps/v1","resource":"deployments","scope":"%s","sequence":"%020d","data":%s}`,
		kind, second, kind, at, scope, rv, data)
}

// Each way in which a record can lack something is found, with its span and objects.
func TestAuditFindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	_, lines := recorded(t)
	const web = "deployments.apps shop/web"
	for name, c := range map[string]struct {
		damage damage
		args   []string
		until  string
		want   []string // kind since until resource objects
	}{
		"nothing": {damage: allOf(), want: nil},
		"a version was deleted from the log": {
			damage: without("deployments.apps/u-web/120"), want: []string{
				"contradicted 14:01:00 14:04:20 deployments.apps " + web,
			},
		},
		"the first version was deleted from the log": {
			damage: without("deployments.apps/u-web/90/r/s2"), want: []string{
				"contradicted 14:01:00 14:02:30 deployments.apps " + web,
			},
		},
		"a deletion was deleted from the log": {
			damage: without("deployments.apps/u-web/d"), args: []string{"deploy"}, until: "14:07:00", want: []string{
				"contradicted 14:04:20 14:06:10 deployments.apps " + web,
			},
		},
		"a filter": {
			damage: replaced(progressOf+"5", `{"resource":"deployments.apps","resourceVersion":"145"`,
				`{"resource":"deployments.apps","resourceVersion":"145","hidden":[{"from":"2026-11-20T14:04:10Z","fromResourceVersion":"138","until":"2026-11-20T14:04:20Z","untilResourceVersion":"140"}]`),
			want: []string{"filtered 14:04:10 14:04:20 deployments.apps "},
		},
		"versions that a filter withheld, and progress does not say so": {
			damage: replaced("deployments.apps/u-web/140", `"op":"u","resourceVersion":"140"`,
				`"op":"u","skipped":2,"resourceVersion":"140"`),
			want: []string{"filtered 14:02:30 14:04:20 deployments.apps " + web},
		},
		"the agent was away": {
			damage: replaced(progressOf+"4", `{"resource":"deployments.apps","resourceVersion":"135"`,
				`{"resource":"deployments.apps","resourceVersion":"135","interruptions":[{"why":"cut","from":"2026-11-20T14:03:10Z","until":"2026-11-20T14:03:40Z"}]`),
			want: []string{"interrupted 14:03:10 14:03:40 deployments.apps "},
		},
		"progress is missing": {
			damage: allOf(replaced(progressOf+"4", `"since":"2026-11-20T13:54:00Z"`, `"since":"2026-11-20T14:03:30Z"`)),
			want: []string{
				"interrupted 14:03:00 14:03:30 configmaps ",
				"interrupted 14:03:00 14:03:30 customresourcedefinitions.apiextensions.k8s.io ",
				"interrupted 14:03:00 14:03:30 deployments.apps ", "interrupted 14:03:00 14:03:30 secrets ",
				"interrupted 14:03:00 14:03:30 widgets.demo.example.com ",
			},
		},
		"a dead letter": {
			damage: allOf(without("deployments.apps/u-web/120"),
				followedBy(progressOf+"2", about("gap", 150, 120, "deployments.apps",
					`{"reason":"dead-letter","deadLetter":"deployments.apps/u-web/120","fromResourceVersion":"90","toResourceVersion":"120","since":"2026-11-20T14:02:30Z"}`))),
			want: []string{"dead-letter 14:02:30 14:04:20 deployments.apps "},
		},
		"an object that was too large": {
			damage: replaced("deployments.apps/u-web/120",
				`"after":{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"u-web","resourceVersion":"120","creationTimestamp":"2026-11-20T12:00:00Z","labels":{"app":"web"}},"spec":{"replicas":5,"template":{"spec":{"containers":[{"name":"app","image":"web:1"}]}}}}`,
				`"truncated":["after","patch"]`),
			want: []string{"truncated 14:02:30 14:04:20 deployments.apps " + web},
		},
		"a selection that was narrowed": {
			damage: followedBy(progressOf+"3",
				about("scope.ended", 190, 128, "deployments.apps",
					`{"resourceVersion":"128","end":"replaced","successors":["deployments.apps/other"],"writer":"3f0a5c1e9b7d2846","run":"0-1795183199000"}`),
				about("scope.started", 191, 129, "deployments.apps/other",
					`{"resourceVersion":"129","writer":"3f0a5c1e9b7d2846","run":"0-1795183199000"}`),
				about("snapshot.started", 192, 129, "deployments.apps/other",
					`{"snapshot":"o1","resourceVersion":"129","writer":"3f0a5c1e9b7d2846","run":"0-1795183199000"}`),
				about("snapshot.completed", 193, 129, "deployments.apps/other",
					`{"snapshot":"o1","resourceVersion":"129"}`),
			),
			args: []string{"deploy"},
			want: []string{
				"interrupted 14:03:00 14:03:10 deployments.apps ", "before-record 14:03:10 14:03:13 deployments.apps ",
				"not-selected 14:03:13 14:06:00 deployments.apps ",
			},
		},
		"a resource that was not captured": {damage: allOf(), args: []string{"deploy,roles"}, want: []string{
			"no-snapshot 14:01:00 14:06:00 roles.rbac.authorization.k8s.io ",
		}},
		"a record that cannot be read": {
			damage: followedBy(progressOf+"3", `{"specversion":`),
			args:   []string{"deploy"},
			want:   []string{"unreadable 14:01:00 14:06:00 deployments.apps "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "record.jsonl")
			if err := os.WriteFile(file, []byte(strings.Join(c.damage(t, lines), "\n")+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if c.args == nil {
				c.args = []string{"all"}
			}
			r, code, stderr := auditOf(t, "file:"+file, cmp.Or(c.until, "14:06:00"), c.args...)
			var got []string
			for _, f := range r.Findings {
				got = append(got,
					fmt.Sprintf("%s %s %s %s %s", f.Kind, f.Since.UTC().Format(time.TimeOnly),
						f.Until.UTC().Format(time.TimeOnly),
						f.Resource, strings.Join(f.Objects, ",")))
			}
			if diff := gocmp.Diff(c.want, got); diff != "" ||
				code != map[bool]int{true: exitOK, false: exitNotExact}[len(c.want) == 0] {
				t.Errorf("code %d, %s: -want +got\n%s", code, stderr, diff)
			}
			for _, f := range r.Findings {
				if f.What == "" || f.Advice == "" {
					t.Errorf("%s says nothing: %+v", f.Kind, f)
				}
			}
		})
	}
}

// A reader that may not read all objects, or whose stream copies only some, proves nothing about
// the others. About its own it does.
func TestAuditOfWhatATenantMayRead(t *testing.T) {
	t.Parallel()
	_, tenant := startTenant(t, nil)
	r, code, stderr := auditOf(t, tenant, "14:06:00", "cm", "-n", "shop")
	if code != exitOK || len(r.Findings) > 0 {
		t.Errorf("its own namespace: code %d, %s: %+v", code, stderr, r.Findings)
	}
	for _, args := range [][]string{{"cm", "-A"}, {"cm", "-n", "bank"}, {"cm", "-n", "*"}} {
		r, code, stderr := auditOf(t, tenant, "14:06:00", args...)
		isSaid := r.Only == copyOf && len(r.Findings) == 1 && r.Findings[0].Kind == "not-permitted" &&
			strings.Contains(r.Findings[0].What, copyOf)
		if code != exitNotExact || !isSaid {
			t.Errorf("%v: code %d, %s: %+v", args, code, stderr, r)
		}
	}
	text := answerOf(t, "audit", "cm", "-A", "--since", "2026-11-20T14:01:00Z", "--until", "2026-11-20T14:06:00Z", "-o",
		"markdown", "--bus", tenant)
	if strings.Contains(text.Out, "secret") || !strings.Contains(text.Out, "| bus | nats://127.0.0.1:") {
		t.Errorf("the password of the bus is in the report: %s", text.Out)
	}
}

// An object that was too large at one time lowers the answers about that time, and no others.
func TestGetBesideAnObjectThatWasTooLarge(t *testing.T) {
	t.Parallel()
	_, lines := recorded(t)
	file := filepath.Join(t.TempDir(), "record.jsonl")
	lost := allOf(
		replaced("deployments.apps/u-web/120",
			`"after":{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"u-web","resourceVersion":"120","creationTimestamp":"2026-11-20T12:00:00Z","labels":{"app":"web"}},"spec":{"replicas":5,"template":{"spec":{"containers":[{"name":"app","image":"web:1"}]}}}}`,
			`"truncated":["after","patch"]`),
		replaced("deployments.apps/u-web/120", `"op":"u","resourceversion"`,
			`"op":"u","dataref":"file:///none","resourceversion"`),
	)(t, lines)
	if err := os.WriteFile(file, []byte(strings.Join(lost, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for minute, want := range map[string]int{
		"02:00": exitOK,
		"02:30": exitNotExact,
		"04:00": exitNotExact,
		"04:20": exitOK,
		"05:00": exitOK,
	} {
		got := answerOf(t, "get", "deploy", "--at", "2026-11-20T14:"+minute+"Z", "--exact", "-o", "name", "--bus",
			"file:"+file)
		if isSaid := strings.Contains(got.Err, "too large for the bus"); got.Code != want ||
			isSaid != (want != exitOK) {
			t.Errorf("at 14:%s: %+v", minute, got)
		}
		r, _, _ := auditOf(t, "file:"+file, "14:06:00", "deploy")
		if len(r.Findings) != 1 || r.Findings[0].Kind != "truncated" {
			t.Errorf("the audit: %+v", r.Findings)
		}
	}
}
