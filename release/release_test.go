package release_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

const (
	recipe   = "../.goreleaser.yaml"
	workflow = "../.github/workflows/release.yaml"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Goreleaser's own loader refuses keys that it does not know.
func TestRecipe(t *testing.T) {
	p, err := config.Load(recipe)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Builds) != 1 {
		t.Fatalf("%d builds", len(p.Builds))
	}
	b := p.Builds[0]
	for _, system := range []string{"linux", "darwin", "windows"} {
		for _, arch := range []string{"amd64", "arm64"} {
			if !slices.Contains(b.Goos, system) || !slices.Contains(b.Goarch, arch) {
				t.Errorf("no build for %s/%s", system, arch)
			}
		}
	}
	if _, err := os.Stat(filepath.Join("..", b.Main)); err != nil {
		t.Error(err)
	}
	// The linker says nothing of a variable that is not there.
	version := read(t, "../cmd/agent/version.go")
	names := regexp.MustCompile(`-X main\.(\w+)=`).FindAllStringSubmatch(strings.Join(b.Ldflags, " "), -1)
	if len(names) != 2 {
		t.Errorf("ldflags set %v", names)
	}
	for _, name := range names {
		if !regexp.MustCompile(`(?m)^\t` + name[1] + ` += "`).MatchString(version) {
			t.Errorf("cmd/agent/version.go has no variable %s", name[1])
		}
	}
	if len(p.SBOMs) != 1 || len(p.Signs) != 1 || p.Signs[0].Artifacts != "checksum" || len(p.Archives) != 1 {
		t.Errorf("archives %v, SBOMs %v, signatures %v", p.Archives, p.SBOMs, p.Signs)
	}
	if info, err := os.Stat(filepath.Join("..", p.Dist, p.SBOMs[0].Cmd)); err != nil || info.Mode()&0o111 == 0 {
		// goreleaser runs it in its own directory, which may not exist yet.
		if info, err := os.Stat("sbom"); err != nil || info.Mode()&0o111 == 0 ||
			p.SBOMs[0].Cmd != "../../release/sbom" {
			t.Errorf("%s is no program: %v", p.SBOMs[0].Cmd, err)
		}
	}
	// The checksums, and so the signature and the provenance, are about all files that users get.
	if len(p.Checksum.ExtraFiles) != 1 || len(p.Release.ExtraFiles) != 1 ||
		p.Checksum.ExtraFiles[0] != p.Release.ExtraFiles[0] {
		t.Errorf("checksums of %v, and the release has %v", p.Checksum.ExtraFiles, p.Release.ExtraFiles)
	}
	if !p.Release.Draft {
		t.Error("the release is no draft: nobody looks at it before users do")
	}
	if got := p.Dist + "/" + p.Checksum.NameTemplate; !strings.Contains(read(t, workflow), "./"+got) {
		t.Errorf("the workflow attests other checksums than %s", got)
	}
}

func TestRecipeWithAMistakeIsRefused(t *testing.T) {
	_, err := config.LoadReader(strings.NewReader(read(t, recipe) + "\nno_such_key: 1\n"))
	if err == nil {
		t.Error("a key that does not exist passes")
	}
}
