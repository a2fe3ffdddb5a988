package past_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const internal = "github.com/kubecdc/kubecdc/internal/"

// TestImports holds the list of what the packages that read the past import of kubecdc, also
// indirectly: no printer, terminal or console, no configuration, and nothing that serves.
func TestImports(t *testing.T) {
	allowed := map[string]bool{ // whether they need it
		"duration":            false,
		"object":              false,
		"past":                false,
		"sequence":            false,
		"wording":             false,
		"informers/apiserver": false, // past/live reads a running cluster
		"checkpoint":          false, // and the ids of clusters
		"atomicfile":          false, // of checkpoint, as those below
		"filelock":            false,
		"pause":               false,
	}
	var more []string
	for _, imported := range dependencies(t) {
		name, isInternal := strings.CutPrefix(imported, internal)
		if !isInternal {
			if strings.HasPrefix(imported, "github.com/spf13/cobra") || strings.HasSuffix(imported, "/jsonpath") {
				more = append(more, imported)
			}
			continue
		}
		isAllowed := false
		for prefix := range allowed {
			if name == prefix || strings.HasPrefix(name, prefix+"/") {
				allowed[prefix], isAllowed = true, true
			}
		}
		if !isAllowed {
			more = append(more, name)
		}
	}
	if diff := cmp.Diff([]string(nil), more); diff != "" {
		t.Errorf("the packages import more than they may:\n%s", diff)
	}
	for prefix, isNeeded := range allowed {
		if !isNeeded {
			t.Errorf("no package imports %s: remove it from the list", prefix)
		}
	}
}

// dependencies returns all packages that those below past import, also indirectly, sorted.
func dependencies(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	all := strings.Fields(string(out))
	slices.Sort(all)
	return all
}
