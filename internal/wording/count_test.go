package wording_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/wording"
)

func TestCount(t *testing.T) {
	for n, want := range map[int]string{
		0:       "0",
		999:     "999",
		1000:    "1,000",
		12345:   "12,345",
		1234567: "1,234,567",
		-1:      "-1",
		-999:    "-999",
		-1000:   "-1,000",
	} {
		if got := wording.Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
}
