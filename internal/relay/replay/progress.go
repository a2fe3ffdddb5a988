package replay

import (
	"context"
	"fmt"
	"time"

	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/wording"
)

// progressInterval is the interval of progress lines if Options.Stderr is not a terminal.
const progressInterval = 10 * time.Second

// showProgress shows the progress of Run until ctx ends.
func (r *Replay) showProgress(ctx context.Context) {
	out, began := r.o.Stderr, time.Now()
	switch {
	case out == nil:
		return
	case out.Interactive:
		terminal.NewCounter(out, func() (string, bool) { return r.progressText(time.Since(began)), false }).Run(ctx)
		return
	}
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			fmt.Fprintln(out, r.progressText(now.Sub(began)))
		case <-ctx.Done():
			return
		}
	}
}

// progressText returns the progress in one line: number of events, events per second, position in
// the record, and estimated time left.
func (r *Replay) progressText(took time.Duration) string {
	sent := r.sent.Load()
	text := fmt.Sprintf("replay: %s events, %s a second", wording.Count(int(sent)),
		wording.Count(int(float64(sent)/took.Seconds())))
	at := r.at.Load()
	if at == nil {
		return text + ", snapshot"
	}
	text += ", at " + at.Local().Format(time.RFC3339)
	from, to := r.o.From.Time(), r.o.To.Time() // zero if unknown
	if span := to.Sub(from); !from.IsZero() && !to.IsZero() && span > 0 && at.After(from) {
		passed := min(float64(at.Sub(from))/float64(span), 1)
		text += fmt.Sprintf(", %d%%, %s left", int(passed*100),
			time.Duration(float64(took)*(1-passed)/passed).Round(time.Second))
	}
	return text
}
