package chart_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/test/chart"
	"github.com/kubecdc/kubecdc/test/tool"
)

// released is the chart of a release. Pages name it from the first release on (release/cut). It is
// rendered from the sources.
var released = regexp.MustCompile(`oci://ghcr\.io/kubecdc/charts/kubecdc --version \S+`)

// rendersChart is a documented command that renders, installs or upgrades the chart, with the
// commands that read its output.
var rendersChart = regexp.MustCompile("helm (?:template|install|upgrade) [\\w-]+ charts/kubecdc[^`#\n]*")

// TestDocumentedHelm renders the chart with the arguments of each helm command line that a page
// has. For a file that a page leaves to the reader, it takes the values of a first try.
func TestDocumentedHelm(t *testing.T) {
	h := newHelm(t)
	dir, err := chart.Dir()
	if err != nil {
		t.Fatal(err)
	}
	root, rendered := filepath.Join(dir, "..", ".."), 0
	yq, err := tool.YQ.Path(t.Context(), root, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	tools, action := t.TempDir(), regexp.MustCompile("^helm (install|upgrade)")
	for name, path := range map[string]string{"helm": h.path, "yq": yq, "kubecdc": buildAgent(t).path} {
		if err := os.Symlink(path, filepath.Join(tools, name)); err != nil {
			t.Fatal(err)
		}
	}
	check := func(page, line string) {
		rendered++
		// helm template has no release, so these flags have no meaning.
		plain := strings.NewReplacer(" --create-namespace", "", " --reuse-values",
			" --set bus.nats.url=nats://nats.messaging:4222",
			" -f values.yaml", " -f examples/values/try.yaml", " --values FILE", " --values examples/values/try.yaml")
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c",
			action.ReplaceAllString(plain.Replace(line), "helm template"))
		cmd.Dir, cmd.Env = root, append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %v\n%s", page, line, err, out)
		}
	}
	for _, tree := range []string{"README.md", "docs", "charts", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".md") || strings.Contains(file, "/decisions/") {
				return err
			}
			text, err := os.ReadFile(file)
			commands := released.ReplaceAllString(strings.ReplaceAll(string(text), "\\\n", " "), "charts/kubecdc")
			for _, line := range rendersChart.FindAllString(commands, -1) {
				check(file, strings.TrimSpace(line))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if rendered < 8 {
		t.Errorf("%d commands: the test shows nothing", rendered)
	}
}
