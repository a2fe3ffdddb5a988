package filter_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/object"
)

const docs = "../../docs/guides/select.md"

// guideChanges returns the changes in docs/guides/select.md.
func guideChanges(t *testing.T) map[string]*object.Delta {
	t.Helper()
	of := func(r *object.Resource, op object.Op, before, after string) *object.Delta {
		return deltaOf(r, "default", "web", op, before, after)
	}
	update := func(pair string) *object.Delta {
		return of(resourceOf(t, pair), object.Updated, stripped(t, real(t, pair, "before")),
			stripped(t, real(t, pair, "after")))
	}
	configMaps := &object.Resource{Version: "v1", Name: "configmaps", Kind: "ConfigMap", Namespaced: true}
	configMap := func(rv, annotations, data string) string {
		return `{"kind":"ConfigMap","metadata":{"name":"web","resourceVersion":"` + rv + `"` + annotations +
			`},"data":{"a":"` + data + `"}}`
	}
	lead := func(renewed string) string {
		return `,"annotations":{"control-plane.alpha.kubernetes.io/leader":"{\"renewTime\":\"` + renewed + `\"}"}`
	}
	three := stripped(t, real(t, "deployment-scaled", "before"))
	two := stripped(t, real(t, "deployment-scaled", "after"))
	image := strings.Replace(three, `"image":"nginx:1"`, `"image":"nginx:2"`, 1)
	if image == three {
		t.Fatal("the Deployment has another image")
	}
	lease := update("lease-renewed")
	lease.Ref = object.NewRef(leases, "kube-system", "apiserver", "u1")
	return map[string]*object.Delta{
		"a Deployment is created":            of(deployments, object.Created, "", three),
		"a Deployment is deleted":            of(deployments, object.Deleted, three, ""),
		"a Deployment is scaled from 3 to 2": of(deployments, object.Updated, three, two),
		"a Deployment is scaled from 2 to 3": of(deployments, object.Updated, two, three),
		"a Deployment gets a new image":      of(deployments, object.Updated, three, image),
		"a Deployment reports its status":    update("deployment-available"),
		"a Deployment is applied again":      update("deployment-applied-again"),
		"a Pod is bound to a node":           update("pod-bound"),
		"a Pod begins to run":                update("pod-running"),
		"a Pod becomes unready":              update("pod-unready"),
		"a Pod is asked to end":              update("pod-deleting"),
		"a Pod is gone": of(pods, object.Deleted, stripped(t, real(t, "pod-deleting", "after")),
			""),
		"a Node becomes unready":            update("node-not-ready"),
		"a Node is tainted":                 update("node-tainted"),
		"a Node says that it lives":         update("node-heartbeat"),
		"a Node has pulled an image":        update("node-image"),
		"a Lease of kube-system is renewed": lease,
		"a ConfigMap gets new data": of(configMaps, object.Updated, configMap("1", lead("1"), "x"),
			configMap("2", lead("1"), "y")),
		"a ConfigMap holds a new lead": of(configMaps, object.Updated, configMap("1", lead("1"), "x"),
			configMap("2", lead("2"), "x")),
		"a ConfigMap holds its first lead": of(configMaps, object.Updated, configMap("1", "", "x"),
			configMap("2", lead("2"), "x")),
	}
}

var (
	example = regexp.MustCompile("(?s)```cel\n(.*?)\n```\n\n\\| change \\| \\|\n\\|---\\|---\\|\n((?:\\|[^\n]*\\|\n)+)")
	row     = regexp.MustCompile(`(?m)^\| (.*) \| (sent|withheld) \|$`)
)

// The examples do what the page says, without an error.
func TestDocsExamples(t *testing.T) {
	raw, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	examples := example.FindAllStringSubmatch(page, -1)
	if n := strings.Count(page, "```cel"); n < 10 || n != len(examples) {
		t.Fatalf("%d examples, %d of them with a table", n, len(examples))
	}
	changes := guideChanges(t)
	for _, e := range examples {
		where := e[1]
		f, err := filter.New(filter.Options{Where: where, OnError: "drop"})
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		rows := row.FindAllStringSubmatch(e[2], -1)
		if len(rows) != strings.Count(e[2], "\n") {
			t.Errorf("%s: a row that is not read:\n%s", where, e[2])
		}
		seen := map[string]bool{}
		for _, r := range rows {
			d := changes[r[1]]
			if d == nil {
				t.Errorf("%s: no such change: %q", where, r[1])
				continue
			}
			want := map[string]string{"sent": "", "withheld": filter.ReasonWhere}[r[2]]
			if got := f.For(d.Ref.Resource).Withholds(d); got != want {
				t.Errorf("%s: %s: %q, want %q", where, r[1], got, want)
			}
			seen[r[2]] = true
		}
		if !seen["sent"] || !seen["withheld"] {
			t.Errorf("%s: the table shows one side only", where)
		}
	}
}

// The page names each ready-made filter and what it looks away from.
func TestDocsNoise(t *testing.T) {
	raw, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range filter.NoiseNames() {
		line := regexp.MustCompile("(?m)^\\| `" + name + "` \\|.*$").FindString(string(raw))
		if line == "" {
			t.Errorf("no row for %s", name)
		}
		for _, path := range maskPaths(name)[3:] {
			text := strings.ReplaceAll(strings.Join(path, "."), ".*", "[*]")
			if len(path) > 2 && path[1] == "annotations" {
				text = path[2]
			}
			if !strings.Contains(line, "`"+text+"`") {
				t.Errorf("%s: no %s in %s", name, text, line)
			}
		}
	}
}
