package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestAccepted checks that each entry of packages.yaml names a line that the code has.
func TestAccepted(t *testing.T) {
	all, err := loadPackages("packages.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 7 {
		t.Errorf("%d packages are listed", len(all))
	}
	if err := all.check("../.."); err != nil {
		t.Error(err)
	}
}

// acceptSum accepts all survivors of testdata.
const acceptSum = `- package: internal/sum
  nights: 1
  floor: {efficacy: 52.9, covered: 85, measured: 2026-11-30 of 17}
  accepted:
    - {file: sum.go, function: Bounds.Clamp, mutation: CONDITIONALS_BOUNDARY, line: "if n «<» b.Low {", why: equal}
    - {file: sum.go, function: Bounds.Clamp, mutation: CONDITIONALS_BOUNDARY, line: "if n «>» b.High {", why: equal}
    - {file: sum.go, function: IsSmall, mutation: CONDITIONALS_BOUNDARY, line: "if a «<» Size {", times: 2, why: open}
    - {file: sum.go, function: IsSmall, mutation: CONDITIONALS_NEGATION, line: "if a «<» Size {", times: 2, why: open}
    - {file: sum.go, function: IsSmall, mutation: CONDITIONALS_BOUNDARY, line: "if b «<» Size && a < Size {", why: open}
    - {file: sum.go, function: IsSmall, mutation: CONDITIONALS_BOUNDARY, line: "if b < Size && a «<» Size {", why: open}
`

// gremlinsOf writes a program that answers as gremlins did for testdata/internal/sum, where the
// arguments are those that gremlins got. It notes its arguments and GOFLAGS in the file log.
func gremlinsOf(t *testing.T) (program, log string) {
	t.Helper()
	dir := t.TempDir()
	program, log = filepath.Join(dir, "gremlins"), filepath.Join(dir, "log")
	data, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`#!/bin/sh
echo "$* GOFLAGS=$GOFLAGS" >> %q
answer=tried
for a; do
	case $before in --output) to=$a ;; esac
	case $a in --dry-run) answer=found ;; esac
	before=$a
done
cp %q/$answer.json "$to"
`, log, data)
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return program, log
}

// tryList runs the command with a list of packages of testdata, and returns all that it says.
func tryList(t *testing.T, list string, args ...string) string {
	t.Helper()
	program, _ := gremlinsOf(t)
	file := filepath.Join(t.TempDir(), "packages.yaml")
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, log strings.Builder
	args = append([]string{"-root", "testdata", "-list", file, "-gremlins", program}, args...)
	err := run(t.Context(), args, &out, &log)
	if err != nil {
		fmt.Fprintf(&out, "ERROR %v\n", err)
	}
	return out.String()
}

