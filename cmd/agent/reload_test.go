package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const reloadBase = "apiVersion: kubecdc.dev/v1\nbus: {stdout: {}}\nserver: {address: \"127.0.0.1:0\"}\n"

// SIGHUP does not end a running agent. The agent applies a changed file, and reports an invalid one
// in all of its interfaces.
func TestRunReloads(t *testing.T) {
	t.Parallel()
	api := fakeAPI(t, "u-1", nil)
	dir := t.TempDir()
	file := filepath.Join(dir, "kubecdc.yaml")
	write := func(more string) {
		t.Helper()
		next := filepath.Join(dir, "next")
		if err := os.WriteFile(next, []byte(reloadBase+more), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, file); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	c := launch(t, "run", "--config", file, "--kubeconfig", kubeconfig(t, api.URL))
	address := c.says(t, `"server_address":"([^"]+)"`)[1]
	c.says(t, `waiting for changes`)
	hup := func() {
		if err := c.process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	hup()
	c.says(t, `the configuration file is equivalent to the one in force: nothing changes`)
	write("watch: [{resources: [pods]}]\nredaction: {secrets: false}\n") // detected without SIGHUP
	c.says(t, `"msg":"the changed configuration is in force".*"changed":\["watch","redaction.secrets"\],"rules":1`)
	c.says(t, `"level":"WARN","msg":"the values of Secrets are sent as they are`)
	write("watch: [{resources: [Pod]}]\n")
	hup()
	c.says(t, `error in the changed configuration.*watch\[0\].resources\[0\]: must be a resource`)

	get := func(path string) string {
		t.Helper()
		response, err := http.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	for path, want := range map[string][]string{
		"/readyz": {
			"[-] config: " + file + " was changed and is rejected, the previous one stays in force: " + file +
				":4:22: watch[0].resources[0]: ",
		},
		"/metrics": {
			"kubecdc_config_last_reload_successful 0", `kubecdc_config_reloads_total{result="applied"} 1`,
			`kubecdc_config_reloads_total{result="refused"} 1`,
			`kubecdc_agent_check_ok{check="config"} 0`, "kubecdc_agent_ready 1",
		},
		"/status": {
			`"problems": [`,
			`"sha256": "` +
				fmt.Sprintf("%x",
					sha256.Sum256([]byte(reloadBase+"watch: [{resources: [pods]}]\nredaction: {secrets: false}\n"))),
		},
	} {
		got := get(path)
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s has no %q:\n%s", path, w, got)
			}
		}
	}
	var stdout bytes.Buffer
	if code := run(t.Context(), []string{"status", "--agent", address}, &stdout, io.Discard); code != exitOK ||
		!strings.Contains(stdout.String(), "config      "+file+", sha256 ") ||
		!strings.Contains(stdout.String(), "; the changed file is rejected for ") {
		t.Errorf("exit code %d:\n%s", code, &stdout)
	}
	if code := c.stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// An invalid key ends the agent at startup. The error does not contain the key.
func TestRunRefusesAKey(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	config := filepath.Join(dir, "kubecdc.yaml")
	if err := os.WriteFile(config, []byte(reloadBase+"redaction: {mode: hash, keyFile: "+key+"}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	api := fakeAPI(t, "u-1", nil)
	for _, c := range []struct{ content, want string }{
		{"", "no such file or directory"},
		{"t0ps3cret\n", "key has 9 bytes"}, // launch fails the test if it is on stderr
		{strings.Repeat("t0ps3cret", 10_000), "is larger than"},
	} {
		if c.content != "" {
			if err := os.WriteFile(key, []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		a := launch(t, "run", "--config", config, "--kubeconfig", kubeconfig(t, api.URL))
		if code := a.wait(); code != exitUsage || !strings.Contains(a.stderr.String(), "redaction.keyFile: ") ||
			!strings.Contains(a.stderr.String(), c.want) {
			t.Errorf("exit code %d, want %d and %q:\n%s", code, exitUsage, c.want, a.stderr)
		}
	}
}

// A value of ${NAME} may be a password. Nothing that the agent logs or serves has a part of it, at
// the start and at a reload. The path of a file that cannot be read is shown.
func TestRunConcealsWhatCameFromTheEnvironment(t *testing.T) {
	const value = "Xq7hunterTwo9Zk"
	t.Setenv("KUBECDC_TEST_VALUE", value)
	api := fakeAPI(t, "u-1", nil)
	file := filepath.Join(t.TempDir(), "kubecdc.yaml")
	write := func(bus, more string) {
		t.Helper()
		text := fmt.Sprintf("apiVersion: kubecdc.dev/v1\nserver: {address: \"127.0.0.1:0\"}\nbus: {%s}\n%s", bus, more)
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	conceals := func(what, text string) {
		t.Helper()
		for i := 0; i+6 <= len(value); i++ {
			if part := value[i : i+6]; strings.Contains(text, part) {
				t.Errorf("%s: %q is in:\n%s", what, part, text)
				return
			}
		}
	}
	for _, bus := range []string{
		`nats: {url: "nats://kubecdc:${KUBECDC_TEST_VALUE}@127.0.0.1:4222"}`,
		`nats: {url: "nats://127.0.0.1:${KUBECDC_TEST_VALUE}"}`,
		`kafka: {brokers: ["kubecdc:${KUBECDC_TEST_VALUE}@127.0.0.1:9092"]}`,
		`http: {url: "https://127.0.0.1:${KUBECDC_TEST_VALUE}/"}`,
		`http: {url: "http://127.0.0.1/", auth: {tokenFile: "${KUBECDC_TEST_VALUE}"}}`,
	} {
		write(bus, "")
		c := launch(t, "run", "--config", file, "--kubeconfig", kubeconfig(t, api.URL))
		if code := c.wait(); code != exitUsage {
			t.Errorf("%s: exit code %d:\n%s", bus, code, c.stderr)
		}
		conceals(bus, c.stderr.String())
	}
	const receives = `http: {url: "http://127.0.0.1:1/hook/${KUBECDC_TEST_VALUE}?key=${KUBECDC_TEST_VALUE}"}`
	write(receives, "")
	c := launch(t, "run", "--config", file, "--kubeconfig", kubeconfig(t, api.URL))
	address := c.says(t, `"server_address":"([^"]+)"`)[1]
	c.says(t, "waiting for changes")
	for _, changed := range []struct{ more, want string }{
		{`watch: [{resources: ["${KUBECDC_TEST_VALUE}"]}]`, `watch\[0\].resources\[0\]: `},
		{`watch: [{resources: [pods], namespaces: ["${KUBECDC_TEST_VALUE}"]}]`, `watch\[0\].namespaces\[0\]: `},
		{`watch: [{resources: [pods], where: "object.${KUBECDC_TEST_VALUE}("}]`, `watch\[0\].where: `},
		{`strip: ["spec[${KUBECDC_TEST_VALUE}"]`, `strip\[0\]: `},
		{`cluster: "prod-${KUBECDC_TEST_VALUE}"`, `cluster: cannot be changed`},
		{`log: {level: "${KUBECDC_TEST_VALUE}"}`, `log.level: `},
	} {
		write(receives, changed.more)
		if err := c.process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		c.says(t, `error in the changed configuration.*`+changed.want)
		for _, path := range []string{"/readyz?verbose", "/status", "/metrics"} {
			response, err := http.Get("http://" + address + path)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			if err := errors.Join(err, response.Body.Close()); err != nil {
				t.Fatal(err)
			}
			conceals(changed.more+" "+path, string(body))
		}
	}
	conceals("the log", c.stderr.String())
}
