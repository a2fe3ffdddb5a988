// Command verify checks what goreleaser has made, before anybody gets it:
//
//	verify [--dist ../dist] VERSION
//
// VERSION is without v, as in 1.2.3. It reads dist/release and dist/parts. Each file of the release
// is there once and has the sum that checksums.txt says. Archives have their files, binaries are
// those of the toolchain of go.mod. SBOMs are of these binaries. The image has the binaries of the
// archives, and the chart the version. It writes dist/release/provenance.json: the subjects that
// the workflow attests.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// maxFile bounds what is read of a file in an archive, in bytes.
const maxFile = 512 << 20

func main() {
	dist := flag.String("dist", "../dist", "directory of what was made")
	mod := flag.String("mod", "../go.mod", "file with the toolchain")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: verify [--dist ../dist] VERSION")
		os.Exit(2)
	}
	r := release{
		dist:    *dist,
		mod:     *mod,
		version: flag.Arg(0),
		info:    buildinfo.Read,
	}
	if err := r.verify(); err != nil {
		fmt.Fprintln(os.Stderr, "verify:", err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stdout, "%d files of %s are as they should be\n", len(r.sums), r.version)
}

type release struct {
	dist, mod, version string
	info               func(io.ReaderAt) (*debug.BuildInfo, error) // of a binary

	toolchain string            // as in go1.26.11
	sums      map[string]string // of checksums.txt, sha256 by name
	binaries  map[string]string // sha256 by platform, as in linux_amd64
}

// platforms returns those of the archives, as in linux_amd64.
func platforms() []string {
	return []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64", "windows_amd64", "windows_arm64"}
}

func (r *release) archive(platform string) string {
	ending := ".tar.gz"
	if strings.HasPrefix(platform, "windows") {
		ending = ".zip"
	}
	return "kubecdc_" + r.version + "_" + platform + ending
}

func (r *release) sbom(platform string) string {
	return "kubecdc_" + r.version + "_" + platform + ".cdx.json"
}

func (r *release) chart() string { return "kubecdc-" + r.version + ".tgz" }

// wanted returns the names of all files of the release but checksums.txt and its signature.
func (r *release) wanted() []string {
	names := []string{"kubecdc-image.tar", "kubecdc-linux-amd64.cdx.json", "kubecdc-linux-arm64.cdx.json", r.chart()}
	for _, p := range platforms() {
		names = append(names, r.archive(p), r.sbom(p))
	}
	slices.Sort(names)
	return names
}

func (r *release) verify() error {
	b, err := os.ReadFile(r.mod)
	if err != nil {
		return err
	}
	parsed, err := modfile.Parse(r.mod, b, nil)
	if err != nil {
		return err
	}
	if parsed.Toolchain == nil {
		return fmt.Errorf("%s names no toolchain", r.mod)
	}
	r.toolchain = parsed.Toolchain.Name
	if err := r.verifySums(); err != nil {
		return fmt.Errorf("checksums.txt: %w", err)
	}
	r.binaries = map[string]string{}
	for _, platform := range platforms() {
		if err := r.verifyArchive(platform); err != nil {
			return fmt.Errorf("%s: %w", r.archive(platform), err)
		}
		if err := r.verifySBOM(r.sbom(platform), platform); err != nil {
			return fmt.Errorf("%s: %w", r.sbom(platform), err)
		}
	}
	// Their hashes are those of the binaries in the image: image/build writes them from the files
	// that it copies.
	for _, arch := range []string{"amd64", "arm64"} {
		name := "kubecdc-linux-" + arch + ".cdx.json"
		if err := r.verifySBOM(name, "linux_"+arch); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := r.verifyChart(); err != nil {
		return fmt.Errorf("%s: %w", r.chart(), err)
	}
	return r.writeSubjects()
}

// read returns a file of the release, from where goreleaser or release/parts has written it.
func (r *release) read(name string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(r.dist, "release", name))
	if errors.Is(err, os.ErrNotExist) {
		return os.ReadFile(filepath.Join(r.dist, "parts", name))
	}
	return b, err
}

