// Package image_test builds the image as `make image` does, checks its content, and runs it as its
// user on a read-only root.
package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/x509"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	version = "v1.2.3-test"
	commit  = "0123456789abcdef0123456789abcdef01234567"
	epoch   = "1795000000"
	limit   = 40_000_000 // compressed, of one platform
	user    = 65532
)

// need skips the test without buildah (or the other named tools), and fails it if KUBECDC_IMAGE is
// "require".
func need(t *testing.T, ok bool, what string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("KUBECDC_IMAGE") == "require":
		t.Fatal(what)
	default:
		t.Skip(what)
	}
}

// build runs image/build into a new directory.
func build(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dist")
	cmd := exec.CommandContext(t.Context(), "../../image/build", version, commit, dir)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+epoch, "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("image/build: %v\n%s", err, out)
	}
	t.Logf("%s", out)
	return dir
}

// layout is an OCI archive: its files by name.
type layout map[string][]byte

func open(t *testing.T, file string) layout {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	l := layout{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return l
		}
		if err != nil {
			t.Fatal(err)
		}
		l[path.Clean(h.Name)], err = io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
	}
}

type descriptor struct {
	Digest   string
	Size     int64
	Platform struct{ OS, Architecture string }
}

// blob returns the content for a descriptor, after a check against it.
func (l layout) blob(t *testing.T, d descriptor) []byte {
	t.Helper()
	b, ok := l["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
	if sum := sha256.Sum256(b); !ok || int64(len(b)) != d.Size || "sha256:"+hex.EncodeToString(sum[:]) != d.Digest {
		t.Fatalf("%s is not in the archive, or is something else", d.Digest)
	}
	return b
}

func parse[T any](t *testing.T, b []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

type index struct{ Manifests []descriptor }

type manifest struct {
	Config descriptor
	Layers []descriptor
}

type settings struct {
	User         string
	ExposedPorts map[string]struct{}
	Env          []string
	Entrypoint   []string
	Cmd          []string
	Labels       map[string]string
}

type image struct {
	Created, Architecture, OS string
	Config                    settings
}

// entry is one file of the image.
type entry struct {
	Path string
	Mode int64
	Dir  bool
}

func TestImage(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the image twice, which takes minutes")
	}
	_, err := exec.LookPath("buildah")
	need(t, err == nil, "buildah is not installed (apt-get install buildah): no image is built")
	dist := build(t)
	l := open(t, filepath.Join(dist, "kubecdc-image.tar"))

	t.Run("again", func(t *testing.T) {
		again := open(t, filepath.Join(build(t), "kubecdc-image.tar"))
		if diff := cmp.Diff(string(l["index.json"]), string(again["index.json"])); diff != "" || len(l) != len(again) {
			t.Errorf("built twice from the same sources, it is not the same (-first +second):\n%s", diff)
		}
	})
	top := parse[index](t, l["index.json"])
	if len(top.Manifests) != 1 {
		t.Fatalf("%d entries in index.json, want the image alone", len(top.Manifests))
	}
	platforms := parse[index](t, l.blob(t, top.Manifests[0]))
	seen := map[string]bool{}
	for _, d := range platforms.Manifests {
		name := d.Platform.OS + "/" + d.Platform.Architecture
		seen[name] = true
		t.Run(name, func(t *testing.T) { inspect(t, l, d, dist) })
	}
	if !seen["linux/amd64"] || !seen["linux/arm64"] || len(seen) != 2 {
		t.Errorf("platforms: %v", seen)
	}
}

func inspect(t *testing.T, l layout, d descriptor, dist string) {
	m := parse[manifest](t, l.blob(t, d))
	img := parse[image](t, l.blob(t, m.Config))
	if img.OS != "linux" || img.Architecture != d.Platform.Architecture || img.Created != "2026-11-18T11:06:40Z" {
		t.Errorf("%s/%s of %s", img.OS, img.Architecture, img.Created)
	}
	if diff := cmp.Diff(dockerfile(t), img.Config); diff != "" {
		t.Errorf("the image is not what the Dockerfile says (-Dockerfile +image):\n%s", diff)
	}
	size := d.Size + m.Config.Size
	root := filepath.Join(t.TempDir(), "root")
	var entries []entry
	for _, layer := range m.Layers {
		size += layer.Size
		entries = append(entries, unpack(t, l.blob(t, layer), root)...)
	}
	t.Logf("%d bytes compressed", size)
	if size > limit {
		t.Errorf("%d bytes compressed, want at most %d", size, limit)
	}
	if diff := cmp.Diff([]entry{
		{"etc", 0o755, true},
		{"etc/group", 0o644, false},
		{"etc/passwd", 0o644, false},
		{"etc/ssl", 0o755, true},
		{"etc/ssl/certs", 0o755, true},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, false},
		{"kubecdc", 0o755, false},
		{"licenses", 0o755, true},
		{"licenses/LICENSE", 0o644, false},
	}, entries); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	authorities(t, filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	machine(t, filepath.Join(root, "kubecdc"), img.Architecture)
	listed(t, filepath.Join(dist, "kubecdc-linux-"+img.Architecture+".cdx.json"), filepath.Join(root, "kubecdc"))
	if img.Architecture == runtime.GOARCH && img.OS == runtime.GOOS {
		t.Run("run", func(t *testing.T) { execute(t, root, &img.Config) })
	}
}

// unpack writes a layer's files below dir. All of them must belong to root and have the same time.
func unpack(t *testing.T, layer []byte, dir string) []entry {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		t.Fatal(err)
	}
	var entries []entry
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(h.ModTime.Unix()) != epoch || h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s belongs to %d:%d and is of %s", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "/"))
		to := filepath.Join(dir, name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(to, 0o755)
		case tar.TypeReg:
			var b []byte
			b, err = io.ReadAll(r)
			if err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o755))
			}
			err = errors.Join(err, os.Chmod(to, os.FileMode(h.Mode)))
		default:
			t.Errorf("%s is neither a file nor a directory", h.Name)
		}
		if err != nil {
			t.Fatal(err)
		}
		if name != "." {
			entries = append(entries, entry{name, h.Mode & 0o7777, h.Typeflag == tar.TypeDir})
		}
	}
}

