package answers_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type members = map[string]any

// recorder writes the record of one cluster, in which an agent observes some resources from minute
// 0 on, and says each minute that it does.
type recorder struct {
	scopes  []string // their names
	lines   []string
	before  map[string]members
	version int
	minute  int
	skipped int // of the next event
}

// newRecorder begins a record of scopes, such as "pods" and "events?fieldSelector=type=Warning".
func newRecorder(scopes ...string) *recorder {
	r := &recorder{scopes: scopes, before: map[string]members{}, version: 100}
	for _, scope := range scopes {
		for _, kind := range []string{"snapshot.started", "snapshot.completed"} {
			r.stream(kind, scope, members{
				"snapshot":        "s-" + scope,
				"objects":         0,
				"resourceVersion": "100",
				"writer":          "w",
				"run":             "0-1795183199000",
			})
		}
	}
	return r
}

func (r *recorder) put(e members) {
	raw, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	r.lines = append(r.lines, string(raw))
}

func (r *recorder) at() string { return fmt.Sprintf("2026-11-20T14:%02d:30Z", r.minute) }

func (r *recorder) envelope(kind, resource string, data members) members {
	plural, group, _ := strings.Cut(resource, ".")
	version := "v1"
	if group != "" {
		version = group + "/v1"
	}
	return members{
		"specversion": "1.0", "source": "/kubernetes/x", "cluster": "x", "type": "dev.kubecdc." + kind, "time": r.at(),
		"id": fmt.Sprintf("%d/%s", len(r.lines), kind), "apiversion": version, "resource": plural, "data": data,
	}
}

func (r *recorder) stream(kind, scope string, data members) {
	resource, _, _ := strings.Cut(scope, "?")
	e := r.envelope(kind, resource, data)
	e["scope"] = scope
	r.put(e)
}

// pass says that all scopes were observed for some minutes.
func (r *recorder) pass(minutes int) {
	for range minutes {
		r.minute++
		data := members{
			"writer": "w", "run": "0-1795183199000", "number": r.minute, "since": "2026-11-20T13:50:00Z",
			"to": fmt.Sprintf("2026-11-20T14:%02d:00Z", r.minute), "etcd": "1",
		}
		var scopes []members
		for _, scope := range r.scopes {
			resource, _, _ := strings.Cut(scope, "?")
			entry := members{"resource": resource, "resourceVersion": fmt.Sprint(r.version)}
			if scope != resource {
				entry["scope"] = scope
			}
			scopes = append(scopes, entry)
		}
		data["scopes"] = scopes
		e := r.envelope("progress", "", data)
		e["time"] = fmt.Sprintf("2026-11-20T14:%02d:00Z", r.minute)
		delete(e, "resource")
		delete(e, "apiversion")
		r.put(e)
	}
}

// object writes the next version of an object: c, u, d or l.
func (r *recorder) object(op, resource, kind, name string, content members, owners ...string) {
	r.version++
	r.objectAt(r.version, op, resource, kind, name, content, owners...)
}

// objectAt writes the version of an object. An owner is "KIND NAME", with the uid u-NAME.
func (r *recorder) objectAt(version int, op, resource, kind, name string, content members, owners ...string) {
	namespace := "shop"
	if of, plain, ok := strings.Cut(name, "/"); ok {
		namespace, name = of, plain
	}
	meta := members{"name": name, "uid": "u-" + name, "resourceVersion": fmt.Sprint(version), "labels": members{
		"app": strings.Split(name, "-")[0],
	}}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	var references []members
	for _, owner := range owners {
		ownerKind, ownerName, _ := strings.Cut(owner, " ")
		group := map[string]string{"Pod": "v1", "Node": "v1", "Widget": "demo.example.com/v1"}[ownerKind]
		if group == "" {
			group = "apps/v1"
		}
		references = append(references, members{
			"apiVersion": group,
			"kind":       ownerKind,
			"name":       ownerName,
			"uid":        "u-" + ownerName,
		})
	}
	if references != nil {
		meta["ownerReferences"] = references
	}
	after := members{"metadata": meta}
	for key, value := range content {
		after[key] = value
	}
	word := map[string]string{"c": "created", "u": "updated", "d": "deleted", "l": "left"}[op]
	data := members{"op": op, "resourceVersion": fmt.Sprint(version), "before": r.before[resource+name]}
	if op == "c" || op == "u" {
		data["after"] = after
		r.before[resource+name] = after
	}
	if r.skipped > 0 {
		data["skipped"], r.skipped = r.skipped, 0
	}
	e := r.envelope("object."+word, resource, data)
	e["kind"] = kind
	e["name"] = name
	e["uid"] = "u-" + name
	e["op"] = op
	e["resourceversion"], e["sequence"] = fmt.Sprint(version), fmt.Sprintf("%020d", version)
	if namespace != "" {
		e["namespace"] = namespace
	}
	for _, scope := range r.scopes {
		if strings.HasPrefix(scope, resource+"?") {
			e["scope"] = scope
		}
	}
	e["id"] = fmt.Sprintf("%s/u-%s/%d", resource, name, version)
	r.put(e)
}

// event writes a version of an Event about an object, which has the uid u-NAME. A reason is also
// its name.
func (r *recorder) event(op, about, reason string, more ...members) {
	kind, name, _ := strings.Cut(about, " ")
	apiVersion := map[string]string{"Pod": "v1", "Node": "v1", "Widget": "demo.example.com/v1"}[kind]
	if apiVersion == "" {
		apiVersion = "apps/v1"
	}
	involved := members{"kind": kind, "name": name, "namespace": "shop", "uid": "u-" + name, "apiVersion": apiVersion}
	content := members{
		"involvedObject": involved, "reason": reason, "message": "it is " + reason, "type": "Warning", "count": 1,
		"firstTimestamp": r.at(), "lastTimestamp": r.at(), "source": members{"component": "kubelet"},
	}
	eventName := reason
	for _, m := range more {
		for key, value := range m {
			switch key {
			case "of":
				for k, v := range value.(members) {
					involved[k] = v
				}
			case "name":
				eventName = value.(string)
			default:
				content[key] = value
			}
		}
	}
	r.object(op, "events", "Event", eventName, content)
}

func (r *recorder) path(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "record.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(r.lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
