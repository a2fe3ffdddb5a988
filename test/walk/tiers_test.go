package walk_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// tier is the first of the commands that runs a test.
type tier int

const (
	inCheck tier = iota // make check, and all that follow
	inTest              // make test
	inCI                // .ci/run, with the targets that need more than Go
	inLong              // make test-long
)

func (r tier) String() string {
	return [...]string{"make check", "make test", ".ci/run", "make test-long"}[r]
}

// tiered is a test.
type tiered struct {
	folder string // relative to the repository
	first  tier
}

// testTiers returns all tests of all modules by "package TestName". The package is the folder's
// name: for internal/queue, "queue".
func testTiers(t *testing.T) map[string]tiered {
	t.Helper()
	checked, apart := packages("test/", variable(t, "CHECKED")), packages("test/", variable(t, "APART"))
	all := map[string]tiered{}
	for folder, functions := range testFunctions(t) {
		first := inCheck
		switch {
		case has(apart, folder):
			first = inCI
		case strings.HasPrefix(folder, "test/") && !has(checked, folder):
			first = inTest
		}
		for name, f := range functions {
			if !strings.HasPrefix(name, "Test") || name == "TestMain" {
				continue
			}
			key := filepath.Base(folder) + " " + name
			if other, ok := all[key]; ok { // If documents name both, they must be in the same tier.
				first = max(first, other.first)
			}
			all[key] = tiered{folder, max(first, functions.skips(f, map[*ast.FuncDecl]bool{}))}
		}
	}
	return all
}

// functions are those of a folder's tests, by name, without methods.
type functions map[string]*ast.FuncDecl

// testFunctions returns the functions of all tests, by folder.
func testFunctions(t *testing.T) map[string]functions {
	t.Helper()
	folders := map[string]functions{}
	for _, tree := range []string{"cmd", "internal", "pkg", "test"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			folder, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			if folders[folder] == nil {
				folders[folder] = functions{}
			}
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
					folders[folder][f.Name.Name] = f
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return folders
}

// skips returns the first tier in which the function, with the functions of its folder that it
// calls, does not skip the test. Function literals are left out: a subtest that is skipped leaves
// the others.
func (all functions) skips(f *ast.FuncDecl, seen map[*ast.FuncDecl]bool) tier {
	first := inCheck
	if f == nil || seen[f] {
		return first
	}
	seen[f] = true
	ast.Inspect(f.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.IfStmt:
			if called(n.Body, "t.Skip", "t.Skipf") {
				if called(n.Cond, "testing.Short") {
					first = max(first, inTest)
				}
				if called(n.Cond, "long") {
					first = max(first, inLong)
				}
			}
		case *ast.CallExpr:
			name := nameOf(n)
			if name == "kafka.Require" || name == "world.StartKafka" { // make check sets KUBECDC_KAFKA=skip
				first = max(first, inTest)
			}
			first = max(first, all.skips(all[name], seen))
		}
		return true
	})
	return first
}

// called reports whether the node has a call of one of these.
func called(in ast.Node, names ...string) bool {
	found := false
	ast.Inspect(in, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && slices.Contains(names, nameOf(call))
		return !found
	})
	return found
}

// nameOf returns the name of a called function, as "slow" or "testing.Short", or "" for other
// expressions.
func nameOf(call *ast.CallExpr) string {
	switch f := call.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
	}
	return ""
}

// step is a command of make test-long that runs tests.
type step struct {
	target   string
	packages []string
	only     *regexp.Regexp // the value of -run; nil: all tests
}

func (s step) runs(test string, in tiered) bool {
	return has(s.packages, in.folder) && (s.only == nil || s.only.MatchString(test))
}

// longForms returns the commands that run tests at a larger size. race-all is left out: it runs all
// at the sizes of make test.
func longForms(t *testing.T) []step {
	t.Helper()
	run := regexp.MustCompile(`-run (?:'([^']*)'|(\S+))`)
	var all []step
	for _, s := range longSteps(t) {
		target, _, _ := strings.Cut(s, " ")
		if target == "race-all" {
			continue
		}
		recipe := regexp.MustCompile(`(?m)^` + target + `:.*\n((?:\t.*\n)+)`).FindStringSubmatch(read(t, "Makefile"))
		if recipe == nil {
			t.Fatalf("Makefile has no target %s", target)
		}
		for line := range strings.Lines(strings.ReplaceAll(recipe[1], "\\\n", "")) {
			_, command, ok := strings.Cut(strings.Replace(line, "$(GOTEST)", "go test", 1), "go test ")
			if !ok {
				continue
			}
			module := ""
			if strings.HasPrefix(line, "\tcd test ") {
				module = "test/"
			}
			s := step{target: target, packages: packages(module, command)}
			if m := run.FindStringSubmatch(command); m != nil {
				s.only = regexp.MustCompile(strings.ReplaceAll(m[1]+m[2], "$$", "$"))
			}
			all = append(all, s)
		}
	}
	return all
}

