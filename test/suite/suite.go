package suite

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/kubecdc/kubecdc/test/process"
)

// alive is the write end of a pipe that the kernel closes when this process ends. Nothing is
// written to it. A variable refers to it, since an os.File without a reference is closed.
var alive *os.File //nolint:unused // Referring to the file is its use.

// removerPID is the id of the process that removes the directory.
var removerPID int

// remover waits for the end of its standard input, which is the end of the test binary, and removes
// the directory $1. Processes that end at the same time may still write to it, so it tries for ten
// seconds.
const remover = `read -r _; i=0; until rm -rf "$1" 2>/dev/null || [ $i -ge 100 ]; do i=$((i+1)); sleep 0.1; done`

// Begin must be the first call of TestMain.
//
// It sets TMPDIR to a new directory, for this process and those that it starts. A child process
// removes the directory when this process ends, because a test binary runs no deferred function and
// no cleanup after a timeout.
//
// It also raises the number of concurrent tests to parallel, unless the flag -parallel is given.
// Go's default is the number of processors, but these tests mostly wait for other processes.
func Begin(parallel int) error {
	return errors.Join(ownTempDir(), process.AdoptOrphans(), atLeast(parallel))
}

func ownTempDir() error {
	// A short name: sockets in directories of tests have paths of at most 107 bytes.
	dir, err := os.MkdirTemp("", "k")
	if err == nil {
		err = os.Chmod(dir, 0o755) // Tests run programs as other users.
	}
	if err != nil {
		return err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()                                                     // The remover has its own copy.
	cmd := exec.Command("/bin/sh", "-c", remover, "sh", dir)               //nolint:noctx // It ends after this process.
	cmd.Stdin, cmd.SysProcAttr = read, &syscall.SysProcAttr{Setpgid: true} // Ctrl-C does not reach it.
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the remover of %s: %w", dir, errors.Join(err, write.Close(), os.Remove(dir)))
	}
	alive, removerPID = write, cmd.Process.Pid
	return os.Setenv("TMPDIR", dir)
}

func atLeast(parallel int) error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	f := flag.Lookup("test.parallel")
	if f == nil {
		return errors.New("this is not a test binary")
	}
	if now, err := strconv.Atoi(f.Value.String()); err != nil || given || now >= parallel {
		return err
	}
	return f.Value.Set(strconv.Itoa(parallel))
}
