package answers_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/screen/printer"
)

// Events are shown of the objects that a root owns, directly or not, at the time of the Event. The
// model follows the owners of that time.
func TestOwnersOfATime(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRecorder(workloads...)
		owners := map[string][]string{} // of "KIND NAME"
		var objects []string
		for _, name := range []string{"web", "api"} {
			r.object("c", "deployments.apps", "Deployment", name, nil)
		}
		resources := map[string]string{
			"ReplicaSet":            "replicasets.apps",
			"Pod":                   "pods",
			"PersistentVolumeClaim": "persistentvolumeclaims",
		}
		for _, kind := range []string{"ReplicaSet", "Pod", "PersistentVolumeClaim"} {
			for n := range 3 {
				objects = append(objects, fmt.Sprint(kind, " o", n))
			}
		}
		possible := append([]string{"Deployment web", "Deployment api"}, objects...)
		write := func(op, object string) {
			owners[object] = rapid.SliceOfNDistinct(rapid.SampledFrom(possible), 0, 2, rapid.ID).Draw(rt, object)
			kind, name, _ := strings.Cut(object, " ")
			r.object(op, resources[kind], kind, name, nil, owners[object]...)
		}
		for _, object := range objects {
			write("c", object)
		}
		var want []string
		for n := range rapid.IntRange(1, 15).Draw(rt, "steps") {
			object := rapid.SampledFrom(objects).Draw(rt, "object")
			if r.minute < 9 && rapid.Bool().Draw(rt, "changes") { // the question is about ten minutes
				r.minute++ // an Event belongs to the owners that were observed before it, or at its time
				write("u", object)
				continue
			}
			reason := fmt.Sprint("Reason", n)
			r.event("c", object, reason)
			if owns("Deployment web", object, owners, map[string]bool{}) {
				want = append(want, reason)
			}
		}
		r.minute++
		path := filepath.Join(t.TempDir(), "record.jsonl")
		if err := os.WriteFile(path, []byte(strings.Join(r.lines, "\n")+"\n"), 0o600); err != nil {
			rt.Fatal(err)
		}
		stdout, stderr, err := askEvents(t, path, printer.JSON, "shop", "", nil, "deploy/web")
		var got happened
		if wrong := json.Unmarshal([]byte(stdout), &got); wrong != nil {
			rt.Fatalf("%v, %v: %s", wrong, err, stderr)
		}
		var shown []string
		for _, e := range got.Events {
			shown = append(shown, e.Reason)
		}
		if diff := gocmp.Diff(want, shown); diff != "" {
			rt.Errorf("-want +shown\n%s", diff)
		}
	})
}

// owns reports whether an object is another one, or its owner in the end.
func owns(root, object string, owners map[string][]string, seen map[string]bool) bool {
	if object == root {
		return true
	}
	if seen[object] {
		return false
	}
	seen[object] = true
	return slices.ContainsFunc(owners[object], func(owner string) bool { return owns(root, owner, owners, seen) })
}
