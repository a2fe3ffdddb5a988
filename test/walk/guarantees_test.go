package walk_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const guarantees = "docs/reference/guarantees.md"

// TestGuarantees checks that each test of docs/reference/guarantees.md exists, and that each
// promise names one.
func TestGuarantees(t *testing.T) {
	tests := testTiers(t)
	mention := regexp.MustCompile("(?:`([a-z0-9]+)|-run) (Test\\w+)")
	test := regexp.MustCompile(`\bTest`)
	for n, line := range strings.Split(read(t, guarantees), "\n") {
		named := mention.FindAllStringSubmatch(line, -1)
		for _, m := range named {
			if _, ok := tests[m[1]+" "+m[2]]; m[1] != "" && !ok {
				t.Errorf("%s:%d: there is no %s in a package %s", guarantees, n+1, m[2], m[1])
			}
		}
		if len(test.FindAllString(line, -1)) != len(named) {
			t.Errorf("%s:%d: name tests as `package TestName`: %s", guarantees, n+1, line)
		}
	}
	all := promises(t)
	for _, p := range all {
		if len(p.tests) == 0 {
			t.Errorf("%s: no test shows that %s", p.section, p.text)
		}
	}
	if len(all) < 40 {
		t.Errorf("%s has %d promises: the test shows nothing", guarantees, len(all))
	}
}

// promise is a row of a table of guarantees.md.
type promise struct {
	section, text string
	tests         []string // as "package TestName"
}

// promises returns the rows of guarantees.md that promise something.
func promises(t *testing.T) []promise {
	t.Helper()
	named := regexp.MustCompile("`([a-z0-9]+ Test\\w+)`")
	var all []promise
	section := ""
	for line := range strings.Lines(read(t, guarantees)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			section = strings.TrimLeft(line, "# ")
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) != 2 || strings.HasPrefix(line, "|--") ||
			strings.HasPrefix(line, "| promised") {
			continue
		}
		p := promise{section: section, text: strings.TrimSpace(cells[0])}
		for _, m := range named.FindAllStringSubmatch(cells[1], -1) {
			p.tests = append(p.tests, m[1])
		}
		all = append(all, p)
	}
	return all
}

// TestGuaranteesByTier checks that a test of make check shows each promise. With -v it prints the
// promises with their tests by tier.
func TestGuaranteesByTier(t *testing.T) {
	// The promises that only later tiers show, by their first words.
	later := map[string]tier{
		"An upgrade of the agent":                      inTest, // builds an earlier agent
		"A rolling update":                             inTest,
		"A resource that is served in another version": inTest,
		"The chart's roles":                            inCI, // needs root
		"Every query of the dashboard":                 inCI, // needs Prometheus
	}
	tests, forms := testTiers(t), longForms(t)
	var table, sections strings.Builder
	section := ""
	rows := 0
	fast := 0
	long := 0
	summarize := func() {
		if rows > 0 {
			fmt.Fprintf(&sections, "%s: %d promises, %d with a test of make check, %d with one of make test-long\n",
				section, rows, fast, long)
		}
		rows = 0
		fast = 0
		long = 0
	}
	for _, p := range promises(t) {
		if p.section != section {
			summarize()
			section = p.section
			fmt.Fprintf(&table, "\n%s\n\n| promised | make check | later | make test-long |\n|---|---|---|---|\n",
				section)
		}
		want := inCheck
		for words, first := range later {
			if strings.HasPrefix(p.text, words) {
				want = first
				delete(later, words)
			}
		}
		r := p.byTier(tests, forms)
		if r.first != want {
			t.Errorf("%s: %v is the first to show the promise, want %v: %s", section, r.first, want, p.text)
		}
		rows++
		if r.first == inCheck {
			fast++
		}
		if len(r.long) > 0 {
			long++
		}
		fmt.Fprintln(&table, r)
	}
	summarize()
	for words := range later {
		t.Errorf("%s has no promise that begins with %q", guarantees, words)
	}
	if testing.Verbose() {
		t.Logf("race-all runs the tests of make check and make test, too.\n%s\n%s", table.String(), sections.String())
	}
}

// row is a promise with its tests, by the first tier that runs each.
type row struct {
	text               string
	first              tier
	check, later, long []string
}

func (p promise) byTier(tests map[string]tiered, forms []step) row {
	r := row{text: p.text, first: inLong}
	for _, name := range p.tests {
		test := tests[name]
		r.first = min(r.first, test.first)
		if test.first == inCheck {
			r.check = append(r.check, name)
		} else {
			r.later = append(r.later, fmt.Sprintf("%s (%v)", name, test.first))
		}
		_, function, _ := strings.Cut(name, " ")
		var targets []string
		for _, s := range forms {
			if s.runs(function, test) && !slices.Contains(targets, s.target) {
				targets = append(targets, s.target)
			}
		}
		if len(targets) > 0 {
			r.long = append(r.long, fmt.Sprintf("%s (%s)", name, strings.Join(targets, ", ")))
		}
	}
	return r
}

func (r row) String() string {
	text := []rune(r.text)
	if len(text) > 80 {
		text = append(text[:79], '…')
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", string(text), strings.Join(r.check, ", "), strings.Join(r.later, ", "),
		strings.Join(r.long, ", "))
}