func TestVerdicts(t *testing.T) {
	edit := func(from, to string) string {
		t.Helper()
		if !strings.Contains(acceptSum, from) {
			t.Fatalf("the list has no %q", from)
		}
		return strings.ReplaceAll(acceptSum, from, to)
	}
	for _, tc := range []struct {
		name, list string
		want       []string // "" at the end: no error
	}{
		{
			name: "all accepted", list: acceptSum,
			want: []string{
				"part 1/1: more.go sum.go\n",
				"ran out of time: sum.go Sum: INCREMENT_DECREMENT: for i := 1; i <= n; i«++» {",
				"tried 17: 0 survived that are not accepted, 1 ran out of time, 0 did not build",
				"efficacy 52.9 %, covered 85.0 % of 20; floor 52.9 %, 85 %", "",
			},
		},
		{
			name: "one is not accepted", list: edit(`"if n «>» b.High {"`, `"if n > b.«High» {"`),
			want: []string{
				"    function: Bounds.Clamp\n    line: if n «>» b.High {\n    mutation: CONDITIONALS_BOUNDARY\n",
				"accepted, but was caught this time: sum.go Bounds.Clamp: CONDITIONALS_BOUNDARY: if n > b.«High» {",
				"ERROR internal/sum: 1 changes survived that are not accepted\n",
				"the efficacy is 47.1 %, below the floor of 52.9 %",
			},
		},
		{
			name: "accepted once, survives twice", list: edit("times: 2, ", ""),
			want: []string{"ERROR internal/sum: 2 changes survived that are not accepted"},
		},
		{
			name: "accepted more often than the code has it", list: edit("times: 2", "times: 3"),
			want: []string{"ERROR internal/sum: sum.go IsSmall", "the code has the line 2 times, 3 are accepted"},
		},
		{
			name: "the line has changed", list: edit("b.High {", "b.Higher {"),
			want: []string{"ERROR internal/sum: sum.go Bounds.Clamp", "the code has the line 0 times, 1 are accepted"},
		},
		{
			name: "the function has gone", list: edit("Bounds.Clamp", "Bounds.Cut"),
			want: []string{"the code has the line 0 times, 1 are accepted"},
		},
		{
			name: "the file has gone", list: edit("sum.go, function: Bounds", "gone.go, function: Bounds"),
			want: []string{"gone.go: no such file"},
		},
		{
			name: "no reason", list: edit("why: equal", `why: ""`),
			want: []string{"ERROR internal/sum: sum.go Bounds.Clamp", "why is missing"},
		},
		{
			name: "twice", list: edit("«>» b.High", "«<» b.Low"),
			want: []string{"is there twice: use times"},
		},
		{
			name: "efficacy below the floor", list: edit("efficacy: 52.9", "efficacy: 53"),
			want: []string{"ERROR internal/sum: the efficacy is 52.9 %, below the floor of 53 %\n"},
		},
		{
			name: "coverage below the floor", list: edit("covered: 85", "covered: 86"),
			want: []string{"ERROR internal/sum: tests run 85.0 % of the changes, below the floor of 86 %\n"},
		},
		{
			name: "no floor yet", list: "- {package: internal/sum, nights: 1}",
			want: []string{"8 survived that are not accepted", "efficacy 52.9 %, covered 85.0 % of 20; not held yet", ""},
		},
		{
			name: "the package has moved", list: "- {package: internal/total, nights: 1}",
			want: []string{"ERROR internal/total: there is no such package"},
		},
		{
			name: "a key is misspelled", list: edit("why: equal", "reason: equal"),
			want: []string{`unknown field "reason"`},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := tryList(t, tc.list)
			for _, want := range tc.want {
				if !strings.Contains(out, want) {
					t.Errorf("no %q in the output:\n%s", want, out)
				}
			}
			if passes := tc.want[len(tc.want)-1] == ""; passes == strings.Contains(out, "ERROR") {
				t.Errorf("passes: %t, want %t:\n%s", !passes, passes, out)
			}
		})
	}
}

// TestTooSlow checks that a run in which most tests ran out of time is an error, though nothing
// survived.
func TestTooSlow(t *testing.T) {
	var r report
	for range 3 {
		r.Files = append(r.Files, file{Mutations: []mutation{{Status: timedOut}, {Status: killed}}})
	}
	v := verdict{pack: &pack{}, tried: r, stopped: make([]place, 3)}
	if err := v.err(); err == nil || !strings.Contains(err.Error(), "for 3 of 6 changes: the machine is too slow") {
		t.Errorf("the verdict is %v", err)
	}
}

// TestEfficacyOfAPart checks that nothing is said of changes that were not tried, unless the
// package is held, so that they were judged in other nights.
func TestEfficacyOfAPart(t *testing.T) {
	found := report{Files: []file{{Mutations: slices.Repeat([]mutation{{Status: runnable}}, 20)}}}
	tried := report{Files: []file{{Mutations: []mutation{{Status: lived}, {Status: killed}, {Status: timedOut}, {
		Status: lived,
	}}}}}
	p := &pack{}
	v := verdict{pack: p, found: found, tried: tried, survivors: make([]place, 1), accepted: 3}
	if e := v.efficacy(); e != 50 {
		t.Errorf("two of four changes survived, and the efficacy is %g %%", e)
	}
	p.Floor = &floor{}
	if e := v.efficacy(); e != 80 {
		t.Errorf("four of 20 changes survive, and the efficacy is %g %%", e)
	}
}

