package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Silence is how long a request may wait for its answer, and then for more of it. A kube-apiserver ends a list by itself after 60 s
// (--request-timeout), so its own error comes first. It sends a bookmark on a watch once a minute, but neither bookmarks nor events if
// the watch begins at a resourceVersion that does not exist yet.
const Silence = 150 * time.Second

// limited is the body of an answer with time limits. Silence limits the time until the answer begins, and, if eachRead is set, each Read.
// Another limit applies to the request as a whole. Time in which the caller does not read counts against that one only.
type limited struct {
	eachRead bool

	ctx             context.Context //nolint:containedctx // the request's: its body is read after the call that made it
	end             context.CancelCauseFunc
	silence, within *time.Timer
	body            io.ReadCloser
}

// openLimited calls open, and returns its body with time limits: within is that of the request as a whole.
func openLimited(ctx context.Context, within time.Duration, open func(ctx context.Context) (io.ReadCloser, error)) (*limited, error) {
	ctx, end := context.WithCancelCause(ctx)
	l := &limited{
		ctx: ctx, end: end,
		silence: time.AfterFunc(Silence, func() { end(fmt.Errorf("%w for %v", ErrSilent, Silence)) }),
		within:  time.AfterFunc(within, func() { end(fmt.Errorf("%w within %v", errSlow, within)) }),
	}
	body, err := open(ctx)
	l.silence.Stop()
	if err != nil {
		err = l.limitOr(err)
		l.stop()
		return nil, err
	}
	l.body = body
	return l, nil
}

// Read implements io.Reader.
func (l *limited) Read(b []byte) (int, error) {
	if l.eachRead {
		l.silence.Reset(Silence)
		defer l.silence.Stop()
	}
	n, err := l.body.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = l.limitOr(err)
	}
	return n, err
}

func (l *limited) close() {
	l.stop()
	l.body.Close()
}

func (l *limited) stop() {
	l.silence.Stop()
	l.within.Stop()
	l.end(nil)
}

// limitOr returns the limit that has caused err, or else err.
func (l *limited) limitOr(err error) error {
	if cause := context.Cause(l.ctx); IsUnanswered(cause) {
		return cause
	}
	return err
}
