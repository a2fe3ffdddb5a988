package sequence_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/sequence"
)

// The pairs are in order, equal, and as many as possible.
func TestCommonIsLongest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.SliceOfN(rapid.IntRange(0, 3), 0, 30)
		a, b := letters.Draw(t, "a"), letters.Draw(t, "b")
		i := -1
		j := -1
		n := 0
		sequence.Common(len(a), len(b), func(x, y int) bool { return a[x] == b[y] }, func(x, y int) {
			if x <= i || y <= j || a[x] != b[y] {
				t.Fatalf("pair %d, %d behind %d, %d", x, y, i, j)
			}
			i = x
			j = y
			n++
		})
		best := make([][]int, len(a)+1)
		for x := range best {
			best[x] = make([]int, len(b)+1)
		}
		for x := range a {
			for y := range b {
				best[x+1][y+1] = max(best[x][y+1], best[x+1][y])
				if a[x] == b[y] {
					best[x+1][y+1] = best[x][y] + 1
				}
			}
		}
		if n != best[len(a)][len(b)] {
			t.Fatalf("%d of %d pairs", n, best[len(a)][len(b)])
		}
	})
}

// The search in two texts that have little in common is limited. It still finds the common lines at
// their ends.
func TestCommonIsBounded(t *testing.T) {
	const n = 50_000
	calls, pairs := 0, 0
	sequence.Common(n, n, func(x, y int) bool {
		calls++
		return x == y && (x < 10 || x >= n-10)
	}, func(int, int) { pairs++ })
	if pairs != 20 || calls > 2*sequence.MaxEdits*sequence.MaxEdits {
		t.Errorf("%d pairs in %d comparisons", pairs, calls)
	}
}
