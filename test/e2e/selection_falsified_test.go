package e2e_test

import (
	"maps"
	"reflect"
	"slices"
	"testing"
)

// falsify changes a faultless run in one place after the other, the rules or the records, and wants each change to be noticed.
// It returns how many there were.
func (r *selectionRun) falsify(t *testing.T, want map[objectKey][]chosen, records []record, until uint64, begins func(objectKey) (snapshot, bool)) int {
	t.Helper()
	noticed := r.falsifyRecords(t, want, records, until)
	if len(r.killed) > 0 {
		return noticed // What differs may be what nobody knows behind a crash.
	}
	a := r.archive(t, r.from, until, r.watched...)
	for name, other := range r.config.mutations() {
		wrong := other.choose(a, begins, until)
		if sameChoice(want, wrong) {
			continue // Nothing came up that it would change.
		}
		if got := judgeChosen(wrong, records, until); len(got.Faults) == 0 {
			t.Errorf("rules that are not those of the agent (%s), and the records fit them", name)
		}
		noticed++
	}
	return noticed
}

// mutations are other configurations, each of which differs in one point.
func (c *picked) mutations() map[string]*picked {
	all := make(map[string]*picked)
	change := func(name string, do func(c *picked)) {
		other := *c
		other.Rules = slices.Clone(c.Rules)
		do(&other)
		all[name] = &other
	}
	for i := range c.Rules {
		at := formatRev(uint64(i))
		change("operations of "+at, func(c *picked) {
			if r := &c.Rules[i]; len(r.Operations) > 0 {
				r.Operations = nil
			} else {
				r.Operations = []string{"created"}
			}
		})
		change("where of "+at, func(c *picked) { c.Rules[i].Where = nil })
		change("onError of "+at, func(c *picked) { c.Rules[i].Drop = !c.Rules[i].Drop })
		change("labels of "+at, func(c *picked) { c.Rules[i].Labels = nil })
		change("fields of "+at, func(c *picked) { c.Rules[i].Fields = nil })
		change("redact of "+at, func(c *picked) { c.Rules[i].Redact = append(slices.Clone(c.Rules[i].Redact), "metadata.labels.tier") })
		change("without "+at, func(c *picked) { c.Rules = slices.Delete(c.Rules, i, i+1) })
		if i > 0 {
			change("order before "+at, func(c *picked) { c.Rules[i-1], c.Rules[i] = c.Rules[i], c.Rules[i-1] })
		}
	}
	for i, name := range c.Noise {
		change("noise "+name, func(c *picked) { c.Noise = slices.Delete(slices.Clone(c.Noise), i, i+1) })
	}
	change("strip", func(c *picked) { c.Strip = []string{"metadata.labels", "metadata.managedFields"} })
	change("secrets", func(c *picked) { c.Redaction.Off = !c.Redaction.Off })
	change("key", func(c *picked) {
		if c.Redaction.Key != nil {
			c.Redaction.Key = []byte("another key, and nobody's")
		}
	})
	change("across objects", func(c *picked) { c.Redaction.AcrossObjects = !c.Redaction.AcrossObjects })
	return all
}

func sameChoice(a, b map[objectKey][]chosen) bool {
	// Of what is sent; why something is not is for the counts to tell.
	sent := func(list []chosen) []chosen {
		var out []chosen
		for _, e := range list {
			if e.Reason != "" {
				continue
			}
			e.index, e.Prev, e.Next = 0, nil, nil
			if e.Op == entered { // Known or not.
				e.Before = nil
			}
			out = append(out, e)
		}
		return out
	}
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	for key := range keys {
		if !reflect.DeepEqual(sent(a[key]), sent(b[key])) {
			return false
		}
	}
	return true
}

// falsifyRecords changes one record each, of some.
func (r *selectionRun) falsifyRecords(t *testing.T, want map[objectKey][]chosen, records []record, until uint64) int {
	t.Helper()
	expected := make(map[string]*chosen)
	for _, list := range want {
		for i := range list {
			expected[list[i].ID] = &list[i]
		}
	}
	var of []int
	for i := range records {
		if e := expected[records[i].ID]; e != nil && e.Reason == "" {
			of = append(of, i)
		}
	}
	noticed := 0
	try := func(name, kind string, list []record) {
		t.Helper()
		got := judgeChosen(want, list, until, r.killed...)
		if !slices.ContainsFunc(got.Faults, func(f selectionFault) bool { return f.Kind == kind }) {
			t.Errorf("%s: no fault of kind %q, of %d", name, kind, len(got.Faults))
		}
		noticed++
	}
	edit := func(i int, do func(*record)) []record {
		list := slices.Clone(records)
		do(&list[i])
		return list
	}
	first := records[of[0]]
	try("one more version withheld", "skipped", edit(of[0], func(rec *record) { rec.Skipped += 3 }))
	try("dropped", "missing", slices.Delete(slices.Clone(records), of[0], of[0]+1))
	try("sent again", "duplicate", slices.Insert(slices.Clone(records), of[0], first))
	try("inferred", "inferred", edit(of[0], func(rec *record) { rec.Inferred = true }))
	try("another revision before", "previousResourceVersion", edit(of[0], func(rec *record) { rec.PrevRev += 7 }))
	try("another op", "op", edit(of[0], func(rec *record) { rec.Op = "x" }))
	try("a gap", "gap", edit(of[0], func(rec *record) { rec.Stream = gap }))
	for _, i := range of {
		if records[i].After == present {
			try("another object", "after", edit(i, func(rec *record) { rec.AfterDigest[3]++ }))
			break
		}
	}
	for _, i := range of {
		if records[i].Before == present {
			try("another object before", "before", edit(i, func(rec *record) { rec.BeforeDigest[3]++ }))
			break
		}
	}
	for n, i := range of {
		j := slices.IndexFunc(of[n+1:], func(j int) bool { return records[j].Key == records[i].Key })
		if j >= 0 {
			list := slices.Clone(records)
			j = of[n+1+j]
			list[i], list[j] = list[j], list[i]
			try("the other way round", "order", list)
			break
		}
	}
	for id, e := range expected {
		if e.Reason != "" {
			try("not withheld", "not withheld", append(slices.Clone(records), record{ID: id, Op: e.Op, Key: e.Key, Rev: e.Rev, Position: 1 << 40}))
			break
		}
	}
	return noticed
}
