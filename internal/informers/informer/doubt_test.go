package informer

import "testing"

// Each phase of a doubt can be reached, and a follower ends in the last two. An object can be taken
// in two phases only: certain, and without an answer.
func TestTableOfDoubt(t *testing.T) {
	reached := map[doubtPhase]bool{certain: true}
	for range undecided {
		for p := range undecided + 1 {
			for next := range undecided + 1 {
				if reached[p] && p.leadsTo(next) {
					reached[next] = true
				}
			}
		}
	}
	for p := range undecided + 1 {
		if !reached[p] {
			t.Errorf("%s cannot be reached", p)
		}
		ends := p == refuted || p == undecided
		for next := range undecided + 1 {
			if ends && p.leadsTo(next) {
				t.Errorf("%s leads to %s", p, next)
			}
		}
		if !ends && p != certain && !p.leadsTo(certain) {
			t.Errorf("%s cannot be settled", p)
		}
	}
}
