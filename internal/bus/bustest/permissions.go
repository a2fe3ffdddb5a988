package bustest

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// GuideBlock returns the block after a marker in docs/guides/nats.md: "<!-- a relay -->".
func GuideBlock(tb testing.TB, marker string) string {
	tb.Helper()
	_, file, _, _ := runtime.Caller(0)
	page, err := os.ReadFile(filepath.Join(filepath.Dir(file), "..", "..", "..", "docs", "guides", "nats.md"))
	if err != nil {
		tb.Fatal(err)
	}
	_, block, found := strings.Cut(string(page), "<!-- "+marker+" -->\n```")
	_, block, _ = strings.Cut(block, "\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !closed {
		tb.Fatalf("the guide has no block %q", marker)
	}
	return block
}

// GuideOptions returns a configuration of a server that the guide has, as the server reads it.
func GuideOptions(tb testing.TB, text string) *server.Options {
	tb.Helper()
	file := filepath.Join(tb.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	options, err := server.ProcessConfigFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return options
}

// GuidePermissions returns the permissions after a marker in the guide.
func GuidePermissions(tb testing.TB, marker string) *server.Permissions {
	tb.Helper()
	text := GuideBlock(tb, marker)
	if !strings.HasPrefix(text, "authorization") {
		text = "authorization { users = [{ user: u, password: secret\n" + text + "}] }\n"
	}
	return GuideOptions(tb, text).Users[0].Permissions
}
