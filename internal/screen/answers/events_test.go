package answers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
)

// happened is the part of an answer in JSON that is about Events.
type happened struct {
	Events []struct {
		Time      time.Time
		Op        string
		Type      string
		Reason    string
		Message   string
		By        string
		Count     int
		Regarding struct{ Resource, Name string }
	}
	Kubecdc struct {
		Certainty string
		Scopes    []struct {
			Resource string
			Causes   []struct {
				Kind    string
				Records int
			}
		}
	}
}

// lines returns the minute of each Event, what it is about, and its reason and count.
func (h *happened) lines() (lines []string) {
	for _, e := range h.Events {
		lines = append(lines,
			fmt.Sprintf("%d %s %s %s %d", e.Time.Minute(), e.Regarding.Resource, e.Regarding.Name, e.Reason, e.Count))
	}
	return lines
}

// causes returns the kinds of what lowers the certainty of Events.
func (h *happened) causes() (kinds []string) {
	for _, s := range h.Kubecdc.Scopes {
		for _, c := range s.Causes {
			if strings.HasPrefix(s.Resource, "events") && !slices.Contains(kinds, c.Kind) {
				kinds = append(kinds, c.Kind)
			}
		}
	}
	return kinds
}

// askEvents asks for a history with Events up to 14:10.
func askEvents(
	t *testing.T, path, format, namespace, selector string, since *timeline.Moment, args ...string,
) (stdout, stderr string, err error) {
	t.Helper()
	wanted, err := record.NewSelection(args, namespace, selector, "")
	if err != nil {
		t.Fatal(err)
	}
	var out, said strings.Builder
	q := answers.New(&record.Record{Source: &fromfile.File{Path: path}}, wanted, printer.Format{Name: format},
		&terminal.Output{Writer: &out}, &terminal.Output{Writer: &said})
	q.Exact = true
	if err := q.Resolve(t.Context()); err != nil {
		t.Fatal(err)
	}
	until := timeline.At(time.Date(2026, 11, 20, 14, 10, 0, 0, time.UTC))
	err = q.History(t.Context(), &answer.Span{Since: since, Until: until, Events: true})
	return out.String(), said.String(), err
}

// workloads are the resources that a Deployment and what it owns are of, and Events.
var workloads = []string{"deployments.apps", "replicasets.apps", "pods", "persistentvolumeclaims", "events"}

// web writes a Deployment, its ReplicaSet and its Pod, and the same of another one.
func web(r *recorder) {
	for _, name := range []string{"web", "api"} {
		r.object("c", "deployments.apps", "Deployment", name, nil)
		r.object("c", "replicasets.apps", "ReplicaSet", name+"-1", nil, "Deployment "+name)
		r.object("c", "pods", "Pod", name+"-1-a", nil, "ReplicaSet "+name+"-1")
	}
}

