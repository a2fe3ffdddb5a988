package answers_test

import (
	"os"
	"testing"
	"time"
)

// TestMain sets the time zone of the terminal before anything reads it: servers of tests do so in
// the background.
func TestMain(m *testing.M) {
	time.Local = time.UTC //nolint:gosmopolitan // as the variable TZ does
	os.Exit(m.Run())
}
