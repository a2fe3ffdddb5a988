package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// document has the tables, below the root of the repository.
const document = "docs/reference/compatibility.md"

// table is a table of results in the document: the version, cells, and the date of the last run
// that passed.
type table struct {
	head []string // of all columns
}

// begin returns the first two lines of the table.
func (t table) begin() string {
	return "| " + strings.Join(t.head, " | ") + " |\n" + strings.Repeat("|---", len(t.head)) + "|\n"
}

// read returns the rows of the table, and the text before and after them.
func (t table) read(text string) (before string, rows [][]string, after string, err error) {
	before, after, ok := strings.Cut(text, t.begin())
	if !ok {
		return "", nil, "", fmt.Errorf("%s has no table of %s", document, t.head[0])
	}
	for {
		line, rest, _ := strings.Cut(after, "\n")
		if !strings.HasPrefix(line, "| ") {
			return before + t.begin(), rows, after, nil
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != len(t.head) {
			return "", nil, "", fmt.Errorf("%s: %d cells in %q", document, len(cells), line)
		}
		rows, after = append(rows, cells), rest
	}
}

// write writes the row of a version with the date of today. order has all versions of the table.
func (t table) write(file string, order []string, version string, cells []string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rows, after, err := t.read(string(text))
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r []string) bool { return r[0] == version || !slices.Contains(order, r[0]) })
	row := append([]string{version}, cells...)
	rows = append(rows, append(row, time.Now().UTC().Format(time.DateOnly)))
	slices.SortFunc(rows, func(a, b []string) int { return slices.Index(order, a[0]) - slices.Index(order, b[0]) })
	var b strings.Builder
	b.WriteString(before)
	for _, r := range rows {
		b.WriteString("| " + strings.Join(r, " | ") + " |\n")
	}
	b.WriteString(after)
	return os.WriteFile(file, []byte(b.String()), 0o644)
}
