package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// tree writes a repository that has a package with tests.
func tree(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, content := range map[string]string{
		"go.mod":           "module sum\n\ngo 1.26\n",
		"cmd/agent/run.go": "package main\n\nimport \"sum/sum\"\n\nfunc main() { println(sum.Sum(1, 2)) }\n",
		"sum/sum.go":       "package sum\n\n// Sum adds.\nfunc Sum(a, b int) int {\n\treturn a + b\n}\n",
		"sum/sum_test.go": `package sum

import "testing"

func TestSum(t *testing.T) {
	t.Run("small", func(t *testing.T) {
		if s := Sum(1, 2); s != 3 {
			t.Errorf("the sum is %d", s)
		}
	})
}

func TestZero(t *testing.T) {
	if Sum(0, 0) != 0 {
		t.Error("not zero")
	}
}

func TestBroken(t *testing.T) { t.Error("always") }

func TestSkipped(t *testing.T) { t.Skip("never") }
`,
		"test/go.mod":     "module sum/test\n\ngo 1.26\n",
		"test/e2e/e2e.go": "package e2e\n",
		"test/e2e/e2e_test.go": `package e2e

import (
	"os/exec"
	"strings"
	"testing"
)

// TestAgent builds the agent as a child, as e2e does.
func TestAgent(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "run", "./cmd/agent")
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "3" {
		t.Errorf("the agent says %s: %v", out, err)
	}
}
`,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// patch returns a mutant that replaces "return a + b" by line.
func patch(header, line string) string {
	return "intent: adds wrongly\n" + header +
		"\n--- a/sum/sum.go\n+++ b/sum/sum.go\n@@ -2,5 +2,5 @@\n \n // Sum adds.\n func Sum(a, b int) int {\n-\treturn a + b\n+\t" +
		line + "\n }\n"
}

func TestMutants(t *testing.T) {
	const head = "package: sum\ntier: check\ntests: ./sum "
	for _, tc := range []struct {
		name, patch string
		caught      bool
		want        []string // in the output
	}{
		{
			name: "caught", caught: true, patch: patch(head+"TestZero TestSum/small\n", "return a - b"),
			want: []string{
				"caught", "TestSum/small", "1 mutants, 0 of them reverts of fixes: 1 caught, 0 survived, 0 errors",
				"caught by make check: 1",
			},
		},
		{
			name:   "caught by a panic",
			caught: true,
			patch:  patch("revert-of: sum: adds\n"+head+"TestSum\n", `panic("no")`),
			want:   []string{"caught", "TestSum", "sum: adds", "1 of them reverts of fixes: 1 caught"},
		},
		{
			name: "survivor", patch: patch(head+"TestZero\n", "return a - b"),
			want: []string{
				"SURVIVED", "its tests pass", "intent: adds wrongly", "0 caught, 1 survived",
				"1 mutants were not caught",
			},
		},
		{
			name: "does not build", patch: patch(head+"TestSum\n", "return c"),
			want: []string{"ERROR", "it does not build", "undefined: c", "0 survived, 1 errors"},
		},
		{
			name: "hangs", patch: patch(head+"TestSum\n", "for {}"),
			want: []string{"ERROR", "hang"},
		},
		{
			name:  "does not apply",
			patch: strings.Replace(patch(head+"TestSum\n", "return 0"), "-\treturn a + b", "-\treturn b + a", 1),
			want:  []string{"m.patch does not apply to sum/sum.go", "port it to the changed code", "adds wrongly"},
		},
		{
			name: "file is gone", patch: strings.ReplaceAll(patch(head+"TestSum\n", "return 0"), "sum.go", "gone.go"),
			want: []string{"m.patch does not apply to sum/gone.go", "no such file"},
		},
		{
			name: "no such test", patch: patch(head+"TestSum/large\n", "return 0"),
			want: []string{"on the unchanged tree: ./sum: there is no test TestSum/large"},
		},
		{
			name: "test that always fails", patch: patch(head+"TestBroken\n", "return 0"),
			want: []string{"on the unchanged tree: ./sum: TestBroken fails", "always"},
		},
		{
			name: "test that is skipped", patch: patch(head+"TestSkipped\n", "return 0"),
			want: []string{"on the unchanged tree: ./sum: TestSkipped is skipped"},
		},
		{
			name: "other failure", patch: patch("shows: VERDICT\n"+head+"TestSum\n", "return 0"),
			want: []string{"ERROR", `do not show "VERDICT"`},
		},
		{
			name:   "agent as a child",
			caught: true,
			patch: patch("package: sum\ntier: test\nshows: the agent says 2\ntests: ./test/e2e TestAgent\n",
				"return a * b"),
			want: []string{"caught", "TestAgent", "by make test: 1"},
		},
		{
			name:  "agent does not build",
			patch: patch("package: sum\ntier: test\ntests: ./test/e2e TestAgent\n", "return c"),
			want:  []string{"ERROR", "it does not build", "undefined: c"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			root, patches := tree(t), t.TempDir()
			if err := os.WriteFile(filepath.Join(patches, "m.patch"), []byte(tc.patch), 0o600); err != nil {
				t.Fatal(err)
			}
			var out syncBuilder
			args := []string{"-root", root, "-patches", patches, "-limit", "5s"}
			if tc.name != "hangs" {
				args[len(args)-1] = "5m"
			}
			err := run(t.Context(), args, &out, &out)
			if (err == nil) != tc.caught {
				t.Errorf("run returned %v", err)
			}
			if err != nil {
				_, _ = out.Write([]byte(err.Error()))
			}
			for _, want := range tc.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("no %q in the output:\n%s", want, out.String())
				}
			}
			data, err := os.ReadFile(filepath.Join(root, "sum", "sum.go"))
			if err != nil || !strings.Contains(string(data), "return a + b") {
				t.Errorf("the tree was changed: %s %v", data, err)
			}
		})
	}
}

