package terminal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
)

// Confirm asks a person for confirmation. Without a terminal, the call itself counts as
// confirmation. Ctrl-C means no.
func Confirm(ctx context.Context, question string, stdin io.Reader, stderr io.Writer) bool {
	in, ok := stdin.(*os.File)
	if !ok || !Detect(in, os.Getenv).Interactive || !Detect(stderr, os.Getenv).Interactive {
		return true
	}
	fmt.Fprintf(stderr, "%s [y/N] ", question)
	// A read from a terminal cannot be interrupted: after Ctrl-C, it ends with the process.
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n') // an unread line is not a yes
		lines <- line
	}()
	select {
	case line := <-lines:
		answer := strings.ToLower(strings.TrimSpace(line))
		return answer == "y" || answer == "yes"
	case <-ctx.Done():
		fmt.Fprintln(stderr)
		return false
	}
}
