package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeAPI is an API server that serves no resources. answer, if not nil, is what it says of
// namespace kube-system.
func fakeAPI(t *testing.T, uid string, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	if answer == nil {
		answer = func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":%q}}`, uid)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/api/v1/namespaces/kube-system", answer)
	mux.HandleFunc("/api", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
	})
	mux.HandleFunc("/api/v1", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"kind":"APIResourceList","groupVersion":"v1","resources":[]}`)
	})
	mux.HandleFunc("/apis", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`)
	})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// refuse answers as an API server does that does not do what it is asked.
func refuse(code int, reason, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d}`,
			reason, message, code)
	}
}

// kubeconfig writes a file whose current context, dev, is an API server.
func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "dev",
"clusters": [{"name": "c", "cluster": {"server": %q}}],
"contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u"}}],
"users": [{"name": "u", "user": {"token": "t0ps3cret"}}]}`, url)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// command is a kubecdc of its own: klog's logger is one for a process.
type command struct {
	process *os.Process
	stderr  *buffer
	ended   chan struct{}
	code    int // once ended is closed
}

// launch starts a command. It ends with the test at the latest.
func launch(t *testing.T, args ...string) *command {
	t.Helper()
	return launchInto(t, nil, nil, args...)
}

// linkKubecdc returns the path of a kubecdc: this process, by a name that TestMain knows.
func linkKubecdc(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	kubecdc := filepath.Join(t.TempDir(), "kubecdc")
	if err := os.Symlink(self, kubecdc); err != nil {
		t.Fatal(err)
	}
	return kubecdc
}

// launchInto is launch with other outputs; nil: none for stdout, what says reads for stderr.
func launchInto(t *testing.T, stdout, stderr *os.File, args ...string) *command {
	t.Helper()
	c := &command{stderr: &buffer{}, ended: make(chan struct{})}
	cmd := exec.Command(linkKubecdc(t), args...)
	cmd.Stderr = c.stderr
	if stdout != nil {
		cmd.Stdout = stdout
	}
	if stderr != nil {
		cmd.Stderr = stderr
	}
	cmd.Env = os.Environ()
	if os.Getenv("XDG_DATA_HOME") == "" { // what it keeps is not kept in the home of who runs the test
		cmd.Env = append(cmd.Env, "XDG_DATA_HOME="+t.TempDir())
	}
	if os.Getenv("XDG_RUNTIME_DIR") == "" { // nor is its socket left in the directory of temporary files
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+t.TempDir())
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c.process = cmd.Process
	go func() {
		defer close(c.ended)
		_ = cmd.Wait() // the exit code says it
		c.code = cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		_ = c.process.Kill() // fails only if it has ended
		<-c.ended
		if strings.Contains(c.stderr.String(), "t0ps3cret") {
			t.Error("a token is on stderr")
		}
	})
	return c
}

// says waits until stderr matches and returns what the pattern's groups matched.
func (c *command) says(t *testing.T, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	deadline, tick := time.NewTimer(30*time.Second), time.NewTicker(5*time.Millisecond)
	defer deadline.Stop()
	defer tick.Stop()
	for {
		if m := re.FindStringSubmatch(c.stderr.String()); m != nil {
			return m
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("nothing matches %q on stderr:\n%s", pattern, c.stderr)
		}
	}
}

// stop is Ctrl-C.
func (c *command) stop() int {
	_ = c.process.Signal(os.Interrupt) // fails only if it has ended
	return c.wait()
}

func (c *command) wait() int {
	<-c.ended
	return c.code
}

// buffer may be read while it is written to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