// authorities checks that a file has certificates that clients can use.
func authorities(t *testing.T, file string) {
	t.Helper()
	rest, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !c.IsCA {
			t.Errorf("not a certificate of an authority: %v", err)
			continue
		}
		names[c.Subject.CommonName] = true
	}
	if len(names) < 50 || !names["ISRG Root X1"] || !names["DigiCert Global Root G2"] {
		t.Errorf("%d authorities; Let's Encrypt's is one: %v, DigiCert's: %v", len(names), names["ISRG Root X1"],
			names["DigiCert Global Root G2"])
	}
}

// machine checks that a binary is for an architecture, whatever the image says, and is static.
func machine(t *testing.T, file, arch string) {
	t.Helper()
	b, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; b.Machine != want {
		t.Errorf("the binary is for %v, want %v", b.Machine, want)
	}
	for _, p := range b.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary is not static: it has %v", p.Type)
		}
	}
}

// listed checks the description of a binary in an SBOM.
func listed(t *testing.T, file, binary string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	type component struct {
		Name, Version, PURL string
		Hashes              []struct{ Alg, Content string }
	}
	bom := parse[struct {
		BOMFormat, SpecVersion string
		Metadata               struct{ Component component }
		Components             []component
	}](t, b)
	content, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	self := bom.Metadata.Component
	if bom.BOMFormat != "CycloneDX" || self.Version != version || len(self.Hashes) != 1 ||
		self.Hashes[0].Content != hex.EncodeToString(sum[:]) {
		t.Errorf("it is about %+v", self)
	}
	gomod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, c := range bom.Components {
		if c.Name == "k8s.io/client-go" || c.Name == "github.com/nats-io/nats.go" {
			found++
			if !strings.Contains(string(gomod), "\t"+c.Name+" "+c.Version+"\n") ||
				c.PURL != "pkg:golang/"+c.Name+"@"+c.Version {
				t.Errorf("%s: %s is not the version in go.mod, or not as %s", c.Name, c.Version, c.PURL)
			}
		}
	}
	if found != 2 || len(bom.Components) < 30 {
		t.Errorf("%d components, %d of 2 that are known", len(bom.Components), found)
	}
}

// execute runs the image: its root mounted read-only, as its user, without any capability, and only
// with its own environment.
func execute(t *testing.T, root string, s *settings) {
	_, err := exec.LookPath("unshare")
	need(t, err == nil && os.Getuid() == 0, "only root can mount the image read-only and run it as another user")
	if s.User != fmt.Sprintf("%d:%d", user, user) {
		t.Fatalf("user %s", s.User)
	}
	for dir := root; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) { // or its user has no access
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const script = `mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec chroot --userspec=65532:65532 "$0" "$@"`
	run := func(code int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "unshare",
			append([]string{"--mount", "sh", "-c", script, root}, args...)...)
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, s.Env...)
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%q ended with code %d, want %d:\n%s", args, got, code, out)
		}
		return string(out)
	}
	agent := s.Entrypoint[0]
	if out := run(0, agent, "version"); !strings.Contains(out, "kubecdc "+version+"\ncommit "+commit+"\n") {
		t.Errorf("version: %s", out)
	}
	if out := run(0, agent, "config", "default"); !strings.Contains(out, "apiVersion: kubecdc.dev/v1") {
		t.Errorf("config default: %s", out)
	}
	// As the image is started, without the file that the chart mounts.
	if out := run(2, append([]string{agent}, s.Cmd...)...); !strings.Contains(out, "/etc/kubecdc/kubecdc.yaml") {
		t.Errorf("without a configuration: %s", out)
	}
	// Without a cluster.
	if out := run(1, agent, "run"); !strings.Contains(out, "kubeconfig") {
		t.Errorf("without a cluster: %s", out)
	}
}
