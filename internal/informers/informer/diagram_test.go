package informer

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the diagram of phases in docs/architecture.md")

// diagram returns the table of phases as a Mermaid diagram. Changes that all phases before draining
// allow are drawn once.
func diagram() string {
	var b strings.Builder
	next := func(from Phase) (out []Phase) {
		for to := range PhaseRemoved + 1 {
			if from.leadsTo(to) {
				out = append(out, to)
			}
		}
		return out
	}
	common := next(PhaseWaiting)
	for p := range PhaseDraining {
		common = slices.DeleteFunc(common, func(to Phase) bool { return !p.leadsTo(to) })
	}
	b.WriteString("stateDiagram-v2\n    [*] --> observing\n    state observing {\n        [*] --> waiting\n")
	for p := range PhaseDraining {
		for _, to := range next(p) {
			if !slices.Contains(common, to) {
				fmt.Fprintf(&b, "        %s --> %s\n", p, to)
			}
		}
	}
	b.WriteString("    }\n")
	for _, to := range common {
		fmt.Fprintf(&b, "    observing --> %s\n", to)
	}
	for p := PhaseDraining; p < PhaseRemoved; p++ {
		for _, to := range next(p) {
			fmt.Fprintf(&b, "    %s --> %s\n", p, to)
		}
	}
	b.WriteString("    removed --> [*]\n")
	return b.String()
}

// The diagram in docs/architecture.md is that of the table. -update writes it.
func TestDiagramOfPhases(t *testing.T) {
	const path, begin, end = "../../../docs/architecture.md",
		"<!-- phases: generated, go test ./internal/informers/informer -update -->\n```mermaid\n",
		"```\n<!-- end of phases -->"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(page), begin)
	shown, after, ended := strings.Cut(rest, end)
	if !ok || !ended {
		t.Fatal("docs/architecture.md has no diagram of phases")
	}
	if d := cmp.Diff(diagram(), shown); d == "" {
		return
	} else if !*update {
		t.Fatal(d)
	}
	if err := os.WriteFile(path, []byte(before+begin+diagram()+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}
