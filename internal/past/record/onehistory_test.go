package record_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// TestHistoryOfOneNeedsNoEarlierStreamEvents compares the history of one object with one that is
// made from all records, in drawn worlds. The versions are the same, and no scope is more certain.
func TestHistoryOfOneNeedsNoEarlierStreamEvents(t *testing.T) {
	less := 0
	check := func(t *rapid.T) {
		begin := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
		k, end := drawTopic(t, begin, 1)
		j := streamOf(k)
		var objects []*consume.Event
		for _, r := range j.records[j.first:] {
			if r.e.Data != nil {
				objects = append(objects, r.e)
			}
		}
		if j.hasMixedSnapshots() || len(objects) == 0 {
			return
		}
		e := rapid.SampledFrom(objects).Draw(t, "object")
		s := &record.Selection{Namespace: e.Namespace, Resources: []record.Resource{{
			Plural: e.Resource,
			Names:  []string{e.Name},
		}}}
		seconds := int(end.Sub(begin).Seconds())
		moment := timeline.At(
			begin.Add(time.Duration(rapid.IntRange(-60, seconds+4*3600).Draw(t, "second")) * time.Second))
		if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
			moment = timeline.Now(end)
		}
		var late []timeline.Late // of the last question
		lateUnknown := false
		noteLate := func(all []timeline.Late) error {
			late = append(late, all...)
			return nil
		}
		ask := func(r *record.Record) (versions []string, scopes map[string]certainty.Level, read int) {
			clear(j.read)
			late = nil
			of, reading, err := r.Versions(t.Context(), s, nil, moment,
				func(v *timeline.Version, e *consume.Event) error {
					// of a snapshot: only who reads its start sees this gap
					isUnfinished := strings.HasSuffix(e.ID, "/started")
					if v == nil && e.Type == consume.TypeGap && !isUnfinished {
						versions = append(versions, "gap "+e.ID)
					}
					if v != nil {
						versions = append(versions,
							fmt.Sprint(v.Op, " ", v.UID, " ", v.ResourceVersion, " ", v.Time.Sub(begin)))
					}
					return nil
				})
			if err != nil {
				t.Fatal(err)
			}
			lateUnknown = reading.LateUnknown
			scopes = map[string]certainty.Level{}
			for i := range of {
				scopes[of[i].Resource+" "+of[i].Name] = of[i].Certainty
			}
			return versions, scopes, j.final
		}
		want, sure, of := ask(&record.Record{Source: seeking(j, false)})
		r := &record.Record{Source: j}
		r.SetReadBefore(time.Duration(rapid.IntRange(1, 300).Draw(t, "before")) * time.Minute)
		got, part, n := ask(r)
		if n < of {
			less++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s at %s (-want +got):\n%s\n%s", e.UID, moment, diff, k)
		}
		r.OnLate = noteLate
		ask(r)
		gotLate, isUnknown := late, lateUnknown
		ask(&record.Record{Source: seeking(j, false), OnLate: noteLate})
		wantLate := late
		first := e.Time // of the object's records: before it, stream events are left out
		for _, o := range objects {
			if o.Resource == e.Resource && o.Name == e.Name && o.Namespace == e.Namespace && o.Time.Before(first) {
				first = o.Time
			}
		}
		isBefore := func(l timeline.Late) bool { return l.Cause.From.Time.Before(first) }
		wantLate, gotLate = slices.DeleteFunc(wantLate, isBefore), slices.DeleteFunc(gotLate, isBefore)
		if isUnknown {
			wantLate = nil
		}
		if diff := cmp.Diff(byScope(wantLate), byScope(gotLate)); diff != "" {
			t.Fatalf("%s at %s: late spans (-want +got):\n%s\n%s", e.UID, moment, diff, k)
		}
		for name, level := range sure {
			if _, has := part[name]; !has && level != certainty.Exact && j.hasScope(name, moment) {
				t.Fatalf("%s at %s: scope %q is absent, and from all records %v\n%s", e.UID, moment, name, level, k)
			}
		}
		for name, level := range part {
			if was := sure[name]; level != was {
				t.Fatalf("%s at %s: scope %q is %v, and from all records %v\n%s", e.UID, moment, name, level, was, k)
			}
		}
	}
	for range 100 { // few worlds have enough before the object's first record
		rapid.Check(t, check)
		if less > 0 {
			return
		}
	}
	t.Error("no history has left out an event")
}

// byScope returns the ends of late spans by their scopes.
func byScope(all []timeline.Late) map[string][]string {
	out := map[string][]string{}
	for _, l := range all {
		out[l.Scope] = append(out[l.Scope], fmt.Sprint(l.Cause.Why, " ", l.Cause.From.Time, " ", l.Cause.To.Time))
	}
	return out
}
