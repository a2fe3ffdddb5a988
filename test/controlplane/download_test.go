package controlplane_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha512"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/controlplane"
)

// envtestArchive is an archive like those of envtest, with programs that do nothing, and its sum.
func envtestArchive(t *testing.T) (archive []byte, sum string) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} {
		noise := make([]byte, 256<<10) // so that the archive is sent in many parts
		_, _ = rand.Read(noise)
		content := "#!/bin/sh\nexit 0\n" + hex.EncodeToString(noise)
		if err := w.WriteHeader(&tar.Header{
			Name:     "controller-tools/envtest/" + name,
			Mode:     0o755,
			Size:     int64(len(content)),
			Typeflag: tar.TypeReg,
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	s := sha512.Sum512(b.Bytes())
	return b.Bytes(), hex.EncodeToString(s[:])
}

// TestDownload takes binaries with the real setup-envtest from servers that serve the archive,
// serve it slowly, hang, serve another file, or have none.
func TestDownload(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles setup-envtest, which takes seconds")
	}
	archive, sum := envtestArchive(t)
	dir := t.TempDir()
	tool, err := controlplane.CompileSetupEnvtest(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	compiled := func(context.Context, string) (string, error) { return tool, nil }
	const limit = 2 * time.Second
	whole := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) }
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		err   string
	}{
		"serves": {serve: whole},
		"serves slowly, for longer than the limit": {serve: func(w http.ResponseWriter, r *http.Request) {
			for part := archive; len(part) > 0; {
				n := min(len(part), len(archive)/8+1)
				_, _ = w.Write(part[:n])
				_ = http.NewResponseController(w).Flush()
				part = part[n:]
				select {
				case <-time.After(limit / 4):
				case <-r.Context().Done():
				}
			}
		}},
		"hangs before the answer": {err: "no progress for 2s", serve: func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
		}},
		"hangs in the middle": {err: "no progress for 2s", serve: func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(archive[:len(archive)/2])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}},
		"serves another file": {err: "checksum mismatch", serve: func(w http.ResponseWriter, _ *http.Request) {
			other, _ := envtestArchive(t)
			_, _ = w.Write(other)
		}},
		"serves a part": {err: "checksum mismatch", serve: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(archive[:len(archive)/2])
		}},
		"has none": {err: "404", serve: http.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				c.serve(w, r)
			}))
			defer server.Close()
			cache := t.TempDir()
			var said bytes.Buffer
			start := time.Now()
			for range 2 { // the second time, nothing is downloaded
				found, err := controlplane.DownloadFrom(t.Context(), &said, cache, "1.2.3", sum,
					server.URL+"/envtest.tar.gz", limit, compiled)
				if c.err != "" {
					if err == nil || !strings.Contains(err.Error(), c.err) {
						t.Errorf("got %v, want %q", err, c.err)
					}
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if found.HasControllerManager() || !found.HasKubectl() {
					t.Errorf("controller manager %t, kubectl %t", found.HasControllerManager(), found.HasKubectl())
				}
				if out, err := exec.CommandContext(t.Context(),
					filepath.Join(found.Dir(), "etcd")).CombinedOutput(); err != nil {
					t.Errorf("etcd: %v\n%s", err, out)
				}
			}
			if strings.HasPrefix(c.err, "no progress") && time.Since(start) < limit {
				t.Errorf("it was given up after %s", time.Since(start))
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("asked %d times for the archive", n)
			}
			if lines := strings.Count(said.String(), "\n"); lines != 1 ||
				!strings.Contains(said.String(), "downloading etcd and kube-apiserver 1.2.3 from 127.0.0.1:") {
				t.Errorf("it said in %d lines:\n%s", lines, &said)
			}
			left, err := os.ReadDir(cache)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range left {
				if strings.HasSuffix(e.Name(), ".tmp") ||
					e.IsDir() != (c.err == "") && !strings.HasSuffix(e.Name(), ".lock") {
					t.Errorf("left: %s", e.Name())
				}
			}
		})
	}
	t.Run("a platform without a sum", func(t *testing.T) {
		if _, err := controlplane.DownloadFrom(t.Context(), t.Output(), t.TempDir(), "1.2.3", "", "http://127.0.0.1:1/",
			limit, compiled); err == nil {
			t.Error("it is downloaded without a check")
		}
	})
	t.Run("Ctrl-C", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			stop()
			<-r.Context().Done()
		}))
		defer server.Close()
		cache := t.TempDir()
		if _, err := controlplane.DownloadFrom(ctx, t.Output(), cache, "1.2.3", sum, server.URL, time.Hour,
			compiled); err == nil || ctx.Err() == nil {
			t.Errorf("got %v", err)
		}
		if left, err := filepath.Glob(filepath.Join(cache, "*.tmp")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}

// TestPinnedSums: a sum of the wrong length would make each download fail.
func TestPinnedSums(t *testing.T) {
	seen := map[string]bool{}
	for platform, sum := range controlplane.EnvtestSums {
		if b, err := hex.DecodeString(sum); err != nil || len(b) != sha512.Size || seen[sum] {
			t.Errorf("%s: %d bytes, %v", platform, len(b), err)
		}
		seen[sum] = true
	}
	for _, platform := range []string{"linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64"} {
		if controlplane.EnvtestSums[platform] == "" {
			t.Errorf("no sum for %s", platform)
		}
	}
}
