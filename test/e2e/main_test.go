package e2e_test

import (
	"fmt"
	"log/slog"
	"os"
	"testing"

	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(asBus); args != "" {
		if err := serveBus(args); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// What client-go has to say about requests that end with their test is of no interest.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	code := m.Run()
	stopShared()
	removeAgent()
	os.Exit(code)
}
