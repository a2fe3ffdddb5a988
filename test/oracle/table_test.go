package oracle

import "testing"

// TestOracleBuildsTheTableOfATime has an object that is replaced, a late copy and a late time.
func TestOracleBuildsTheTableOfATime(t *testing.T) {
	of := func(at float64, name, uid, op string, rev uint64) Record {
		return Record{Time: second(at), Key: ObjectKey{"configmaps", "shop", name}, UID: uid, Op: op, Rev: rev}
	}
	records := []Record{
		of(1, "a", "1", Read, 10), of(2, "a", "1", Updated, 11), of(1, "a", "1", Read, 10), // A copy.
		of(3, "a", "1", Deleted, 12), of(4, "a", "2", Created, 13), of(3, "a", "1", Deleted, 12),
		of(9, "b", "3", Created, 14), // It was observed late.
		{Time: second(1), Key: ObjectKey{"configmaps", "other", "c"}, UID: "4", Op: Created, Rev: 5},
	}
	for at, want := range map[float64]map[string]uint64{
		0: {}, 1: {"a": 10}, 2.5: {"a": 11}, 3.5: {}, 5: {"a": 13}, 9: {"a": 13, "b": 14},
	} {
		got := TableAt(records, ParseScope("configmaps/shop"), second(at))
		ok := len(got) == len(want)
		for name, rev := range want {
			ok = ok && got[ObjectKey{"configmaps", "shop", name}] == rev
		}
		if !ok {
			t.Errorf("at %.1f s: %v, want %v", at, got, want)
		}
	}
}
