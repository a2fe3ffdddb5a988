package prometheus_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/kubecdc/kubecdc/test/prometheus"
)

// script writes a program of that name into dir.
func script(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// emptyCache hides earlier installations from the test.
func emptyCache(t *testing.T) {
	t.Helper()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir()) // the cache on macOS
}

func TestInstallSaysWhatIsMissing(t *testing.T) {
	emptyCache(t)
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	wants := func(want string) {
		t.Helper()
		_, err := prometheus.Install(t.Context(), new(bytes.Buffer))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("install: %v, want %q", err, want)
		}
	}
	wants("no apt-get")
	script(t, dir, "apt-get", "echo 'E: Unable to locate package prometheus' >&2; exit 100")
	wants("no dpkg-deb")
	script(t, dir, "dpkg-deb", "echo 'not a Debian package' >&2; exit 2")
	wants("Unable to locate package")
	script(t, dir, "apt-get", "echo \"'http://deb.example/p.deb' prometheus_2.42.0+ds-5_amd64.deb 19257088 SHA256:00\"")
	wants("not a Debian package") // and nothing is left that looks installed
	wants("not a Debian package")

	script(t, dir, "prometheus", "exit 0")
	wants("not a Debian package")
	script(t, dir, "promtool", "exit 0")
	tools, err := prometheus.Install(t.Context(), new(bytes.Buffer))
	if want := (prometheus.Tools{
		Prometheus: filepath.Join(dir, "prometheus"),
		Promtool:   filepath.Join(dir, "promtool"),
	}); err != nil || tools != want {
		t.Errorf("with both on PATH: %+v, %v, want %+v", tools, err, want)
	}
}

// Three installers at once, with a package that arrives as slowly as from a network.
func TestConcurrentInstallersInstallOnce(t *testing.T) {
	emptyCache(t)
	dir, downloads := t.TempDir(), filepath.Join(t.TempDir(), "downloads")
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	script(t, dir, "apt-get", `case "$*" in
*--print-uris*) echo "'http://deb.example/p.deb' prometheus_2.42.0+ds-5_amd64.deb 19257088 SHA256:00" ;;
*) echo "$PWD" >> '`+downloads+`'; sleep 0.5; touch prometheus_2.42.0+ds-5_amd64.deb ;;
esac`)
	script(t, dir, "dpkg-deb",
		`[ -f "$2" ] && mkdir -p "$3/usr/bin" && for p in prometheus promtool; do printf '#!/bin/sh\n' > "$3/usr/bin/$p" && chmod +x "$3/usr/bin/$p"; done`)
	var said [3]bytes.Buffer
	var got [3]prometheus.Tools
	var g errgroup.Group
	for i := range said {
		g.Go(func() (err error) {
			got[i], err = prometheus.Install(t.Context(), &said[i])
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(downloads)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "prometheus-2.42.0+ds-5\n"); n != 1 {
		t.Errorf("downloaded %d times, want once: %s", n, text)
	}
	var again bytes.Buffer
	tools, err := prometheus.Install(t.Context(), &again)
	if err != nil || again.Len() != 0 {
		t.Errorf("nothing to install, but it says %q, %v", again.String(), err)
	}
	for i := range got {
		if got[i] != tools {
			t.Errorf("installer %d got %+v, a later one %+v", i, got[i], tools)
		}
	}
	if _, err := os.Stat(tools.Promtool); err != nil {
		t.Error(err)
	}
}
