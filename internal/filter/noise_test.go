package filter_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/object"
)

var (
	leases = &object.Resource{
		Group:      "coordination.k8s.io",
		Version:    "v1",
		Name:       "leases",
		Kind:       "Lease",
		Namespaced: true,
	}
	endpoints = &object.Resource{Version: "v1", Name: "endpoints", Kind: "Endpoints", Namespaced: true}
	slicesOf  = &object.Resource{
		Group:      "discovery.k8s.io",
		Version:    "v1",
		Name:       "endpointslices",
		Kind:       "EndpointSlice",
		Namespaced: true,
	}
	pods    = &object.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	secrets = &object.Resource{Version: "v1", Name: "secrets", Kind: "Secret", Namespaced: true}
)

// resourceOf returns the resource of a pair of testdata/objects, by the first word of its name.
func resourceOf(t testing.TB, pair string) *object.Resource {
	t.Helper()
	word, _, _ := strings.Cut(pair, "-")
	r := map[string]*object.Resource{
		"lease":      leases,
		"node":       nodes,
		"slice":      slicesOf,
		"endpoints":  endpoints,
		"deployment": deployments,
		"pod":        pods,
	}[word]
	if r == nil {
		t.Fatalf("no resource for %s", pair)
	}
	return r
}

// real returns an object as the API server wrote it (v1.36.3). Nodes and the status of pods were
// written as the kubelet does.
func real(t testing.TB, pair, side string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "objects", pair+"."+side+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(raw))
}

// stripped returns an object as an informer keeps it.
func stripped(t testing.TB, doc string) string {
	t.Helper()
	c, err := object.NewCutter([]string{
		"metadata.managedFields", `metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`,
	})
	if err != nil {
		t.Fatal(err)
	}
	out, _, err := object.NewScanner(c).Scan(nil, []byte(doc), "", "")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// withheldPairs returns the filters that withhold each pair of testdata/objects.
func withheldPairs() map[string][]string {
	return map[string][]string{
		"lease-renewed":            {"lease-heartbeats"},
		"node-heartbeat":           {"node-heartbeats", "status-only"},
		"node-image":               {"status-only"},
		"node-not-ready":           {"status-only"},
		"node-tainted":             nil,
		"slice-first":              nil, // its ports come with the first endpoint
		"slice-grown":              {"endpoints-churn"},
		"slice-unready":            {"endpoints-churn"},
		"slice-terminating":        {"endpoints-churn"}, // and the last annotation goes
		"slice-port":               nil,
		"endpoints-first":          nil,
		"endpoints-grown":          {"endpoints-churn"},
		"endpoints-unready":        {"endpoints-churn"},
		"endpoints-terminating":    {"endpoints-churn"},
		"endpoints-port":           nil,
		"deployment-revision":      nil, // an annotation comes with the status
		"deployment-available":     {"status-only"},
		"deployment-applied-again": {"managed-fields-only", "status-only"},
		"deployment-scaled":        nil,
		"deployment-observed":      {"status-only"},
		"pod-bound":                nil,
		"pod-running":              {"status-only"},
		"pod-unready":              {"status-only"},
		"pod-deleting":             nil,
	}
}

func TestNoiseOnRealObjects(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "objects", "*.before.json"))
	if err != nil || len(files) != len(withheldPairs()) {
		t.Fatalf("%d pairs of objects, %d in the table: %v", len(files), len(withheldPairs()), err)
	}
	for pair, want := range withheldPairs() {
		r := resourceOf(t, pair)
		for _, form := range []func(testing.TB, string) string{stripped, func(_ testing.TB, doc string) string {
			return doc
		}} {
			before, after := form(t, real(t, pair, "before")), form(t, real(t, pair, "after"))
			var got []string
			for _, name := range filter.NoiseNames() {
				x := resourced(t, filter.Options{Noise: []string{name}}, r)
				if x == nil {
					continue
				}
				switch reason := x.Withholds(deltaOf(r, "", "n", object.Updated, before, after)); reason {
				case "noise:" + name:
					got = append(got, name)
				case "":
				default:
					t.Errorf("%s: withheld for %q", pair, reason)
				}
				// The reverse update has the same result.
				if there, back := x.Withholds(deltaOf(r, "", "n", object.Updated, before, after)),
					x.Withholds(deltaOf(r, "", "n", object.Updated, after, before)); there != back {
					t.Errorf("%s, %s: %q there, %q back", pair, name, there, back)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s is withheld by -want +got\n%s", pair, diff)
			}
		}
	}
}

