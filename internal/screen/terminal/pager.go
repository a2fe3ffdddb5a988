package terminal

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// DefaultPager exits at once if the text fits on the screen (F), keeps colours (R), and leaves the
// text on the screen (X).
const DefaultPager = "less -FRX"

// Pager pipes its input to a command that shows it page by page. The first write starts the
// command.
type Pager struct {
	argv   []string
	screen io.Writer // output of the command
	stderr io.Writer

	cmd   *exec.Cmd // nil until it has started
	pipe  io.WriteCloser
	plain bool // the command could not start
}

// NewPager returns an output through a pager if o is a terminal, otherwise o and nil. Without a
// command, it is that of $PAGER.
func NewPager(o *Output, command string, stderr io.Writer) (*Output, *Pager) {
	command = cmp.Or(command, os.Getenv("PAGER"), DefaultPager)
	argv := strings.Fields(command)
	if !o.Interactive || len(argv) == 0 || command == "cat" {
		return o, nil
	}
	p := &Pager{argv: argv, screen: o.Writer, stderr: Unguard(stderr)}
	return &Output{
		Writer:      p,
		Interactive: true,
		Color:       o.Color,
		Width:       o.Width,
		Size:        o.Size,
	}, p
}

// Write implements io.Writer. Its error is EPIPE after the user has quit the pager.
func (p *Pager) Write(text []byte) (int, error) {
	if p.cmd == nil && !p.plain {
		if err := p.start(); err != nil {
			p.plain = true
			if p.argv[0] != strings.Fields(DefaultPager)[0] {
				fmt.Fprintf(p.stderr, "pager %q: %v; --no-pager or another $PAGER avoids this\n",
					strings.Join(p.argv, " "), err)
			}
		}
	}
	if p.plain {
		return p.screen.Write(text)
	}
	return p.pipe.Write(text)
}

func (p *Pager) start() error {
	cmd := exec.Command(p.argv[0], p.argv[1:]...) //nolint:noctx // after Ctrl-C the person still leaves the pager
	cmd.Stdout, cmd.Stderr = p.screen, p.stderr
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.pipe = cmd, pipe
	return nil
}

// Wait closes the pager's input and waits until the user has quit it. Nothing may be written
// afterwards.
func (p *Pager) Wait() {
	if p == nil || p.cmd == nil {
		return
	}
	_ = p.pipe.Close() // the pager may have exited already
	_ = p.cmd.Wait()   // the pager's exit code is not the command's result
	p.cmd, p.plain = nil, true
}
