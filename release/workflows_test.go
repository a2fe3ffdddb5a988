package release_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// pinned are the actions that workflows may use, by the commit of a release. The hashes come from
// the repositories of the actions.
var pinned = map[string]string{
	"actions/checkout":                "fbc6f3992d24b796d5a048ff273f7fcc4a7b6c09 # v5.1.0",
	"actions/setup-go":                "924ae3a1cded613372ab5595356fb5720e22ba16 # v6.5.0",
	"actions/cache":                   "0057852bfaa89a56745cba8c7296529d2fc39830 # v4.3.0",
	"actions/setup-java":              "b6effb05e454b25005698d916606bdc6ffcbf961 # v5.7.0",
	"actions/upload-artifact":         "ea165f8d65b6e75b540449e92b4886f43607fa02 # v4.6.2",
	"actions/attest-build-provenance": "977bb373ede98d70efdf65b84cb5f73e068dcc2a # v3.0.0",
	"goreleaser/goreleaser-action":    "e435ccd777264be153ace6237001ef4d979d3a7a # v6.4.0",
	"sigstore/cosign-installer":       "398d4b0eeef1380460a10c8013a76f728fb906ac # v3.9.1",
	"azure/setup-helm":                "1a275c3b69536ee54be43f2070a358922e12c8d4 # v4.3.1",
}

// job is a job of a workflow.
type job struct {
	Needs any
	Uses  string
	If    string
	Steps []struct {
		Name, Uses, Run string
		With            map[string]any
	}
	Permissions map[string]string
}

func jobs(t *testing.T, file string) map[string]job {
	t.Helper()
	var w struct{ Jobs map[string]job }
	if err := yaml.Unmarshal([]byte(read(t, file)), &w); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return w.Jobs
}

