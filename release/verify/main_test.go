package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

const version = "1.2.3"

// made is a release: files by name. Its binaries are texts that fakeInfo reads.
type made map[string][]byte

func fakeInfo(r io.ReaderAt) (*debug.BuildInfo, error) {
	b, err := io.ReadAll(io.NewSectionReader(r, 0, 1<<20))
	if err != nil {
		return nil, err
	}
	f := strings.Fields(string(b))
	if len(f) != 4 {
		return nil, fmt.Errorf("no binary of Go: %q", b)
	}
	return &debug.BuildInfo{GoVersion: f[0], Settings: []debug.BuildSetting{
		{Key: "GOOS", Value: f[1]}, {Key: "GOARCH", Value: f[2]}, {Key: "CGO_ENABLED", Value: f[3]}, {
			Key:   "-trimpath",
			Value: "true",
		},
	}}, nil
}

// binary is that of a platform, as in linux_amd64.
func binary(platform string) []byte {
	return []byte("go1.26.11 " + strings.Replace(platform, "_", " ", 1) + " 0")
}

func archive(t *testing.T, name string, binary []byte, without string) []byte {
	t.Helper()
	files := map[string][]byte{"kubecdc": binary}
	if strings.HasSuffix(name, ".zip") {
		files = map[string][]byte{"kubecdc.exe": binary}
	}
	for _, name := range []string{
		"LICENSE", "README.md", "configs/kubecdc.yaml", "man/kubecdc.1",
		"completions/_kubecdc", "completions/kubecdc.bash", "completions/kubecdc.fish", "completions/kubecdc.ps1",
	} {
		files[name] = []byte("text")
	}
	delete(files, without)
	return pack(t, name, files)
}

func pack(t *testing.T, name string, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	var errs []error
	if strings.HasSuffix(name, ".zip") {
		z := zip.NewWriter(&b)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			w, err := z.Create(name)
			if err == nil {
				_, err = w.Write(files[name])
			}
			errs = append(errs, err)
		}
		errs = append(errs, z.Close())
	} else {
		z := gzip.NewWriter(&b)
		w := tar.NewWriter(z)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			errs = append(errs, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}))
			_, err := w.Write(files[name])
			errs = append(errs, err)
		}
		errs = append(errs, w.Close(), z.Close())
	}
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func sbom(version, std string, of []byte) []byte {
	return fmt.Appendf(nil,
		`{"bomFormat":"CycloneDX","metadata":{"component":{"version":%q,"hashes":[{"alg":"SHA-256","content":%q}]}},
		"components":[{"name":"std","version":%q},{"name":"k8s.io/client-go","version":"v0.37.2"}]}`, version, sum(of),
		std)
}

func chart(t *testing.T, version, app string) []byte {
	t.Helper()
	return pack(t, "x.tgz", map[string][]byte{
		"kubecdc/Chart.yaml": fmt.Appendf(nil, "appVersion: %q\nname: kubecdc\nversion: %s\n", app, version),
	})
}

// good is a release as it should be.
func good(t *testing.T) made {
	t.Helper()
	r := release{version: version}
	m := made{"kubecdc-image.tar": []byte("image"), r.chart(): chart(t, version, version)}
	for _, p := range platforms() {
		m[r.archive(p)] = archive(t, r.archive(p), binary(p), "")
		m[r.sbom(p)] = sbom(version, "1.26.11", binary(p))
	}
	for _, arch := range []string{"amd64", "arm64"} {
		m["kubecdc-linux-"+arch+".cdx.json"] = sbom(version, "1.26.11", binary("linux_"+arch))
	}
	return m
}