// These changes, made by hand to real objects, must always be sent.
func TestNoiseSendsWhatMatters(t *testing.T) {
	for _, tc := range []struct {
		pair, old, new string // old is replaced in the object after
	}{
		{"lease-renewed", `"holderIdentity":"apiserver-`, `"holderIdentity":"another-`},
		{"lease-renewed", `"leaseDurationSeconds":`, `"leaseTransitions":4,"leaseDurationSeconds":`},
		{"node-heartbeat", `"kubeletVersion":"v1.36.3"`, `"kubeletVersion":"v1.36.4"`},
		{"node-heartbeat", `"status":"True"`, `"status":"Unknown"`},
		{
			"node-heartbeat", `"lastTransitionTime":"2026-11-20T15:00:00Z"`,
			`"lastTransitionTime":"2026-11-20T15:00:01Z"`,
		},
		{"slice-unready", `"kubernetes.io/service-name":"web"`, `"kubernetes.io/service-name":"shop"`},
		{"slice-unready", `"addressType":"IPv4"`, `"addressType":"IPv6"`},
		{"slice-unready", `"annotations":{`, `"annotations":{"team":"payments",`},
		{"endpoints-unready", `"port":8080`, `"port":8081`},
		{"endpoints-unready", `"annotations":{`, `"annotations":{"control-plane.alpha.kubernetes.io/leader":"{}",`},
	} {
		r := resourceOf(t, tc.pair)
		var names []string
		for _, name := range withheldPairs()[tc.pair] {
			if name != "status-only" {
				names = append(names, name)
			}
		}
		x := resourced(t, filter.Options{Noise: names}, r)
		before, after := real(t, tc.pair, "before"), real(t, tc.pair, "after")
		if got := x.Withholds(deltaOf(r, "", "n", object.Updated, before, after)); got == "" {
			t.Errorf("%s is sent", tc.pair)
		}
		changed := strings.Replace(after, tc.old, tc.new, 1)
		if changed == after {
			t.Fatalf("%s has no %s", tc.pair, tc.old)
		}
		if got := x.Withholds(deltaOf(r, "", "n", object.Updated, before, changed)); got != "" {
			t.Errorf("%s with %s is withheld: %q", tc.pair, tc.new, got)
		}
	}
}

// A filter applies only to its own resources, and only to updates.
func TestNoiseIsForItsResources(t *testing.T) {
	all := filter.Options{Noise: filter.NoiseNames()}
	only := func(name string) filter.Options { return filter.Options{Noise: []string{name}} }
	if resourced(t, only("lease-heartbeats"), pods) != nil || resourced(t, only("node-heartbeats"), pods) != nil ||
		resourced(t, only("endpoints-churn"), pods) != nil || resourced(t, only("status-only"), pods) == nil ||
		resourced(t, only("managed-fields-only"), secrets) != nil || resourced(t, filter.Options{}, pods) != nil {
		t.Error("a filter is for other resources than it says")
	}
	same := real(t, "pod-running", "before")
	for _, op := range []object.Op{object.Created, object.Deleted, object.Read, object.Entered, object.Left} {
		x := resourced(t, all, pods)
		if got := x.Withholds(deltaOf(pods, "default", "web", op, same, same)); got != "" {
			t.Errorf("%s is withheld: %q", op, got)
		}
	}
	d := deltaOf(pods, "default", "web", object.Updated, same, same)
	d.Inferred = true
	if got := resourced(t, all, pods).Withholds(d); got != "noise:managed-fields-only" && got != "noise:status-only" &&
		!strings.HasPrefix(got, "noise:") {
		t.Errorf("an inferred update without a difference is sent: %q", got)
	}
	d = &object.Delta{Stream: &object.StreamEvent{
		Kind:            object.ScopeStarted,
		Resource:        pods,
		Scope:           "pods",
		ResourceVersion: 1,
	}}
	if got := resourced(t, filter.Options{Noise: filter.NoiseNames(), Operations: []string{
		"created",
	}, Where: "false"}, pods).Withholds(d); got != "" {
		t.Errorf("a stream event is withheld: %q", got)
	}
}