// TestParts checks that each night has about as many changes to try, and that all nights together
// have every file once.
func TestParts(t *testing.T) {
	changes := map[string]int{"a.go": 50, "b.go": 30, "c.go": 30, "d.go": 10, "e.go": 5, "f.go": 5}
	want := [][]string{{"a.go"}, {"b.go", "d.go"}, {"c.go", "e.go", "f.go"}}
	var got [][]string
	for n := range want {
		got = append(got, part{number: n + 1, of: len(want)}.files(changes))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if files := (part{number: 9, of: 9}).files(changes); len(files) > 0 {
		t.Errorf("a part has files of others: %v", files)
	}
	all := part{number: 1, of: 1}.files(changes)
	if want := slices.Sorted(slices.Values(slices.Concat(want...))); !slices.Equal(all, want) {
		t.Errorf("the one part is %v", all)
	}
}

// TestNights checks that consecutive nights try all parts of a package, and that a night tries the
// same part when it runs again. A person who names a package gets all of it.
func TestNights(t *testing.T) {
	p := &pack{Nights: 3}
	var parts []string
	for day := range 4 {
		now := time.Date(2026, 11, 28+day, 1, 17, 0, 0, time.UTC)
		night, err := choosePart(options{}, p, now)
		again, _ := choosePart(options{}, p, now.Add(20*time.Hour))
		if err != nil || night != again {
			t.Fatalf("%v and %v: %v", night, again, err)
		}
		parts = append(parts, fmt.Sprint(night.number))
	}
	if parts[0] != parts[3] || len(slices.Compact(slices.Sorted(slices.Values(parts)))) != 3 {
		t.Errorf("the nights try the parts %v", parts)
	}
	if whole, err := choosePart(options{pkg: "./internal/sum"}, p, time.Now()); err != nil || whole.of != 1 {
		t.Errorf("a named package has the part %v: %v", whole, err)
	}
	if named, err := choosePart(options{part: "2/7"}, p, time.Now()); err != nil || named != (part{2, 7}) {
		t.Errorf("the named part is %v: %v", named, err)
	}
	for _, wrong := range []string{"8/7", "0/7", "x"} {
		if _, err := choosePart(options{part: wrong}, p, time.Now()); err == nil {
			t.Errorf("%q is a part", wrong)
		}
	}
}

// TestArguments checks what gremlins is called with. It must try the files of the part alone, and
// none of packages below. The tests must be the short ones, with no results from a cache.
func TestArguments(t *testing.T) {
	program, log := gremlinsOf(t)
	t.Setenv("GOFLAGS", "-mod=mod")
	r := runner{gremlins: program, root: "testdata", log: os.Stderr}
	tried, err := r.try(t.Context(), "internal/sum", []string{"sum.go"})
	if err != nil || tried.count(lived) != 8 {
		t.Fatalf("the answer is %v: %v", tried, err)
	}
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"unleash ./internal/sum --workers 1 ", ` --exclude-files /|^more\.go$ --output `,
		" GOFLAGS=-mod=mod -short -count=1 -vet=off\n",
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("gremlins is called without %q: %s", want, data)
		}
	}
	if strings.Contains(string(data), "dry-run") {
		t.Errorf("nothing is tried: %s", data)
	}
}

// TestLimit checks that a run ends at its time limit, the child too.
func TestLimit(t *testing.T) {
	program := filepath.Join(t.TempDir(), "gremlins")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nsleep 1000 &\nwait\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "packages.yaml")
	if err := os.WriteFile(file, []byte(acceptSum), 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err := run(t.Context(), []string{"-root", "testdata", "-list", file, "-gremlins", program, "-limit", "100ms"},
		&strings.Builder{}, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "not finished after 100ms") {
		t.Errorf("run returned %v", err)
	}
	// The child holds the pipe of the output. While it lives, the command waits 10 seconds.
	if took := time.Since(began); took > 9*time.Second {
		t.Errorf("it ended after %s", took)
	}
}

// TestUnknownStatus checks that a report of another version of gremlins is not read as one in
// which nothing survived.
func TestUnknownStatus(t *testing.T) {
	_, err := parseReport([]byte(`{"files":[{"file_name":"a.go","mutations":[{"status":"SURVIVED"}]}]}`))
	if err == nil || !strings.Contains(err.Error(), `unknown status "SURVIVED"`) {
		t.Errorf("parseReport returned %v", err)
	}
}