func TestHeaders(t *testing.T) {
	for _, tc := range []struct{ name, patch, want string }{
		{"no diff", "intent: x\n", "no diff"},
		{
			"no intent",
			strings.Replace(patch("package: sum\ntier: check\ntests: ./sum TestSum\n", "return 0"),
				"intent: adds wrongly\n", "", 1), "intent: is missing",
		},
		{"no tests", patch("package: sum\ntier: check\n", "return 0"), "tests: is missing"},
		{
			"test without a package", patch("package: sum\ntier: check\ntests: TestSum\n", "return 0"),
			"tests: must be a package and tests",
		},
		{
			"unknown tier", patch("package: sum\ntier: soon\ntests: ./sum TestSum\n", "return 0"),
			`tier: must be check, test or long, got "soon"`,
		},
		{"unknown key", patch("packages: sum\n", "return 0"), `unknown key "packages"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := mutant{name: "m"}
			if err := m.parse(tc.patch); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("parse returned %v, want %q", err, tc.want)
			}
		})
	}
}

func TestOnly(t *testing.T) {
	root, patches := tree(t), t.TempDir()
	const head = "package: sum\ntier: check\ntests: ./sum TestSum\n"
	for name, text := range map[string]string{
		"one.patch": patch(head, "return a - b"),
		"two.patch": patch(head, "return c"),
	} {
		if err := os.WriteFile(filepath.Join(patches, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, log syncBuilder
	if err := run(t.Context(), []string{"-root", root, "-patches", patches, "-only", "one,three", "-o", "json"}, &out,
		&log); err != nil {
		t.Fatalf("run returned %v:\n%s", err, log.String())
	}
	var rows []row
	if err := json.Unmarshal([]byte(out.String()), &rows); err != nil || len(rows) != 1 || rows[0].Mutant != "one" ||
		rows[0].Verdict != "caught" {
		t.Errorf("%v: %s", err, out.String())
	}
	err := run(t.Context(), []string{"-root", root, "-patches", patches, "-only", "three"}, &out, &log)
	if err == nil || !strings.Contains(err.Error(), "no patch") {
		t.Errorf("run returned %v", err)
	}
}

// TestPatches checks that each patch of this directory applies, and that the commits exist that
// patches revert. make mutants checks, too, that the tests of a patch exist and catch it.
func TestPatches(t *testing.T) {
	all, err := load(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 30 {
		t.Errorf("%d mutants, want 30 or more", len(all))
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{root: root, scratch: t.TempDir()}
	if err := b.apply(t.Context(), all); err != nil {
		t.Error(err)
	}
	t.Run("reverts", func(t *testing.T) { reverts(t, all) })
}

// reverts checks that each patch that reverts a fix has the whole subject of its commit.
func reverts(t *testing.T, all []*mutant) {
	git := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "git", args...).Output()
		if err != nil {
			t.Skipf("no history to compare with: git %s: %v", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out))
	}
	shallow := git("rev-parse", "--is-shallow-repository") == "true"
	subjects := strings.Split(git("log", "--format=%s"), "\n")
	for _, m := range all {
		switch {
		case m.revertOf == "" || slices.Contains(subjects, m.revertOf):
		case shallow:
			t.Skipf("the clone is shallow, and lacks the commit %q", m.revertOf)
		default:
			t.Errorf("%s: revert-of: no commit has the subject %q", m.file, m.revertOf)
		}
	}
}