func TestEventsBesideVersions(t *testing.T) {
	for _, c := range []struct {
		name      string
		scopes    []string
		write     func(*recorder)
		namespace string // default: shop
		selector  string
		args      []string // default: deploy/web
		want      []string
		causes    []string // of Events; none: the answer is exact
	}{
		{name: "of all that it owns, in the order of the record", write: func(r *recorder) {
			r.event("c", "Pod web-1-a", "Early") // observed before the Pod
			web(r)
			r.pass(1)
			r.event("c", "Deployment web", "Scaled")
			r.event("c", "Pod api-1-a", "Foreign")
			r.pass(1)
			r.event("c", "ReplicaSet web-1", "Created")
			r.event("c", "Pod web-1-a", "Failed")
			r.object("d", "pods", "Pod", "web-1-a", nil)
			r.pass(1)
			r.event("c", "Pod web-1-a", "Killed")
		}, want: []string{
			"0 pods web-1-a Early 1", "1 deployments.apps web Scaled 1", "2 replicasets.apps web-1 Created 1",
			"2 pods web-1-a Failed 1", "3 pods web-1-a Killed 1",
		}},
		{name: "by the owners of that time", write: func(r *recorder) {
			web(r)
			r.event("c", "Pod web-1-a", "Owned")
			r.pass(1)
			r.object("u", "pods", "Pod", "web-1-a", nil)
			r.event("c", "Pod web-1-a", "Orphan")
			r.pass(1)
			r.object("u", "pods", "Pod", "web-1-a", nil, "ReplicaSet api-1")
			r.event("c", "Pod web-1-a", "Adopted")
			r.pass(1)
			r.object("u", "pods", "Pod", "web-1-a", nil, "ReplicaSet api-1", "ReplicaSet web-1")
			r.event("c", "Pod web-1-a", "Shared")
		}, want: []string{"0 pods web-1-a Owned 1", "3 pods web-1-a Shared 1"}},
		{name: "owners in a circle", write: func(r *recorder) {
			web(r)
			r.object("c", "pods", "Pod", "a", nil, "Pod b")
			r.object("c", "pods", "Pod", "b", nil, "Pod a")
			r.event("c", "Pod a", "Circle")
		}},
		{name: "each step once, and no deletion", write: func(r *recorder) {
			web(r)
			r.event("c", "Pod web-1-a", "BackOff")
			r.pass(1)
			r.event("u", "Pod web-1-a", "BackOff", members{"action": "other"})
			r.event("u", "Pod web-1-a", "BackOff", members{"count": 3})
			r.pass(1)
			r.event("u", "Pod web-1-a", "BackOff", members{"count": 3, "message": "now another one"})
			r.event("u", "Pod web-1-a", "BackOff", members{"count": nil, "series": members{
				"count": 7,
			}, "message": "now another one"})
			r.pass(1)
			r.event("d", "Pod web-1-a", "BackOff")
		}, want: []string{
			"0 pods web-1-a BackOff 1", "1 pods web-1-a BackOff 3", "2 pods web-1-a BackOff 3",
			"2 pods web-1-a BackOff 7",
		}},
		{
			name:   "once of two groups",
			scopes: append([]string{"events.events.k8s.io"}, workloads...),
			write: func(r *recorder) {
				web(r)
				regarding := members{
					"kind":       "Pod",
					"name":       "web-1-a",
					"namespace":  "shop",
					"uid":        "u-web-1-a",
					"apiVersion": "v1",
				}
				at := r.at()
				newer := func(count int) members {
					return members{
						"regarding":                regarding,
						"reason":                   "BackOff",
						"note":                     "it is BackOff",
						"type":                     "Warning",
						"deprecatedCount":          count,
						"deprecatedFirstTimestamp": at,
						"deprecatedLastTimestamp":  at,
						"reportingController":      "kubelet",
					}
				}
				r.event("c", "Pod web-1-a", "BackOff")
				r.objectAt(r.version, "c", "events.events.k8s.io", "Event", "BackOff", newer(1))
				r.pass(1)
				r.version++
				r.objectAt(r.version, "u", "events.events.k8s.io", "Event", "BackOff", newer(2))
				r.version--
				r.event("u", "Pod web-1-a", "BackOff", members{"count": 2})
				r.pass(1)
				r.event("u", "Pod web-1-a", "BackOff", members{"count": 4}) // the other group is behind
				r.objectAt(r.version-1, "u", "events.events.k8s.io", "Event", "BackOff", newer(3))
			},
			want: []string{"0 pods web-1-a BackOff 1", "1 pods web-1-a BackOff 2", "2 pods web-1-a BackOff 4"},
		},
		{name: "of an object that the record does not have", write: func(r *recorder) {
			web(r)
			r.event("c", "Pod web-1-b", "Unknown")
			r.object("c", "pods", "Pod", "web-1-c", nil, "ReplicaSet web-9")
			r.event("c", "Pod web-1-c", "OwnerUnknown")
			r.event("c", "Service web", "CannotBeOwned", members{"of": members{"apiVersion": "v1"}})
		}, causes: []string{"unplaced"}},
		{name: "of another Deployment with an unknown one above it", write: func(r *recorder) {
			web(r)
			r.object("c", "replicasets.apps", "ReplicaSet", "db-1", nil, "Deployment db")
			r.event("c", "ReplicaSet db-1", "Other")
		}},
		{name: "by name, if the uid is missing", write: func(r *recorder) {
			web(r)
			r.event("c", "Pod web-1-a", "NoUID", members{"of": members{"uid": ""}})
			r.event("c", "Pod web-1-a", "NoVersion", members{"of": members{"uid": "", "apiVersion": ""}})
			r.event("c", "Pod web-1-a", "Former", members{"of": members{"uid": "u-former"}})
		}, want: []string{"0 pods web-1-a NoUID 1", "0 pods web-1-a NoVersion 1"}, causes: []string{"unplaced"}},
		{name: "of a Node, in namespace default", scopes: []string{"nodes", "events"}, args: []string{
			"nodes",
		}, namespace: "*", write: func(r *recorder) {
			r.object("c", "nodes", "Node", "/n1", nil)
			in := func(uid string) members { return members{"of": members{"namespace": "", "uid": uid}} }
			r.event("c", "Node n1", "NotReady", in("n1"), members{"name": "default/NotReady"})
			r.event("c", "Node n1", "Ready", in("u-n1"), members{"name": "default/Ready"})
			r.event("c", "Node n1", "Elsewhere", in("u-n1"), members{"name": "shop/Elsewhere"})
		}, want: []string{"0 nodes n1 NotReady 1", "0 nodes n1 Ready 1"}},
		{
			name:   "of a custom resource",
			scopes: append([]string{"widgets.demo.example.com"}, workloads...),
			args:   []string{"widgets.demo.example.com"},
			write: func(r *recorder) {
				r.object("c", "widgets.demo.example.com", "Widget", "gear", nil)
				r.object("c", "deployments.apps", "Deployment", "gear-web", nil, "Widget gear")
				r.object("c", "replicasets.apps", "ReplicaSet", "gear-web-1", nil, "Deployment gear-web")
				r.object("c", "pods", "Pod", "gear-web-1-a", nil, "ReplicaSet gear-web-1")
				web(r)
				r.event("c", "Pod gear-web-1-a", "Failed")
				r.event("c", "Widget gear", "Synced")
				r.event("c", "Pod web-1-a", "Foreign")
			},
			want: []string{"0 pods gear-web-1-a Failed 1", "0 widgets.demo.example.com gear Synced 1"},
		},
		{name: "of objects with a label", selector: "app=web", args: []string{"deploy"}, write: func(r *recorder) {
			web(r)
			r.event("c", "Pod web-1-a", "Failed")
			r.event("c", "Pod api-1-a", "Foreign")
		}, want: []string{"0 pods web-1-a Failed 1"}},
		{name: "of all with a label", selector: "app=api", args: []string{"all"}, write: func(r *recorder) {
			web(r)
			r.event("c", "Pod web-1-a", "Foreign")
			r.event("c", "Pod api-1-a", "Failed")
		}, want: []string{"0 pods api-1-a Failed 1"}},
		{name: "of all", args: []string{"all"}, write: func(r *recorder) {
			web(r)
			r.event("c", "Pod web-1-b", "Unknown")
			r.event("c", "Pod api-1-a", "Failed")
		}, want: []string{"0 pods web-1-b Unknown 1", "0 pods api-1-a Failed 1"}},
		{name: "of another namespace", namespace: "*", write: func(r *recorder) {
			web(r)
			r.event("c", "Pod web-1-a", "Foreign", members{"name": "other/Foreign", "of": members{
				"namespace": "other",
			}})
			r.event("c", "Pod web-1-a", "Failed")
		}, want: []string{"0 pods web-1-a Failed 1"}},
		{name: "not captured", scopes: workloads[:4], write: web, causes: []string{"no-snapshot"}},
		{
			name:   "of a selection",
			scopes: append([]string{"events?fieldSelector=type=Warning"}, workloads[:4]...),
			write: func(r *recorder) {
				web(r)
				r.event("c", "Pod web-1-a", "Failed")
			},
			want:   []string{"0 pods web-1-a Failed 1"},
			causes: []string{"selected"},
		},
		{name: "left a selection", write: func(r *recorder) {
			web(r)
			r.event("c", "Pod web-1-a", "Failed")
			r.event("l", "Pod web-1-a", "Failed")
		}, want: []string{"0 pods web-1-a Failed 1"}, causes: []string{"selected"}},
		{name: "withheld", write: func(r *recorder) {
			web(r)
			r.event("c", "Pod web-1-a", "Failed")
			r.skipped = 2
			r.event("u", "Pod web-1-a", "Failed", members{"count": 9})
		}, want: []string{"0 pods web-1-a Failed 1", "0 pods web-1-a Failed 9"}, causes: []string{"withheld"}},
		{name: "no longer captured", write: func(r *recorder) {
			web(r)
			r.event("c", "Pod web-1-a", "Failed")
			r.pass(3)
			run := members{
				"writer":          "w",
				"run":             "0-1795183199000",
				"resourceVersion": fmt.Sprint(r.version),
				"end":             "deselected",
			}
			r.stream("scope.ended", "events", run)
			r.scopes = r.scopes[:4]
		}, want: []string{"0 pods web-1-a Failed 1"}, causes: []string{"captured-until"}},
		{name: "a gap in the span", write: func(r *recorder) {
			web(r)
			r.pass(2)
			r.stream("gap", "events", members{
				"fromResourceVersion": "110",
				"toResourceVersion":   "115",
				"since":               "2026-11-20T14:01:00Z",
				"reason":              "expired",
				"recovered":           true,
			})
			for _, kind := range []string{"snapshot.started", "snapshot.completed"} {
				r.stream(kind, "events", members{
					"snapshot":        "s2",
					"objects":         0,
					"resourceVersion": "115",
					"writer":          "w",
					"run":             "0-1795183199000",
				})
			}
			r.version = 115
			r.pass(3)
			r.event("c", "Pod web-1-a", "Failed")
		}, want: []string{"5 pods web-1-a Failed 1"}, causes: []string{"recovered-gap"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.scopes == nil {
				c.scopes = workloads
			}
			if c.args == nil {
				c.args = []string{"deploy/web"}
			}
			if c.namespace == "" {
				c.namespace = "shop"
			}
			r := newRecorder(c.scopes...)
			c.write(r)
			r.pass(12 - r.minute)
			stdout, stderr, err := askEvents(t, r.path(t), printer.JSON, strings.Trim(c.namespace, "*"), c.selector,
				nil, c.args...)
			var got happened
			if wrong := json.Unmarshal([]byte(stdout), &got); wrong != nil {
				t.Fatalf("%v\n%s%s", wrong, stdout, stderr)
			}
			if diff := gocmp.Diff(c.want, got.lines()); diff != "" {
				t.Errorf("-want +got\n%s%s", diff, stderr)
			}
			if diff := gocmp.Diff(c.causes, got.causes()); diff != "" || (err == nil) != (c.causes == nil) {
				t.Errorf("%v: -want +got\n%s%s", err, diff, stderr)
			}
			if len(c.want) == 0 && !strings.Contains(stderr, "Events") {
				t.Errorf("nothing says that there are no Events: %q", stderr)
			}
		})
	}
}

