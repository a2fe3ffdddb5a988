package localbus_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubecdc/kubecdc/internal/bus/localbus"
)

// asAgent makes this test binary a process with a local bus in the directory that it names.
const asAgent = "KUBECDC_LOCALBUS_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asAgent); dir != "" {
		if err := runAgent(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// runAgent prints the bus's URL and runs until the end of stdin, that is, of its parent, or of its
// store.
func runAgent(dir string) error {
	b, err := localbus.Start(context.Background(), localbus.Options{
		Dir:     dir,
		Cluster: clusterA,
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	fmt.Println(b.URL())
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end, too
	}()
	return errors.Join(b.Wait(ctx), b.Close())
}
