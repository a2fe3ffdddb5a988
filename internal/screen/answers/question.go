package answers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// Question is a question whose answer is printed. Its methods of the same name print the answers of
// answer.Question.
type Question struct {
	answer.Question

	Format printer.Format
	Stdout *terminal.Output
	Stderr *terminal.Output
	Pager  *terminal.Pager // of Stdout; nil without a pager

	saying  sync.Mutex  // the lines about a moment are written together
	display displayLock // of Stderr
}

// New returns a question about the wanted objects of a record.
func New(
	from *record.Record, wanted *record.Selection, format printer.Format, stdout, stderr *terminal.Output,
) *Question {
	q := &Question{Format: format, Stdout: stdout, Stderr: stderr}
	q.Record, q.Wanted = from, wanted
	q.Show = q.showProgress
	return q
}

// displayLock is held by the one Display that a terminal shows at a time. The zero value is not
// held.
type displayLock struct {
	once sync.Once
	free chan struct{}
}

// lock waits for the lock. It returns false if ctx ends before.
func (l *displayLock) lock(ctx context.Context) bool {
	l.once.Do(func() { l.free = make(chan struct{}, 1) })
	select {
	case l.free <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *displayLock) unlock() { <-l.free }

// showProgress calls f. If f takes longer than a second, it shows text at a terminal until that is
// done.
func (q *Question) showProgress(
	ctx context.Context, text func() (line string, done bool), f func(context.Context) error,
) error {
	showing, stop := context.WithCancel(ctx)
	var counter sync.WaitGroup
	counter.Go(func() {
		select {
		case <-time.After(time.Second):
		case <-showing.Done():
			return
		}
		if !q.display.lock(showing) {
			return
		}
		defer q.display.unlock()
		terminal.NewCounter(q.Stderr, text).Run(showing)
	})
	err := f(ctx)
	stop()
	counter.Wait()
	return err
}

// JudgeMoment prints how certain an answer is on standard error. It returns an error if the record
// has none of the requested resources, or if the answer has to be exact and is not.
func (q *Question) JudgeMoment(
	ctx context.Context, m timeline.Moment, scopes []certainty.Scope, r *record.Reading,
) error {
	a := answer.Assess(m, scopes, r)
	if err := q.CheckKnown(ctx, &a, 0); err != nil {
		return err
	}
	q.SayCertainty(&a)
	return q.CheckExact(&a)
}

// SayMoment prints how certain an answer is on standard error.
func (q *Question) SayMoment(m timeline.Moment, scopes []certainty.Scope, r *record.Reading) {
	a := answer.Assess(m, scopes, r)
	q.SayCertainty(&a)
}

// SayCertainty prints the certainty of an answer, and what lowers it. It is safe for concurrent
// use.
func (q *Question) SayCertainty(a *answer.Assessment) {
	q.saying.Lock()
	defer q.saying.Unlock()
	style := terminal.Yellow
	if a.Certainty == certainty.Exact {
		style = terminal.Dim
	}
	if head := a.Head(); head != "" {
		fmt.Fprintf(q.Stderr, "%s\n", q.Stderr.Paint(style, head))
	}
	q.sayLines(a.Reasons())
}

// sayLines prints lines below the certainty.
func (q *Question) sayLines(lines []string) {
	for _, line := range lines {
		fmt.Fprintf(q.Stderr, "  %s\n", line)
	}
}

// printValue prints a value as JSON or YAML, or the text that the template produces.
func (q *Question) printValue(value any) error {
	text, err := q.Format.Encode(value, "    ")
	if err != nil {
		return err
	}
	_, err = q.Stdout.Write(text)
	return err
}
