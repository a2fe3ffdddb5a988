// Package sequence compares sequences: the lines of texts, and the elements of lists.
//
// It is pure, and knows nothing of what the elements are.
package sequence

import "slices"

// maxEdits limits the search for the shortest difference: its memory and time grow with the square.
const maxEdits = 500

// Common calls match for each pair of a longest common subsequence of sequences of n and m
// elements, in order (Myers, An O(ND) Difference Algorithm). If that takes more than maxEdits
// edits, it calls match only for the common elements at both ends.
func Common(n, m int, equal func(x, y int) bool, match func(x, y int)) {
	head := 0
	for head < n && head < m && equal(head, head) {
		match(head, head)
		head++
	}
	tail := 0
	for tail < n-head && tail < m-head && equal(n-1-tail, m-1-tail) {
		tail++
	}
	for _, p := range middle(n-head-tail, m-head-tail, func(x, y int) bool { return equal(head+x, head+y) }) {
		match(head+p[0], head+p[1])
	}
	for ; tail > 0; tail-- {
		match(n-tail, m-tail)
	}
}

// middle returns the longest common subsequence of two sequences, nil if it takes too many edits.
func middle(n, m int, equal func(x, y int) bool) [][2]int {
	if n == 0 || m == 0 {
		return nil
	}
	// trace[d][d+k] is the furthest index in the first sequence after d edits on diagonal k (x -
	// y), for k = -d, -d+2, … d.
	var trace [][]int
	for d := 0; d <= min(n+m, maxEdits); d++ {
		row := make([]int, 2*d+1)
		for k := -d; k <= d; k += 2 {
			x := 0
			switch {
			case d == 0:
			case k == -d || k != d && trace[d-1][d-1+k-1] < trace[d-1][d-1+k+1]:
				x = trace[d-1][d-1+k+1]
			default:
				x = trace[d-1][d-1+k-1] + 1
			}
			for x < n && x-k < m && x-k >= 0 && equal(x, x-k) {
				x++
			}
			row[d+k] = x
			if x >= n && x-k >= m {
				return backtrack(append(trace, row), n, m)
			}
		}
		trace = append(trace, row)
	}
	return nil
}

// backtrack derives the pairs from the furthest points.
func backtrack(trace [][]int, x, y int) [][2]int {
	var out [][2]int
	for d := len(trace) - 1; d >= 0; d-- {
		k := x - y
		px := 0
		py := 0
		if d > 0 {
			prev := trace[d-1]
			if k == -d || k != d && prev[d-1+k-1] < prev[d-1+k+1] {
				px, py = prev[d-1+k+1], prev[d-1+k+1]-k-1
			} else {
				px, py = prev[d-1+k-1], prev[d-1+k-1]-k+1
			}
		}
		for x > px && y > py {
			x--
			y--
			out = append(out, [2]int{x, y})
		}
		x, y = px, py
	}
	slices.Reverse(out)
	return out
}
