package e2e_test

import (
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
)

// TestGapsOfChurnAreExplained shows which gaps TestChurn accepts. The gaps of a case are judged one
// after the other, because an operation explains only two of them.
func TestGapsOfChurnAreExplained(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	define := act{What: "define", From: 10, At: at(10)}
	change := act{What: "change", From: 20, At: at(20)}
	undefine := act{What: "undefine", From: 30, At: at(30)}
	const none = "" // The cause of a gap that has none.
	type gap struct {
		from, to  uint64
		stored    int // The second in which it was announced.
		lost      bool
		cause     string
		forbidden bool
	}
	for name, tc := range map[string]struct {
		acts    []act
		renewed bool
		reason  string
		gaps    []gap
	}{
		"nothing was done": {gaps: []gap{{from: 5, to: 50, cause: none, forbidden: true}}},
		"it ended before anything was done": {
			acts: []act{define},
			gaps: []gap{{from: 5, to: 10, cause: none, forbidden: true}, {from: 5, to: 11, cause: "define"}},
		},
		"a third one of one operation": {
			acts: []act{change},
			gaps: []gap{{from: 20, to: 21, cause: "change"}, {from: 25, to: 26, cause: "change"}, {
				from:      28,
				to:        29,
				cause:     none,
				forbidden: true,
			}},
		},
		"the last operation before the end": {
			acts: []act{define, change, undefine},
			gaps: []gap{{from: 25, to: 28, cause: "change"}, {from: 12, to: 20, cause: "define"}, {
				from:  12,
				to:    31,
				cause: "undefine",
			}},
		},
		"an operation before the last one, which is used up": {
			acts: []act{define, change},
			gaps: []gap{{from: 25, to: 26, cause: "change"}, {from: 27, to: 28, cause: "change"}, {
				from:      28,
				to:        29,
				cause:     none,
				forbidden: true,
			}},
		},
		"several operations inside": {
			acts: []act{define, change},
			gaps: []gap{
				{from: 5, to: 40, cause: "change"},
				{from: 5, to: 40, cause: "change"},
				{from: 20, to: 40, cause: "define"},
				{from: 5, to: 40, cause: "define"},
				{from: 5, to: 40, cause: none, forbidden: true},
			},
		},
		"lost after a definition": {
			acts: []act{define},
			gaps: []gap{{from: 10, to: 15, stored: 40, lost: true, cause: "define", forbidden: true}},
		},
		"lost after a change": {
			acts: []act{define, change},
			gaps: []gap{{from: 20, to: 25, stored: 40, lost: true, cause: "change"}},
		},
		"lost after a deletion": {
			acts: []act{define, undefine},
			gaps: []gap{{from: 30, to: 35, stored: 40, lost: true, cause: "undefine"}},
		},
		"lost after a definition, before another one": {
			acts: []act{define, {What: "define", From: 20, At: at(20)}},
			gaps: []gap{{from: 11, to: 15, stored: 40, lost: true, cause: "define", forbidden: true}},
		},
		"lost after a definition, and changed before it was announced": {
			acts: []act{define, change},
			gaps: []gap{{from: 20, to: 20, stored: 21, lost: true, cause: "define"}},
		},
		"lost after a definition, and changed after it was announced": {
			acts: []act{define, change},
			gaps: []gap{{from: 11, to: 15, stored: 20, lost: true, cause: "define", forbidden: true}},
		},
		"lost after a definition, and deleted before that": {
			acts: []act{{What: "undefine", From: 5, At: at(5)}, define},
			gaps: []gap{{from: 10, to: 15, stored: 40, lost: true, cause: "define", forbidden: true}},
		},
		"read again in another version": {
			acts: []act{change}, renewed: true, reason: oracle.SelectionChanged,
			gaps: []gap{{from: 15, to: 15, cause: "another version"}, {from: 15, to: 15, cause: "another version"}, {
				from:  15,
				to:    15,
				cause: "another version",
			}},
		},
		"another version, where versions are missing": {
			renewed: true, reason: oracle.SelectionChanged, gaps: []gap{{
				from:      15,
				to:        16,
				cause:     none,
				forbidden: true,
			}},
		},
		"another version, and lost": {
			renewed: true, reason: oracle.SelectionChanged, gaps: []gap{{
				from:      15,
				to:        15,
				lost:      true,
				cause:     none,
				forbidden: true,
			}},
		},
		"another version of a kind that has one": {
			reason: oracle.SelectionChanged, gaps: []gap{{from: 15, to: 15, cause: none, forbidden: true}},
		},
		"another reason than another version": {
			renewed: true, reason: oracle.Expired, gaps: []gap{{from: 15, to: 15, cause: none, forbidden: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := &kind{acts: tc.acts}
			for i, g := range tc.gaps {
				rec := &oracle.Record{
					Stream:    oracle.Gap,
					Reason:    tc.reason,
					From:      g.from,
					To:        g.to,
					Recovered: !g.lost,
					Stored:    at(g.stored),
				}
				if cause, ok := k.explained(rec, tc.renewed); cause != g.cause || ok == g.forbidden {
					t.Errorf("gap %d, from %d to %d: cause %q, explained %t; want %q, %t", i, g.from, g.to, cause, ok,
						g.cause, !g.forbidden)
				}
			}
		})
	}
}