func (r *release) verifySums() error {
	b, err := r.read("checksums.txt")
	if err != nil {
		return err
	}
	r.sums = map[string]string{}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || r.sums[fields[1]] != "" {
			return fmt.Errorf("a line is no sum, or there twice: %q", line)
		}
		r.sums[fields[1]] = fields[0]
	}
	for _, name := range r.wanted() {
		if r.sums[name] == "" {
			return fmt.Errorf("it lacks %s", name)
		}
	}
	for name, want := range r.sums {
		if !slices.Contains(r.wanted(), name) {
			return fmt.Errorf("it has %s, which is no file of a release", name)
		}
		content, err := r.read(name)
		if err != nil {
			return err
		}
		if got := sum(content); got != want {
			return fmt.Errorf("%s has the sum %s, want %s", name, got, want)
		}
	}
	return nil
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func (r *release) verifyArchive(platform string) error {
	b, err := r.read(r.archive(platform))
	if err != nil {
		return err
	}
	unpack, binary := untar, "kubecdc"
	if strings.HasPrefix(platform, "windows") {
		unpack, binary = unzip, "kubecdc.exe"
	}
	files, err := unpack(b)
	if err != nil {
		return err
	}
	for _, name := range []string{
		binary, "LICENSE", "README.md", "configs/kubecdc.yaml", "man/kubecdc.1",
		"completions/_kubecdc", "completions/kubecdc.bash", "completions/kubecdc.fish", "completions/kubecdc.ps1",
	} {
		if len(files[name]) == 0 {
			return fmt.Errorf("it lacks %s", name)
		}
	}
	info, err := r.info(bytes.NewReader(files[binary]))
	if err != nil {
		return fmt.Errorf("%s: %w", binary, err)
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	built := settings["GOOS"] + "_" + settings["GOARCH"]
	if info.GoVersion != r.toolchain || built != platform || settings["CGO_ENABLED"] != "0" ||
		settings["-trimpath"] != "true" {
		return fmt.Errorf("%s is of %s for %s (CGO_ENABLED=%s, -trimpath=%s); want %s", binary, info.GoVersion, built,
			settings["CGO_ENABLED"], settings["-trimpath"], r.toolchain)
	}
	r.binaries[platform] = sum(files[binary])
	return nil
}

func untar(b []byte) (map[string][]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		files[h.Name], err = io.ReadAll(io.LimitReader(t, maxFile))
		if err != nil {
			return nil, err
		}
	}
}

func unzip(b []byte) (map[string][]byte, error) {
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, f := range z.File {
		content, err := f.Open()
		if err != nil {
			return nil, err
		}
		files[f.Name], err = io.ReadAll(io.LimitReader(content, maxFile))
		if err = errors.Join(err, content.Close()); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// verifySBOM fails if the document is not about the binary of the platform's archive, or lacks the
// standard library.
func (r *release) verifySBOM(name, platform string) error {
	b, err := r.read(name)
	if err != nil {
		return err
	}
	var bom struct {
		BOMFormat string
		Metadata  struct {
			Component struct {
				Version string
				Hashes  []struct{ Alg, Content string }
			}
		}
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(b, &bom); err != nil {
		return err
	}
	self := bom.Metadata.Component
	if bom.BOMFormat != "CycloneDX" || self.Version != r.version || len(self.Hashes) != 1 {
		return fmt.Errorf("it is no CycloneDX document about %s with one hash: %s %s", r.version, bom.BOMFormat,
			self.Version)
	}
	if got, want := self.Hashes[0].Content, r.binaries[platform]; got != want {
		return fmt.Errorf("it is about a binary with the sum %s; that of the archive has %s", got, want)
	}
	has := map[string]string{}
	for _, c := range bom.Components {
		has[c.Name] = c.Version
	}
	if "go"+has["std"] != r.toolchain || has["k8s.io/client-go"] == "" {
		return fmt.Errorf("its standard library is of go%s, want %s, and client-go %q", has["std"], r.toolchain,
			has["k8s.io/client-go"])
	}
	return nil
}

func (r *release) verifyChart() error {
	b, err := r.read(r.chart())
	if err != nil {
		return err
	}
	files, err := untar(b)
	if err != nil {
		return err
	}
	chart := "\n" + string(files["kubecdc/Chart.yaml"])
	for _, line := range []string{"\nversion: " + r.version + "\n", "\nappVersion: " + r.version + "\n"} {
		if !strings.Contains(strings.ReplaceAll(chart, `"`, ""), line) {
			return fmt.Errorf("Chart.yaml lacks %q", strings.TrimSpace(line))
		}
	}
	return nil
}

// writeSubjects writes an in-toto statement with the subjects that actions/attest-build-provenance
// reads from checksums.txt.
func (r *release) writeSubjects() error {
	type subject struct {
		Name   string            `json:"name"`
		Digest map[string]string `json:"digest"`
	}
	statement := struct {
		Type          string    `json:"_type"`
		Subject       []subject `json:"subject"`
		PredicateType string    `json:"predicateType"`
	}{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, name := range r.wanted() {
		statement.Subject = append(statement.Subject, subject{name, map[string]string{"sha256": r.sums[name]}})
	}
	b, err := json.MarshalIndent(statement, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dist, "release", "provenance.json"), append(b, '\n'),
		0o644) //nolint:gosec // Not secret.
}
