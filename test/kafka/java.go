package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// Java runs one of Java's own programs to its end, with the jars of the broker on the class path,
// and returns its output. program is a class name (org.apache.kafka.tools.consumer.ConsoleConsumer)
// or a file of source text. stdin may be nil. An error includes the end of the program's standard
// error.
func (c *Cluster) Java(ctx context.Context, stdin io.Reader, program string, args ...string) ([]byte, error) {
	argv := append(c.in.java(c.nodes[0].tmp(), "-Dfile.encoding=UTF-8"), program)
	argv = append(argv, args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = stdin
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			const most = 4 << 10
			text := bytes.TrimSpace(exit.Stderr)
			err = fmt.Errorf("%w\n%s", err, text[max(0, len(text)-most):])
		}
		return nil, fmt.Errorf("java %s: %w", program, err)
	}
	return out, nil
}