// longSteps returns the steps of make test-long: targets, with variables.
func longSteps(t *testing.T) []string {
	t.Helper()
	var steps []string
	for _, m := range regexp.MustCompile(`"([^"]+)"|(\S+)`).FindAllStringSubmatch(variable(t, "LONG"), -1) {
		steps = append(steps, m[1]+m[2])
	}
	return steps
}

// variable returns the text of a variable of the Makefile.
func variable(t *testing.T, name string) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` := (.+)$`).FindStringSubmatch(read(t, "Makefile"))
	if m == nil {
		t.Fatalf("Makefile does not set %s", name)
	}
	return m[1]
}

// packages returns the folders of the packages in a text, as "./e2e" and "./oracle/..." of a
// module.
func packages(module, text string) []string {
	var all []string
	for _, m := range regexp.MustCompile(`(?:^|\s)\./([\w./]+)`).FindAllStringSubmatch(text, -1) {
		all = append(all, module+m[1])
	}
	return all
}

func has(packages []string, folder string) bool {
	return slices.ContainsFunc(packages, func(p string) bool {
		tree, all := strings.CutSuffix(p, "/...")
		return folder == tree || all && strings.HasPrefix(folder, tree+"/")
	})
}

// TestTiers checks one test of each kind, because TestGuarantees relies on their tiers.
func TestTiers(t *testing.T) {
	tests := testTiers(t)
	for name, want := range map[string]tier{
		"queue TestModel":               inCheck, // of the agent's packages
		"e2e TestTruth":                 inCheck,
		"e2e TestBlockedBus":            inCheck, // with one of its subtests
		"oracle TestHaystack":           inCheck,
		"e2e TestRewound":               inTest, // calls slow
		"e2e TestKafkaTruth":            inTest,
		"consumers TestTable":           inTest, // in a package that make check does not run
		"chart TestMatrix":              inCI,
		"e2e TestBlackholedWatch":       inLong, // calls onlyLong
		"selection TestSelectionOracle": inCheck,
	} {
		if got, ok := tests[name]; !ok || got.first != want {
			t.Errorf("%s: the first tier is %v, want %v", name, got.first, want)
		}
	}
	var long []string
	for _, s := range longForms(t) {
		for _, name := range []string{"TestFaults", "TestMachine", "TestKafkaTruth"} {
			if s.runs(name, tests["e2e "+name]) || s.runs(name, tests["informers "+name]) {
				long = append(long, s.target+" "+name)
			}
		}
	}
	want := "[test-faults TestMachine test-faults TestFaults test-e2e TestFaults test-e2e TestKafkaTruth test-kafka TestKafkaTruth]"
	if fmt.Sprint(long) != want {
		t.Errorf("long forms are %v, want %s", long, want)
	}
}

// TestNightly checks that the nightly workflow has a job for each step of make test-long.
func TestNightly(t *testing.T) {
	var workflow struct {
		Jobs map[string]struct {
			Strategy struct {
				Matrix struct{ Step []string }
			}
			Steps []struct{ Run string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".github/workflows/nightly.yaml")), &workflow); err != nil {
		t.Fatal(err)
	}
	job := workflow.Jobs["test-long"]
	if want := longSteps(t); !slices.Equal(job.Strategy.Matrix.Step, want) {
		t.Errorf("nightly.yaml has jobs for %q, LONG of the Makefile has %q", job.Strategy.Matrix.Step, want)
	}
	if !slices.ContainsFunc(job.Steps,
		func(s struct{ Run string }) bool { return strings.HasPrefix(s.Run, "make ${{ matrix.step }} ") }) {
		t.Error("the job of nightly.yaml does not run its step of the matrix")
	}
}

// TestHostileTier checks that make test-hostile runs the tests that the documentation names for
// attacks.
func TestHostileTier(t *testing.T) {
	_, section, found := strings.Cut(read(t, "docs/security.md"), "## Attacks that tests try\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("docs/security.md has no section about attacks")
	}
	tests, forms := testTiers(t), longForms(t)
	named := regexp.MustCompile("`([a-z0-9]+ (Test\\w+))`").FindAllStringSubmatch(section, -1)
	if len(named) < 10 {
		t.Errorf("the section names %d tests", len(named))
	}
	for _, m := range named {
		test, ok := tests[m[1]]
		if !ok {
			t.Errorf("there is no test %s", m[1])
			continue
		}
		if !slices.ContainsFunc(forms, func(s step) bool { return s.target == "test-hostile" && s.runs(m[2], test) }) {
			t.Errorf("make test-hostile does not run %s", m[1])
		}
	}
}
