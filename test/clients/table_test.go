package clients_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false,
	"write the clients that pass, with their versions and the date, to docs/reference/compatibility.md")

const (
	document   = "../../docs/reference/compatibility.md"
	tableBegin = "| client | version | run on |\n|---|---|---|\n"
)

// row is a row of the table of clients.
type row struct{ title, version, date string }

func (r row) String() string { return fmt.Sprintf("| %s | %s | %s |\n", r.title, r.version, r.date) }

// readTable returns the rows of the table, and the text before and after it.
func readTable(t *testing.T) (before string, rows []row, after string) {
	t.Helper()
	raw, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, after, ok := strings.Cut(string(raw), tableBegin)
	if !ok {
		t.Fatalf("%s has no table of clients", document)
	}
	for {
		line, rest, _ := strings.Cut(after, "\n")
		cells := strings.Split(line, " | ")
		if len(cells) != 3 {
			return before + tableBegin, rows, after
		}
		rows = append(rows, row{strings.TrimPrefix(cells[0], "| "), cells[1], strings.TrimSuffix(cells[2], " |")})
		after = rest
	}
}

// pinned returns the version of a client that its files pin.
func (of *client) pinned(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(of.folder(), of.pin))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(of.version).FindSubmatch(raw)
	if m == nil {
		t.Fatalf("%s has no version of %s", of.pin, of.name)
	}
	if version := string(m[1]); strings.HasPrefix(version, ".") {
		// of a library of Kubernetes: v0.36.1 is that of 1.36.1
		return "1" + version
	}
	return string(m[1])
}

// noteRun writes a client that passed to the table, if the flag asks for it.
func noteRun(t *testing.T, of *client) {
	t.Helper()
	if !*update {
		return
	}
	before, rows, after := readTable(t)
	rows = slices.DeleteFunc(rows, func(r row) bool { return r.title == of.title })
	rows = append(rows, row{of.title, of.pinned(t), time.Now().UTC().Format(time.DateOnly)})
	var titles []string
	for _, c := range clients() {
		titles = append(titles, c.title)
	}
	slices.SortFunc(rows, func(a, b row) int { return slices.Index(titles, a.title) - slices.Index(titles, b.title) })
	for _, r := range rows {
		before += r.String()
	}
	if err := os.WriteFile(document, []byte(before+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The table has all clients, in the versions that the tests run.
func TestCompatibilityTable(t *testing.T) {
	t.Parallel()
	_, rows, _ := readTable(t)
	var got, want []string
	for _, r := range rows {
		got = append(got, r.title+" "+r.version)
		if _, err := time.Parse(time.DateOnly, r.date); err != nil {
			t.Errorf("%s: %v", r.title, err)
		}
	}
	for _, of := range clients() {
		want = append(want, of.title+" "+of.pinned(t))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: run make test-clients UPDATE=1: -want +got\n%s", document, diff)
	}
}
