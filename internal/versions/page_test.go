package versions_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/versions"
)

const page = "../../docs/reference/compatibility.md"

// The page says what the table says: ranges, the oldest versions that are expected to work, and
// what loses data. Its results, which `make test-versions UPDATE=1` writes, are of the tested
// minors.
func TestPage(t *testing.T) {
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for _, tc := range []struct {
		server  versions.Server
		row     string // in the first table
		results string // in the first column of its results
		all     string // the minor that all tests run with
	}{
		{versions.Kubernetes(), "Kubernetes", "Kubernetes", "1.37"},
		{versions.NATS(), "NATS server", "nats-server", "2.15"},
		{versions.Kafka(), "Apache Kafka", "Apache Kafka", "4.3"},
	} {
		cells := rows(text, "| component |", "expected to work |")[tc.row]
		if len(cells) != 3 {
			t.Fatalf("%s: no row in the first table", tc.row)
		}
		if want := tc.server.Range() + ": " + tc.all + "."; !strings.HasPrefix(cells[1], want) {
			t.Errorf("%s: tested is %q, want %q first", tc.row, cells[1], want)
		}
		if want := tc.server.Required + " or later"; !strings.HasPrefix(cells[2], want) {
			t.Errorf("%s: expected to work is %q, want %q first", tc.row, cells[2], want)
		}
		for _, loss := range tc.server.Losses {
			if want := "(#nats-servers), if a stream with several replicas is full"; !strings.Contains(text,
				"["+tc.server.Name+" before "+loss.Before+"]"+want) {
				t.Errorf("%s: the page does not say that versions before %s lose %s", tc.row, loss.Before, loss.What)
			}
		}
		minors := []string{tc.all}
		for version, cells := range rows(text, "| "+tc.results+" |", "run on |") {
			if _, err := time.Parse(time.DateOnly, cells[len(cells)-1]); err != nil {
				t.Errorf("%s %s: %v", tc.row, version, err)
			}
			minors = append(minors, version[:strings.LastIndexByte(version, '.')])
		}
		slices.SortFunc(minors, func(a, b string) int {
			switch {
			case versions.IsBefore(a, b):
				return -1
			case versions.IsBefore(b, a):
				return 1
			}
			return 0
		})
		if diff := cmp.Diff(tc.server.Tested, slices.Compact(minors)); diff != "" {
			t.Errorf("%s: run make test-versions UPDATE=1: tested minors, -table +page\n%s", tc.row, diff)
		}
	}
}

// rows returns the rows of the table whose header begins and ends so, by their first cells.
func rows(text, begin, end string) map[string][]string {
	all := map[string][]string{}
	lines := strings.Split(text, "\n")
	at := slices.IndexFunc(lines, func(l string) bool {
		return strings.HasPrefix(l, begin) && strings.HasSuffix(l, end)
	})
	if at < 0 {
		return nil
	}
	for _, line := range lines[at+2:] {
		if !strings.HasPrefix(line, "| ") {
			break
		}
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		all[cells[0]] = cells
	}
	return all
}