func TestOperations(t *testing.T) {
	for operations, want := range map[string]string{
		"":                        "",
		"created updated deleted": "",
		"created deleted":         "u",
		"created":                 "ud",
		"updated":                 "cd",
		"deleted updated":         "c",
	} {
		f, err := filter.New(filter.Options{Operations: strings.Fields(operations)})
		if err != nil {
			t.Fatal(err)
		}
		x := f.For(pods)
		got := ""
		for _, op := range object.Ops() {
			if x == nil {
				continue
			}
			switch reason := x.Withholds(deltaOf(pods, "a", "b", op, `{"a":1}`, `{"a":2}`)); reason {
			case filter.ReasonOperations:
				got += string(op)
			case "":
			default:
				t.Errorf("%s: %q", operations, reason)
			}
		}
		if got != want {
			t.Errorf("%q withholds %q, want %q", operations, got, want)
		}
	}
}

// If redaction removes values, an update that changes only such a value looks unchanged. It must be
// sent.
func TestNoiseSparesRemovedValues(t *testing.T) {
	doc := func(rv, generation, status string) string {
		return `{"metadata":{"name":"x","resourceVersion":"` + rv + `","generation":` + generation + `},"status":` +
			status + `}`
	}
	for _, tc := range []struct {
		name, before, after string
		removed, hashed     string // withheld for
	}{
		{"nothing differs", doc("1", "1", `{"a":1}`), doc("2", "1", `{"a":1}`), "", "noise:managed-fields-only"},
		{"generation", doc("1", "1", `{"a":1}`), doc("2", "2", `{"a":1}`), "", "noise:managed-fields-only"},
		{"generation and status", doc("1", "1", `{"a":1}`), doc("2", "2", `{"a":2}`), "", "noise:status-only"},
		{"status", doc("1", "1", `{"a":1}`), doc("2", "1", `{"a":2}`), "noise:status-only", "noise:status-only"},
	} {
		for removes, want := range map[bool]string{true: tc.removed, false: tc.hashed} {
			x := resourced(t, filter.Options{
				Noise:   []string{"managed-fields-only", "status-only"},
				Removes: func(r *object.Resource) bool { return removes && r == secrets },
			}, secrets)
			if got := x.Withholds(deltaOf(secrets, "a", "x", object.Updated, tc.before, tc.after)); got != want {
				t.Errorf("%s, removes %t: withheld for %q, want %q", tc.name, removes, got, want)
			}
		}
	}
}

// A scan removes copies of Secrets. An update that changes only such a copy looks unchanged. It
// must be sent.
func TestNoiseSparesHiddenCopies(t *testing.T) {
	x := resourced(t, filter.Options{Noise: []string{"managed-fields-only", "status-only"}}, deployments)
	d := deltaOf(deployments, "a", "x", object.Updated, `{"metadata":{"name":"x"}}`, `{"metadata":{"name":"x"}}`)
	if got := x.Withholds(d); got != "noise:managed-fields-only" {
		t.Errorf("withheld for %q", got)
	}
	hides := object.NewScanned(d.Ref, 2, &object.Scanned{Hides: true}, nil, []byte(`{"metadata":{"name":"x"}}`))
	for _, d := range []object.Delta{{Before: hides, After: d.After}, {Before: d.Before, After: hides}, {
		Before: hides,
		After:  hides,
	}} {
		d.Op, d.Ref = object.Updated, hides.Ref
		if got := x.Withholds(&d); got != "" {
			t.Errorf("withheld for %q", got)
		}
	}
}

// without returns a tree without the values that a path names, and without the objects that become
// empty. It implements the masks in another way.
func without(v any, steps ...string) any {
	if len(steps) == 0 {
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, x := range v {
			if name != steps[0] && steps[0] != "*" {
				out[name] = x
				continue
			}
			if len(steps) == 1 {
				continue
			}
			if rest := without(x, steps[1:]...); !empty(rest) {
				out[name] = rest
			}
		}
		return out
	case []any:
		if steps[0] != "*" {
			return v
		}
		out := []any{}
		for _, x := range v {
			out = append(out, without(x, steps[1:]...))
		}
		return out
	}
	return v
}

func empty(v any) bool {
	m, ok := v.(map[string]any)
	return ok && len(m) == 0
}

