//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
)

// Another user of the machine can neither write to the record of a kubecdc without configuration,
// nor purge it, nor read it.
func TestOtherUsersOfTheMachineReachNoRecord(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	dir := t.TempDir()
	c := launch(t, "run", "--kubeconfig", kubeconfig(t, fakeAPI(t, uidA, nil).URL), "--data-dir",
		filepath.Join(dir, "data"))
	found := c.says(t, listens)
	c.says(t, "connected to bus")

	// The attacker can enter all directories above the data.
	for parent := dir; parent != os.TempDir() && parent != "/"; parent = filepath.Dir(parent) {
		if err := os.Chmod(parent, 0o755); err != nil { //nolint:gosec // the test is about other users
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "attack")
	self, err := os.ReadFile(os.Args[0])
	if err = errors.Join(err, os.WriteFile(binary, self, 0o755)); err != nil { //nolint:gosec // another user runs it
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Dir = "/"
	cmd.Env = []string{asStranger + "=" + found[1] + " " + found[2]}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	if len(out) > 0 {
		t.Errorf("user %d:\n%s", stranger, out)
	}
	if !strings.Contains(stderr.String(), "Authorization Violation") {
		t.Errorf("the attack shows nothing: %s", &stderr)
	}

	// The owner's clients read it.
	token := tokenOf(t, found[2])
	if _, err := connect(t, found[1], nats.Token(token)).Stream(t.Context(), "KUBECDC"); err != nil {
		t.Error(err)
	}
	if code := c.stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(c.stderr.String(), token) {
		t.Error("the token is in the log")
	}
}
