package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// apiWithConfigMaps returns an API server with ten ConfigMaps of 100 KB, which never change.
func apiWithConfigMaps(t *testing.T) *httptest.Server {
	t.Helper()
	items := make([]string, 10)
	for i := range items {
		items[i] = fmt.Sprintf(
			`{"metadata":{"name":"c%d","namespace":"default","uid":"u%d","resourceVersion":"%d"},"data":{"k":%q}}`, i,
			i, i+1, strings.Repeat("x", 100_000))
	}
	list := `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[` +
		strings.Join(items, ",") + `]}`
	base := fakeAPI(t, uidA, nil)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/api/v1":
			fmt.Fprint(w,
				`{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","singularName":"configmap","namespaced":true,"kind":"ConfigMap","verbs":["get","list","watch"]}]}`)
		case "/api/v1/configmaps":
			if r.URL.Query().Get("watch") == "" {
				fmt.Fprint(w, list)
				return
			}
			if r.URL.Query().Has("sendInitialEvents") {
				w.WriteHeader(http.StatusUnprocessableEntity)
				fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
				return
			}
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			base.Config.Handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.CloseClientConnections)
	t.Cleanup(s.Close)
	return s
}

// A reader that has stopped reading, such as a stopped terminal, must not keep the agent from
// ending. This holds whether it blocks the records alone or the log too.
func TestStdoutThatNobodyReadsEndsWithTheGrace(t *testing.T) {
	for _, logs := range []bool{false, true} {
		t.Run(fmt.Sprintf("log too %t", logs), func(t *testing.T) {
			t.Parallel()
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			var stderr *os.File
			if logs {
				stderr = w
			}
			dir := t.TempDir()
			file, checkpoint := filepath.Join(dir, "kubecdc.yaml"), filepath.Join(dir, "checkpoint.json")
			content := fmt.Sprintf(`apiVersion: kubecdc.dev/v1
watch: [{resources: [configmaps]}]
bus: {stdout: {}}
checkpoint: {file: {path: %q}}
server: {address: "127.0.0.1:0"}
log: {level: debug}
`, checkpoint)
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			c := launchInto(t, w, stderr, "run", "--config", file, "--grace", "2s", "--kubeconfig",
				kubeconfig(t, apiWithConfigMaps(t).URL))
			waitUntil(t, func() bool { return full(t, r) && exists(checkpoint) })
			told := time.Now()
			if err := c.process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			select {
			case <-c.ended:
			case <-time.After(30 * time.Second):
				t.Fatalf("still there 30 s after SIGTERM:\n%s", c.stderr)
			}
			t.Logf("ended %v after SIGTERM", time.Since(told))
			if c.code != exitFailed {
				t.Errorf("exit code %d, want %d: not all is on the bus", c.code, exitFailed)
			}
			if want := "the grace period is over: the bus has not acknowledged"; !logs &&
				!strings.Contains(c.stderr.String(), want) {
				t.Errorf("%q is not in:\n%s", want, c.stderr)
			}
			if saved, err := os.ReadFile(checkpoint); err != nil || !strings.Contains(string(saved), "configmaps") {
				t.Errorf("checkpoint: %v, %s", err, saved)
			}
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// full reports whether a pipe holds about as much as it can (64 KiB).
func full(t *testing.T, r *os.File) bool {
	t.Helper()
	n, err := unix.IoctlGetInt(int(r.Fd()), unix.TIOCINQ)
	if err != nil {
		t.Fatal(err)
	}
	return n > 60_000
}
