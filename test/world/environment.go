package world

import (
	"os"
	"strconv"
	"testing"
)

// EnvUint returns the value of an environment variable, or otherwise if it is not set.
func EnvUint(t testing.TB, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: %v", name, text, err)
	}
	return n
}
