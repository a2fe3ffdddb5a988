package terminal_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// If the output cannot be redrawn, each look is written below the previous one. Text of an agent
// cannot move the cursor.
func TestBoardWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		looks := 0
		ctx, stop := context.WithCancel(t.Context())
		terminal.NewBoard(&terminal.Output{Writer: &b, Color: true}, time.Second,
			func(context.Context) []terminal.Line {
				looks++
				if looks == 3 {
					stop()
				}
				return []terminal.Line{{{Text: "queue "}, {Style: terminal.Red, Text: "full\x1b[2J"}}, nil}
			}).Run(ctx)
		const look = "queue \x1b[31mfull\\x1b[2J\x1b[0m\n\n"
		if got, want := b.String(), look+"\n"+look; got != want || looks != 3 {
			t.Errorf("after %d looks: got %q, want %q", looks, got, want)
		}
	})
}
