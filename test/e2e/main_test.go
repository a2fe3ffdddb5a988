package e2e_test

import (
	"flag"
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
	flag.Parse()
	manyAtATime()
	// What client-go has to say about requests that end with their test is of no interest.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	code := m.Run()
	stopShared()
	removeAgent()
	os.Exit(code)
}

// manyAtATime lets more tests run at a time than there are processors, unless somebody has said how many: those that may mostly
// wait, for a Lease that ends.
func manyAtATime() {
	const parallel = "test.parallel"
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == parallel })
	if f := flag.Lookup(parallel); f != nil && !said {
		_ = f.Value.Set("5") // Fails only on what is no number.
	}
}
