package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/catalog"
)

// notMeasured are the buses that --buses leaves out, with the reason.
var notMeasured = map[string]string{
	"stdout": "it has no server: its rate is that of the reader of the pipe",
}

// The names of --buses are those of the catalog, some in several forms (http-batch).
func TestBusesAreThoseOfTheCatalog(t *testing.T) {
	var want []string
	for _, name := range catalog.Names(catalog.Buses()) {
		if notMeasured[name] == "" {
			want = append(want, name)
		}
	}
	var got []string
	for _, name := range busNames {
		bus, _, _ := strings.Cut(name, "-")
		got = append(got, bus)
	}
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("-catalog +busNames:\n%s", diff)
	}
}
