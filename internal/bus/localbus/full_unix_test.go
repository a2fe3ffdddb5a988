//go:build unix

package localbus_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A limit on the size of a file stands in for a full disk. When the write fails, the server gives
// up the stream without a retry. Only a restart helps.
func TestAFailedWriteEndsTheWait(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), clusterA)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// in blocks of 512 or 1024 bytes
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", `ulimit -f 1024 && exec "$0"`, os.Args[0])
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	url := startCommand(t, cmd, dir)
	js, _ := stream(t, url, dir)
	record := make([]byte, 64<<10)
	acknowledged := uint64(0)
	for acknowledged < 100 {
		// Do not retry: the test waits for the failure.
		if _, err := js.Publish(t.Context(), "s.x", record, jetstream.WithRetryAttempts(0)); err != nil {
			break
		}
		acknowledged++
	}
	if acknowledged == 0 || acknowledged == 100 {
		t.Fatalf("%d records were acknowledged", acknowledged)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("ended as if nothing had happened")
	}
	for _, want := range []string{
		"can no longer write to " + dir, "critical write error", "check the disk and its free space",
	} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("%q is not in: %s", want, stderr.String())
		}
	}
	js, s := stream(t, start(t, options(dir)).URL(), dir)
	if got := count(t, s); got != acknowledged {
		t.Errorf("%d of %d records after a new start with room", got, acknowledged)
	}
	publish(t, js, 1)
}