// Events before the span are not shown, also if a snapshot in the span reads them.
func TestEventsSince(t *testing.T) {
	r := newRecorder(workloads...)
	web(r)
	r.event("c", "Pod web-1-a", "BackOff")
	r.event("c", "Pod web-1-a", "Scheduled")
	r.pass(4)
	r.event("u", "Pod web-1-a", "BackOff", members{"count": 3})
	r.pass(8)
	since := timeline.At(time.Date(2026, 11, 20, 14, 2, 0, 0, time.UTC))
	stdout, stderr, err := askEvents(t, r.path(t), printer.Table, "shop", "", &since, "deploy/web")
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	const want = "2026-11-20T14:04:30Z Event    pods           shop/web-1-a                 " +
		"Warning BackOff: it is BackOff (3 times)  by kubelet\n"
	if diff := gocmp.Diff(want, stdout); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// The formats that have a place for Events show them. The others say so.
func TestEventsFormats(t *testing.T) {
	r := newRecorder(workloads...)
	web(r)
	r.pass(1)
	r.event("c", "Pod web-1-a", "BackOff", members{
		"count": 2, "message": "first line\nsecond line", "firstTimestamp": "2026-11-20T13:00:00Z",
		"lastTimestamp": "2026-11-20T14:01:00Z",
	})
	r.pass(11)
	path := r.path(t)
	for _, c := range []struct {
		format, want string
	}{
		{
			printer.Diff,
			"Event    pods           shop/web-1-a                 Warning BackOff (2 times since 13:00:00, last at 14:01:00)  by kubelet\n" +
				"    first line\n    second line\n",
		},
		{
			printer.Table,
			"Warning BackOff: first line\\nsecond line (2 times since 13:00:00, last at 14:01:00)  by kubelet\n",
		},
		{
			printer.Wide,
			"rv=107       cluster=x uid=u-web-1-a                            Warning BackOff (2 times since 13:00:00, last at 14:01:00, event BackOff)",
		},
		{
			printer.YAML,
			"---\n# 2026-11-20T14:01:30Z Event Warning BackOff about pods shop/web-1-a, 2 times by kubelet\ncount: 2\n",
		},
	} {
		stdout, stderr, err := askEvents(t, path, c.format, "shop", "", nil, "deploy/web")
		if err != nil || !strings.Contains(stdout, c.want) {
			t.Errorf("%s: %v\n%s%s", c.format, err, stdout, stderr)
		}
	}
	for _, format := range []string{printer.Name, printer.JSONPath} {
		_, _, err := askEvents(t, path, format, "shop", "", nil, "deploy/web")
		if wrong := (answer.UsageError{}); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", format, err)
		}
	}
	_, _, err := askEvents(t, path, printer.JSON, "shop", "", nil, "deploy,events")
	if wrong := (answer.UsageError{}); !errors.As(err, &wrong) {
		t.Errorf("events: %v", err)
	}
}