// write writes the files, as goreleaser and release/parts do, and checksums.txt.
func (m made) write(t *testing.T) *release {
	t.Helper()
	r := &release{dist: t.TempDir(), version: version, info: fakeInfo}
	r.mod = filepath.Join(r.dist, "go.mod")
	files := map[string][]byte{"go.mod": []byte("module x\n\ngo 1.26.0\n\ntoolchain go1.26.11\n")}
	sums := ""
	for name, content := range m {
		place := "release/"
		if strings.HasPrefix(name, "kubecdc-") { // the image and its SBOMs, the chart
			place = "parts/"
		}
		files[place+name] = content
		sums += sum(content) + "  " + name + "\n"
	}
	files["release/checksums.txt"] = []byte(sums)
	for name, content := range files {
		path := filepath.Join(r.dist, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestGoodReleasePasses(t *testing.T) {
	m := good(t)
	r := m.write(t)
	if err := r.verify(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(r.dist, "release", "provenance.json"))
	if err != nil {
		t.Fatal(err)
	}
	var statement struct {
		Type    string `json:"_type"`
		Subject []struct {
			Name   string
			Digest struct{ SHA256 string }
		}
	}
	if err := json.Unmarshal(b, &statement); err != nil {
		t.Fatal(err)
	}
	attested := map[string]string{}
	for _, s := range statement.Subject {
		attested[s.Name] = s.Digest.SHA256
	}
	for name, content := range m {
		if attested[name] != sum(content) {
			t.Errorf("%s is attested with %q", name, attested[name])
		}
	}
	if len(attested) != len(m) || len(m) != 16 || statement.Type != "https://in-toto.io/Statement/v1" {
		t.Errorf("%d subjects for %d files, %s", len(attested), len(m), statement.Type)
	}
}

func TestBadReleaseIsRefused(t *testing.T) {
	const linux, windows = "kubecdc_1.2.3_linux_amd64", "kubecdc_1.2.3_windows_arm64"
	for want, damage := range map[string]func(m made){
		"checksums.txt: it lacks kubecdc_1.2.3_darwin_arm64.tar.gz": func(m made) {
			delete(m, "kubecdc_1.2.3_darwin_arm64.tar.gz")
		},
		"checksums.txt: it lacks kubecdc-image.tar": func(m made) { delete(m, "kubecdc-image.tar") },
		"checksums.txt: it has kubecdc_1.2.3_linux_386.tar.gz": func(m made) {
			m["kubecdc_1.2.3_linux_386.tar.gz"] = nil
		},
		linux + ".tar.gz: it lacks LICENSE": func(m made) {
			m[linux+".tar.gz"] = archive(t, ".tar.gz", binary("linux_amd64"), "LICENSE")
		},
		windows + ".zip: it lacks kubecdc.exe": func(m made) {
			m[windows+".zip"] = archive(t, ".zip", nil, "")
		},
		linux + ".tar.gz: kubecdc is of go1.26.8 for linux_amd64": func(m made) {
			m[linux+".tar.gz"] = archive(t, ".tar.gz", []byte("go1.26.8 linux amd64 0"), "")
		},
		linux + ".tar.gz: kubecdc is of go1.26.11 for linux_arm64": func(m made) {
			m[linux+".tar.gz"] = archive(t, ".tar.gz", binary("linux_arm64"), "")
		},
		"CGO_ENABLED=1": func(m made) {
			m[linux+".tar.gz"] = archive(t, ".tar.gz", []byte("go1.26.11 linux amd64 1"), "")
		},
		linux + ".cdx.json: it is about a binary with the sum": func(m made) {
			m[linux+".cdx.json"] = sbom(version, "1.26.11", []byte("x"))
		},
		linux + ".cdx.json: its standard library is of go1.26.8": func(m made) {
			m[linux+".cdx.json"] = sbom(version, "1.26.8", binary("linux_amd64"))
		},
		linux + ".cdx.json: it is no CycloneDX document about 1.2.3": func(m made) {
			m[linux+".cdx.json"] = sbom("1.2.2", "1.26.11", binary("linux_amd64"))
		},
		"kubecdc-linux-arm64.cdx.json: it is about a binary with the sum": func(m made) {
			m["kubecdc-linux-arm64.cdx.json"] = sbom(version, "1.26.11", binary("linux_amd64"))
		},
		`kubecdc-1.2.3.tgz: Chart.yaml lacks "version: 1.2.3"`: func(m made) {
			m["kubecdc-1.2.3.tgz"] = chart(t, "0.1.0", version)
		},
		`kubecdc-1.2.3.tgz: Chart.yaml lacks "appVersion: 1.2.3"`: func(m made) {
			m["kubecdc-1.2.3.tgz"] = chart(t, version, "0.1.0")
		},
	} {
		t.Run(want, func(t *testing.T) {
			m := good(t)
			damage(m)
			r := m.write(t)
			if err := r.verify(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v", err)
			}
			if _, err := os.Stat(filepath.Join(r.dist, "release", "provenance.json")); err == nil {
				t.Error("its files would be attested")
			}
		})
	}
	t.Run("changed after the sums", func(t *testing.T) {
		r := good(t).write(t)
		if err := os.WriteFile(filepath.Join(r.dist, "parts", "kubecdc-image.tar"), []byte("other"),
			0o644); err != nil {
			t.Fatal(err)
		}
		if err := r.verify(); err == nil || !strings.Contains(err.Error(), "kubecdc-image.tar has the sum") {
			t.Errorf("got %v", err)
		}
	})
}
