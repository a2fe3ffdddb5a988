package publish_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// A file of exactly the limit is read.
func TestFileOfExactlyTheLimitIsRead(t *testing.T) {
	const limit = 4 << 20
	file := filepath.Join(t.TempDir(), "bundle")
	for size, want := range map[int64]bool{limit: true, limit + 1: false} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, size); err != nil {
			t.Fatal(err)
		}
		if data, err := publish.ReadFile(file); (err == nil) != want || want && len(data) != limit {
			t.Errorf("%d of %d bytes are read, error %v", len(data), size, err)
		}
	}
}

// Credentials of 300 MB took 1.2 GB and 41 seconds: a file that is too large is not read whole. The
// error names the file and the limit.
func TestLargeFilesOfSecretsAreNotRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "large")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 64<<20); err != nil {
		t.Fatal(err)
	}
	credentials := &nats.Config{URL: "nats://127.0.0.1:4222", Auth: natsconfig.Auth{CredsFile: file}}
	for name, read := range map[string]func() error{
		"password": func() error {
			_, err := publish.ReadSecret("passwordFile", file)
			return err
		},
		"certificates": func() error {
			_, err := (&publish.TLS{CAFile: file}).Roots()
			return err
		},
		"credentials": func() error {
			_, err := nats.Opener{Config: credentials}.ConnectOptions("bus.nats")
			return err
		},
	} {
		err := read()
		if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "larger than 4 MiB") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
