package main

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The list is complete: each module that Go has recorded in the binary is there once, with the
// version that is linked.
func TestVersionListsWhatIsLinked(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok || len(info.Deps) == 0 {
		t.Fatal("the test has no build information")
	}
	var want []dependency
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		want = append(want, dependency{m.Path, m.Version})
	}
	slices.SortFunc(want, func(a, b dependency) int { return strings.Compare(a.Path, b.Path) })

	var out, errs strings.Builder
	if code := run(t.Context(), []string{"version", "-o", "json"}, &out, &errs); code != exitOK {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var got versions
	decoder := json.NewDecoder(strings.NewReader(out.String()))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.Dependencies); diff != "" || got.DependenciesOmitted != 0 {
		t.Errorf("%d omitted (-linked +listed):\n%s", got.DependenciesOmitted, diff)
	}
	if want := (toolchain{
		runtime.Version(), runtime.GOOS, runtime.GOARCH,
	}); got.Toolchain != want || got.Go != want.Version {
		t.Errorf("toolchain %+v, go %s; want %+v", got.Toolchain, got.Go, want)
	}
	if size := out.Len(); size > (maxDependencies+8)*(2*maxModuleText+64) {
		t.Errorf("%d bytes", size)
	}
}

// A longer list ends at its limit and says how much is missing.
func TestVersionBoundsItsList(t *testing.T) {
	all, omitted := dependencies(maxDependencies)
	if omitted != 0 || len(all) < 10 {
		t.Fatalf("%d modules, %d omitted", len(all), omitted)
	}
	some, omitted := dependencies(3)
	if diff := cmp.Diff(all[:3], some); diff != "" || omitted != len(all)-3 {
		t.Errorf("%d omitted of %d (-want +got):\n%s", omitted, len(all), diff)
	}
	if got := cut(strings.Repeat("x", maxModuleText+1)); len(got) != maxModuleText {
		t.Errorf("a path of %d bytes", len(got))
	}
}
