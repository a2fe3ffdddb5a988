package wording

import "strings"

// Nearest returns the name that was probably meant by word, "" if none is similar enough.
func Nearest(word string, names []string) string {
	best, least := "", 1+min(3, (len(word)+1)/3)
	for _, name := range names {
		d := distance(strings.ToLower(word), strings.ToLower(name))
		if len(name) > 2 && strings.HasPrefix(word, name) {
			d = min(d, 2) // "logging" is log
		}
		if word != "" && d < least {
			best, least = name, d
		}
	}
	return best
}

// distance returns the optimal string alignment distance: the number of letters to insert, delete,
// replace or swap with the next one.
func distance(a, b string) int {
	older := make([]int, len(b)+1)
	old := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := older
		older = old
		old = row
		row = next
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := old[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(old[j]+1, row[j-1]+1, change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
