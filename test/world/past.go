package world

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/build"
)

// Past is the API of a record: `kubecdc serve` as a child process.
type Past struct {
	*Process
	URL        string
	Kubeconfig string // the file that the process has written
}

var pastAddress = regexp.MustCompile(`https://[0-9.:]+`)

// ServePast runs `kubecdc serve` with these arguments until the test ends. It must then end with
// exit code 0.
func ServePast(t testing.TB, args ...string) *Past {
	t.Helper()
	args = append([]string{"serve"}, args...)
	cmd := exec.Command(build.SharedAgent(t), args...) //nolint:noctx // It is stopped below.
	cmd.Stderr = os.Stderr
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	cmd.Stdout = w
	p := &Past{}
	p.Process, err = StartProcess(cmd)
	_ = w.Close() // the process has its own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it has ended
		if err := p.Wait(time.Minute); err != nil {
			t.Errorf("kubecdc serve: %v", err)
			p.Kill()
		}
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	_, file, ok := strings.Cut(strings.TrimSpace(line), "=")
	if !ok {
		t.Fatalf("kubecdc serve printed %q", line)
	}
	p.Kubeconfig = file
	raw, err := os.ReadFile(p.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	p.URL = pastAddress.FindString(string(raw))
	return p
}