func workflows(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../.github/workflows/*")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v", files, err)
	}
	return files
}

// TestActionsArePinned reads the lines that use an action. A tag of an action can be moved to other
// code, a commit cannot.
func TestActionsArePinned(t *testing.T) {
	used := map[string]bool{}
	for _, file := range workflows(t) {
		n := 0
		for _, m := range regexp.MustCompile(`(?m)^ *(?:- )?uses: (\S+)(.*)$`).
			FindAllStringSubmatch(read(t, file), -1) {
			n++
			if strings.HasPrefix(m[1], "./") { // of the same commit
				continue
			}
			name, _, _ := strings.Cut(m[1], "@")
			used[name] = true
			if want := name + "@" + pinned[name]; pinned[name] == "" || !strings.HasPrefix(m[1]+m[2], want) {
				t.Errorf("%s: %s%s, want %s", file, m[1], m[2], want)
			}
		}
		if n != strings.Count(read(t, file), "uses:") {
			t.Errorf("%s: %d actions in lines of their own, of %d", file, n, strings.Count(read(t, file), "uses:"))
		}
	}
	for name := range pinned {
		if !used[name] {
			t.Errorf("no workflow uses %s", name)
		}
	}
}

// TestToolsArePinned compares the versions of the workflows with those that tests run with.
func TestToolsArePinned(t *testing.T) {
	mod, err := modfile.Parse("go.mod", []byte(read(t, "go.mod")), nil)
	if err != nil {
		t.Fatal(err)
	}
	goreleaser := ""
	for _, r := range mod.Require {
		if r.Mod.Path == "github.com/goreleaser/goreleaser/v2" {
			goreleaser = r.Mod.Version
		}
	}
	helm := regexp.MustCompile(`(?s)\bHelm\s+= .*?"(v4[^"]+)"`).FindStringSubmatch(read(t, "../test/tool/tool.go"))
	if helm == nil {
		t.Fatal("test/tool/tool.go has no version of helm")
	}
	want := map[string][2]string{
		"goreleaser/goreleaser-action": {"version", goreleaser},
		"azure/setup-helm":             {"version", helm[1]},
		"sigstore/cosign-installer":    {"cosign-release", "v3.1.3"},
		"actions/setup-go":             {"go-version-file", "go.mod"},
	}
	for _, file := range workflows(t) {
		for name, j := range jobs(t, file) {
			for _, s := range j.Steps {
				action, _, _ := strings.Cut(s.Uses, "@")
				if w, ok := want[action]; ok && s.With[w[0]] != w[1] {
					t.Errorf("%s: job %s: %s has %s %v, want %s", file, name, action, w[0], s.With[w[0]], w[1])
				}
			}
		}
	}
	scanner := regexp.MustCompile(`go run \S+/grype@v\d+\.\d+\.\d+ `)
	if !scanner.MatchString(read(t, "scan")) {
		t.Error("release/scan has no pinned scanner")
	}
}

// TestToolchain: one toolchain builds a release. It is later than the oldest Go that builds the
// sources.
func TestToolchain(t *testing.T) {
	toolchain := ""
	for _, file := range []string{"../go.mod", "../image/go.mod", "go.mod"} {
		mod, err := modfile.Parse(file, []byte(read(t, file)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if mod.Toolchain == nil || toolchain != "" && mod.Toolchain.Name != toolchain {
			t.Fatalf("%s: toolchain %+v, want %s", file, mod.Toolchain, toolchain)
		}
		toolchain = mod.Toolchain.Name
		if file == "../go.mod" && mod.Go.Version != "1.26.0" {
			t.Errorf("the sources need Go %s, and the documentation says 1.26", mod.Go.Version)
		}
	}
	if semver.Compare("v"+strings.TrimPrefix(toolchain, "go"), "v1.26.11") < 0 {
		t.Errorf("%s has called vulnerabilities, which 1.26.11 has not", toolchain)
	}
	if image := "golang:" + strings.TrimPrefix(toolchain, "go") +
		"-alpine"; !strings.Contains(read(t, "../Dockerfile"), " "+image+" AS build") {
		t.Errorf("the Dockerfile is not built with %s", image)
	}
	makefile := read(t, "../Makefile")
	for _, target := range []string{"vulncheck", "release-check", "release-parts", "release-dry-run"} {
		if !strings.Contains(makefile, "\n"+target+": export GOTOOLCHAIN = $(TOOLCHAIN)\n") {
			t.Errorf("make %s may run with another toolchain", target)
		}
	}
}

// order fails if the texts are not in this order in the commands and actions of the job's steps.
func order(t *testing.T, j job, texts ...string) {
	t.Helper()
	all := ""
	for _, s := range j.Steps {
		all += s.Uses + "\n" + s.Run + "\n"
	}
	at := 0
	for _, text := range texts {
		i := strings.Index(all[at:], text)
		if i < 0 {
			t.Errorf("%q is not there, or not after what is before it", text)
			return
		}
		at += i + len(text)
	}
}

// TestNothingIsPushedBeforeItIsChecked reads the jobs of a release.
func TestNothingIsPushedBeforeItIsChecked(t *testing.T) {
	all := jobs(t, workflow)
	if names := slices.Sorted(maps.Keys(all)); !slices.Equal(names, []string{"checks", "draft", "publish"}) {
		t.Fatalf("jobs %v", names)
	}
	checks := all["checks"]
	draft := all["draft"]
	publish := all["publish"]
	if checks.Uses != "./.github/workflows/pull-request.yaml" || draft.Needs != "checks" {
		t.Errorf("the draft needs %v, and checks are %s", draft.Needs, checks.Uses)
	}
	order(t, draft, "make vulncheck VULN_MAX_AGE=720h", "go run ./cut --notes", "make release-parts", "release/scan ",
		"goreleaser release --clean", "make release-verify", "attest-build-provenance")
	order(t, publish, "gh release download", "cosign verify-blob", "sha256sum --check --strict", "skopeo copy",
		"cosign sign", "helm push",
		"cosign sign", "attest-build-provenance")
	// Only a person's publishing of the draft leads to the registry.
	if checks.If != "github.event_name == 'push'" || draft.If != checks.If ||
		publish.If != "github.event_name == 'release'" {
		t.Errorf("jobs run if %q, %q, %q", checks.If, draft.If, publish.If)
	}
	for name, j := range all {
		if may := j.Permissions["packages"] == "write"; may != (name == "publish") {
			t.Errorf("job %s may write packages: %t", name, may)
		}
	}
	for _, build := range []string{"build", "docker", "helm package"} { // It pushes what was checked.
		for _, s := range publish.Steps {
			if strings.Contains(s.Run, build+" ") {
				t.Errorf("the job that pushes runs %s", s.Run)
			}
		}
	}
}

// TestPullRequestsAreCheckedWhole reads the workflow that each change goes through.
func TestPullRequestsAreCheckedWhole(t *testing.T) {
	file := "../.github/workflows/pull-request.yaml"
	all := jobs(t, file)
	order(t, all["test"], ".ci/run")
	order(t, all["oldest-versions"], "make test-versions VERSIONS=oldest NATS_VERSIONS=oldest KAFKA_VERSIONS=oldest")
	order(t, all["release-dry-run"], "make release-dry-run", "release/scan dist/parts/kubecdc-image.tar")
	for _, step := range []string{"make vulncheck", "make release-check", "make test-image"} {
		if !strings.Contains(read(t, "../.ci/run"), " "+step) {
			t.Errorf(".ci/run does not run %s", step)
		}
	}
	text := read(t, file)
	if strings.Contains(text, "write") || strings.Contains(text, "secrets.") ||
		strings.Contains(text, "pull_request_target") {
		t.Error("the code of a pull request gets a permission to write, or a secret")
	}
	if !strings.Contains(text, "\npermissions:\n  contents: read\n") {
		t.Error("no permissions: the token has those of the repository's settings")
	}
	for _, script := range []string{"scan", "parts", "sbom"} {
		if info, err := os.Stat(script); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("release/%s: %v", script, err)
		}
	}
}
