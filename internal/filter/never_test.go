package filter_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/object"
)

// TestNeverHolds: what hangs on more than the op is not said to hold for nothing.
func TestNeverHolds(t *testing.T) {
	for where, want := range map[string]string{
		"":                                      "",
		`op == "u"`:                             "cdrel",
		`op != "u" || changed("spec")`:          "",
		`op == "u" && changed("spec")`:          "cdrel",
		`changed("spec") && op == "u"`:          "cdrel",
		`op in ["c", "u", "d"]`:                 "rel",
		`!(op == "r" || op == "l")`:             "rl",
		`op == "r" && namespace == "shop"`:      "cudel",
		`name == "a"`:                           "",
		`after.spec.replicas > 3`:               "",
		`op == "d" ? true : labels["a"] == "b"`: "",
		`false`:                                 "cudrel",
		`changedOnly("status") && op == "x"`:    "cudrel",
	} {
		f, err := filter.New(filter.Options{Where: where})
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		got := ""
		for _, op := range object.Ops() {
			if f.NeverHolds(op) {
				got += string(op)
			}
		}
		if got != want {
			t.Errorf("%s: never for %q, want %q", where, got, want)
		}
	}
}
