package process_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/test/process"
)

// FreePort does not return a port again, although nothing listens on it.
func TestFreePortIsGivenOnce(t *testing.T) {
	given := map[int]bool{}
	for range 500 {
		port, err := process.FreePort(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if given[port] {
			t.Fatalf("port %d twice", port)
		}
		given[port] = true
	}
}