// maskPaths returns the paths that each filter ignores, as documented in docs/guides/select.md.
func maskPaths(name string) [][]string {
	paths := [][]string{{"metadata", "resourceVersion"}, {"metadata", "generation"}, {"metadata", "managedFields"}}
	return append(paths, map[string][][]string{
		"status-only":      {{"status"}},
		"lease-heartbeats": {{"spec", "renewTime"}},
		"node-heartbeats":  {{"status", "conditions", "*", "lastHeartbeatTime"}},
		"endpoints-churn": {
			{"endpoints"},
			{"subsets", "*", "addresses"},
			{"subsets", "*", "notReadyAddresses"},
			{"metadata", "annotations", "endpoints.kubernetes.io/last-change-trigger-time"},
		},
	}[name]...)
}

// A filter never withholds an update that changes anything outside of its paths, whatever the
// objects look like.
func TestNoiseProperty(t *testing.T) {
	resources := map[string]*object.Resource{
		"lease-heartbeats": leases,
		"node-heartbeats":  nodes,
		"endpoints-churn":  slicesOf,
	}
	var trees []any
	for pair := range withheldPairs() {
		var v any
		if err := json.Unmarshal([]byte(real(t, pair, "before")), &v); err != nil {
			t.Fatal(err)
		}
		trees = append(trees, v)
		more := clone(v).(map[string]any)
		annotations, ok := more["metadata"].(map[string]any)["annotations"].(map[string]any)
		if ok {
			annotations["team"] = "payments"
			trees = append(trees, more)
		}
	}
	withheld := 0
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.SampledFrom(trees).Draw(t, "object")
		after := clone(before)
		for range rapid.IntRange(0, 4).Draw(t, "changes") {
			change(t, after)
		}
		if rapid.IntRange(0, 3).Draw(t, "annotations go") == 0 {
			if m, ok := after.(map[string]any)["metadata"].(map[string]any); ok {
				delete(m, "annotations")
			}
		}
		if rapid.Bool().Draw(t, "the other way round") {
			before, after = after, before
		}
		name := rapid.SampledFrom(filter.NoiseNames()).Draw(t, "filter")
		r := resources[name]
		if r == nil {
			r = pods
		}
		f, err := filter.New(filter.Options{Noise: []string{name}})
		if err != nil {
			t.Fatal(err)
		}
		got := f.For(r).Withholds(deltaOf(r, "", "n", object.Updated, encode(before), encode(after))) != ""
		x, y := before, after
		for _, path := range maskPaths(name) {
			x, y = without(x, path...), without(y, path...)
		}
		differ := !reflect.DeepEqual(x, y)
		switch {
		case got && differ:
			t.Fatalf("%s withholds a difference outside of its mask:\n%s", name, cmp.Diff(x, y))
		case !got && reflect.DeepEqual(before, after):
			t.Fatalf("%s sends an update without a difference", name)
		case got:
			withheld++
		}
	})
	if withheld == 0 {
		t.Error("nothing was withheld")
	}
}

func clone(v any) any {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var out any
	if err := json.Unmarshal(raw, &out); err != nil {
		panic(err)
	}
	return out
}

func encode(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// change changes one value of a tree: usually one that the filters name, or one beside it.
func change(t *rapid.T, tree any) {
	for range 8 {
		m, ok := tree.(map[string]any)
		if list, is := tree.([]any); is && len(list) > 0 {
			i := rapid.IntRange(0, len(list)-1).Draw(t, "element")
			if _, inside := list[i].(map[string]any); inside {
				tree = list[i]
				continue
			}
			list[i] = rapid.String().Draw(t, "value")
			return
		}
		if !ok {
			return
		}
		names := []string{"status", "endpoints", "metadata", "generation", "annotations", "resourceVersion", "other"}
		for name := range m {
			names = append(names, name, name)
		}
		slices.Sort(names)
		name := rapid.SampledFrom(names).Draw(t, "name")
		if inside, there := m[name]; there && rapid.IntRange(0, 3).Draw(t, "deeper") > 0 {
			switch inside.(type) {
			case map[string]any, []any:
				tree = inside
				continue
			}
		}
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			delete(m, name)
		case 1:
			m[name] = map[string]any{}
		case 2:
			m[name] = nil
		default:
			m[name] = rapid.String().Draw(t, "value")
		}
		return
	}
}
