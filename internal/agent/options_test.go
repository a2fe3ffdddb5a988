package agent_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/agent"
	"github.com/kubecdc/kubecdc/internal/config"
)

// endless fails a test that reads more than 1 MiB from it.
type endless struct {
	t    *testing.T
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	if e.read > 1<<20 {
		e.t.Fatal("reads without an end")
	}
	return len(p), nil
}

// "kubecdc config check /dev/zero" filled the memory.
func TestConfigurationWithoutAnEndIsRefused(t *testing.T) {
	data, name, err := agent.ReadConfig(&endless{t: t}, "-")
	if err != nil {
		t.Fatal(err)
	}
	const want = "standard input: must not be larger than 256KiB"
	if _, err = config.Parse(data, name); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
