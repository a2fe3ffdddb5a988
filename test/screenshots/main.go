package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	binary := flag.String("kubecdc", "../bin/kubecdc", "the binary (make build)")
	out := flag.String("out", "../docs/images", "where the images go")
	flag.Parse()
	if err := run(context.Background(), *binary, "screenshots/testdata", *out, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "screenshots:", err)
		os.Exit(1)
	}
}

// run writes every image to the directory out. testdata is where the commands run.
func run(ctx context.Context, binary, testdata, out string, stdout io.Writer) error {
	for _, s := range shots() {
		image, err := s.draw(ctx, binary, testdata)
		if err != nil {
			return fmt.Errorf("%s: %w", s.file, err)
		}
		file := filepath.Join(out, s.file)
		if err := os.WriteFile(file, image, 0o644); err != nil {
			return err
		}
		fmt.Fprintln(stdout, file)
	}
	return nil
}

// shot is one image of one command.
type shot struct {
	file    string
	shown   string   // the command line in the image
	args    []string // of kubecdc
	columns int
	exit    int // the exit code of the command
}

func shots() []shot {
	return []shot{
		{
			file: "tail-diff.svg", shown: "kubecdc tail --diff -n shop",
			args: []string{"tail", "--diff", "-n", "shop", "--bus", "file:edits.jsonl"}, columns: 90,
		},
		{file: "tail.svg", shown: "kubecdc tail", args: []string{"tail", "--bus", "file:shop.jsonl"}, columns: 120},
		{
			file: "config-check.svg", shown: "kubecdc config check kubecdc.yaml",
			args: []string{"config", "check", "kubecdc.yaml"}, columns: 120, exit: 2,
		},
	}
}

// draw runs the command as in a terminal with the given number of columns, and renders its output.
func (s *shot) draw(ctx context.Context, binary, testdata string) ([]byte, error) {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, s.args...)
	cmd.Dir = testdata
	cmd.Env = []string{"CLICOLOR_FORCE=1", fmt.Sprintf("COLUMNS=%d", s.columns), "TZ=UTC", "HOME=/nonexistent"}
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return nil, err
	}
	if got := cmd.ProcessState.ExitCode(); got != s.exit {
		return nil,
			fmt.Errorf("%s: ended with exit code %d instead of %d:\n%s", strings.Join(cmd.Args, " "), got, s.exit,
				output.String())
	}
	lines, err := parse("\x1b[32m$\x1b[0m \x1b[1m" + s.shown + "\x1b[0m\n" + output.String())
	if err != nil {
		return nil, err
	}
	return render(s.shown, lines, s.columns)
}
