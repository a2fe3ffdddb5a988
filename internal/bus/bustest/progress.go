package bustest

import (
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Writer is the writer of the events of EncodeProgress.
const Writer = "3f0a5c1e9b7d2846"

// Began is the time of Progress with number 0.
var Began = time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)

// Progress is the progress of an agent, event number n of its run: one for each minute.
func Progress(n uint64, scopes ...object.ScopeReport) *object.Delta {
	at := Began.Add(time.Duration(n) * time.Minute)
	return &object.Delta{
		Observed: at.UnixNano(),
		Report: &object.Report{
			Number: n,
			Since:  at.Add(-10 * time.Minute),
			To:     at.Add(-time.Second),
			Scopes: scopes,
		},
	}
}

// ScopeAt is what Progress says about a scope: everything up to rv is on the bus. scope "" stands
// for all scopes of the resource.
func ScopeAt(r *object.Resource, scope string, rv uint64) object.ScopeReport {
	return object.ScopeReport{Resource: r, Scope: scope, ResourceVersion: rv}
}

// EncodeProgress encodes Progress of Writer, in a run.
func EncodeProgress(tb testing.TB, mode encode.Mode, run string, d *object.Delta) *encode.Event {
	tb.Helper()
	e := encode.New(encode.Options{
		Cluster:    "prod-eu-1",
		ClusterUID: "11e0",
		Mode:       mode,
		Writer:     Writer,
		Run:        run,
	})
	ev := new(encode.Event)
	if err := e.Encode(ev, d); err != nil {
		tb.Fatal(err)
	}
	return ev
}
