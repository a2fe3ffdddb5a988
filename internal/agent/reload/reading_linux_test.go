package reload

import (
	"context"
	"log/slog"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubecdc/kubecdc/internal/config"
)

// A file that is read once, as that of a shell's <(…), is not read again; to wait for its end would
// take for ever.
func TestReloadOfAPipe(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "kubecdc.yaml")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	r := New(Options{
		File: fifo, First: &Loaded{
			Config: config.Default(),
		}, Log: slog.New(slog.DiscardHandler), Level: new(slog.LevelVar),
		Registerer: prometheus.NewRegistry(),
	})
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := r.Run(ctx); err != nil {
		t.Error(err)
	}
	if now := readConfigured(fifo, nil); now.err == nil {
		t.Error("a pipe was read")
	}
}
