package oracle

import "time"

// TableAt returns the revision of each object of a scope that a consumer has who applies the
// records up to a time of the agent. There must be no gap that is not recovered.
func TableAt(records []Record, sc Scope, at time.Time) map[ObjectKey]uint64 {
	type named struct {
		ObjectKey
		uid string
	}
	last := make(map[named]*Record)
	for i := range records {
		rec := &records[i]
		if rec.Op == "" || rec.Time.After(at) || !sc.Has(rec.Key) {
			continue
		}
		key := named{rec.Key, rec.UID}
		have := last[key]
		if have == nil || have.Rev < rec.Rev {
			last[key] = rec
		}
	}
	table := make(map[ObjectKey]uint64)
	for key, rec := range last {
		if rec.Op != Deleted && rec.Op != Left {
			table[key.ObjectKey] = rec.Rev
		}
	}
	return table
}