// Events that are captured only since a time in the span are shown, and the answer is not exact.
func TestEventsCapturedLater(t *testing.T) {
	r := newRecorder(workloads[:4]...)
	web(r)
	r.pass(5)
	for _, kind := range []string{"snapshot.started", "snapshot.completed"} {
		r.stream(kind, "events", members{
			"snapshot":        "s-events",
			"objects":         0,
			"resourceVersion": "107",
			"writer":          "w",
			"run":             "0-1795183199000",
		})
	}
	r.version = 107
	r.scopes = workloads
	r.event("c", "Pod web-1-a", "Failed")
	r.pass(7)
	path := r.path(t)
	for minute, wantErr := range map[int]error{2: answer.ErrNotExact, 7: nil} {
		since := timeline.At(time.Date(2026, 11, 20, 14, minute, 0, 0, time.UTC))
		stdout, stderr, err := askEvents(t, path, printer.Table, "shop", "", &since, "deploy/web")
		if !errors.Is(err, wantErr) || strings.Contains(stdout, "Failed") != (minute == 2) {
			t.Errorf("since minute %d: %v\n%s%s", minute, err, stdout, stderr)
		}
		isSaid := strings.Contains(stderr, "events: unknown: the record begins later, at 2026-11-20T14:05:30Z")
		if isSaid != (minute == 2) {
			t.Errorf("since minute %d: %s", minute, stderr)
		}
	}
}
