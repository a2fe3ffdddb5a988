package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubecdc/kubecdc/internal/pause"
)

// version identifies a document. The zero version stands for none.
type version struct {
	writer string
	save   uint64
}

// save collects the positions, and saves them if they changed by at least least, or if
// resourceVersions moved and the last save is old. If need is not 0, the save of another goroutine
// suffices if its pull has that number or a later one.
func (k *Keeper) save(ctx context.Context, need uint64, least change) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("save the checkpoint: %w", context.Cause(ctx))
	case <-k.failed:
		return k.failedWith()
	case k.saving <- struct{}{}:
	}
	defer func() { <-k.saving }()
	b := newBackoff()
	for {
		k.mu.Lock()
		failure, done := k.failure, need > 0 && k.kept >= need
		k.mu.Unlock()
		if failure != nil || done {
			return failure
		}
		if rest := k.saver.rest(); need > 0 && rest > 0 && pause.For(ctx, rest) != nil {
			return fmt.Errorf("save the checkpoint: %w", context.Cause(ctx))
		}
		err := k.attempt(ctx, least)
		switch {
		case err == nil:
			return nil
		case k.final(err):
			k.fail(err)
			return err
		}
		delay := b.Step()
		if ctx.Err() == nil {
			k.warn(ctx, "save", err, delay)
		}
		if pause.For(ctx, delay) != nil {
			return fmt.Errorf("save the checkpoint: %w: %w", context.Cause(ctx), err)
		}
	}
}

// attempt is one attempt of save.
func (k *Keeper) attempt(ctx context.Context, least change) error {
	logs := k.pullLogs()
	s := &k.saver
	if time.Since(s.last) >= saveQuietEvery {
		least = min(least, moved)
	}
	if least == news && sameLogs(s.logs, logs) {
		what, known := k.glance()
		switch {
		case known && what == moved:
			return nil // not saved: kept stays
		case known && what < moved:
			k.noteSaved()
			return nil
		}
	}
	number, positions := k.pull()
	what := compare(s.durable, positions)
	if !sameLogs(s.logs, logs) {
		what = news
	}
	switch {
	case what >= least:
		began := time.Now()
		k.failing.CompareAndSwap(0, max(1, int64(began.Sub(k.began))))
		err := k.write(ctx, positions, logs)
		s.written = time.Now()
		s.took = s.written.Sub(began)
		if err != nil {
			s.durable = nil // either the old ones or the new ones
			return err
		}
		s.durable = positions
		s.logs = logs
		s.last = time.Now()
		s.saves++
		if !s.failing.IsZero() {
			k.log.Info("the checkpoint is saved again", "where", k.store.String(), "after", time.Since(s.failing))
			s.failing, s.warned = time.Time{}, time.Time{}
		}
	case what >= moved:
		return nil // not saved: kept stays
	}
	k.noteSaved()
	k.mu.Lock()
	k.kept = number
	k.mu.Unlock()
	return nil
}

// noteSaved notes that there is nothing to save.
func (k *Keeper) noteSaved() {
	k.metrics.allSaved()
	k.failing.Store(0)
	k.trouble.Store(nil)
}

// write stores positions and logs. After a conflict it reads the document to find out who has
// written it.
func (k *Keeper) write(ctx context.Context, positions map[string]Position, logs []Log) error {
	s := &k.saver
	for range conflictRounds {
		s.attempts++
		d := Document{
			FormatVersion: FormatVersion,
			Identity:      k.id,
			Writer:        k.writer,
			Save:          s.attempts,
			Saved:         time.Now().UTC().Truncate(time.Second),
			Time:          k.pullTime(),
			Logs:          logs,
			Scopes:        make(map[string]Scope, len(positions)),
		}
		for name, p := range positions {
			d.Scopes[name] = p.Scope
		}
		data, err := d.Encode()
		if err != nil {
			return err
		}
		err = k.store.Save(ctx, data)
		if err == nil {
			k.wrote(&d, len(data))
			return nil
		}
		if !errors.Is(err, ErrConflict) {
			k.metrics.saves.WithLabelValues("error").Inc()
			return err
		}
		k.metrics.saves.WithLabelValues("conflict").Inc()
		// Another client may have changed a label, or the write was our own: a request without an
		// answer may have taken effect.
		there, lookErr := k.look(ctx)
		switch {
		case lookErr != nil:
			return lookErr
		case there == nil && s.base != version{}:
			return k.conflict("it was removed while this agent ran")
		case there == nil:
		case there.Writer == k.writer:
			s.base = version{there.Writer, there.Save}
			if there.Save == s.attempts {
				k.wrote(&d, len(data))
				return nil
			}
		case s.base != version{there.Writer, there.Save}:
			return k.conflict(
				"another agent, or 'kubecdc checkpoint reset', wrote it at " + there.Saved.Format(time.RFC3339) +
					" while this agent ran")
		}
	}
	return fmt.Errorf("%s: other clients keep changing it", k.store)
}

func (k *Keeper) wrote(d *Document, size int) {
	k.saver.base, k.saver.accepted = version{d.Writer, d.Save}, true
	k.metrics.saves.WithLabelValues("ok").Inc()
	k.metrics.bytes.Set(float64(size))
	k.metrics.lastSave.SetToCurrentTime()
	k.lastSaved.Store(time.Now().UnixNano())
}

// conflict returns a more specific error than the store's.
func (k *Keeper) conflict(what string) error {
	return &Error{
		Kind:   ErrConflict,
		Where:  k.store.String(),
		What:   what,
		Remedy: oneAgent,
	}
}

// final reports whether err ends the agent. A refusal does so only before the first successful
// save, while an operator watches the start; later, the store may accept again.
func (k *Keeper) final(err error) bool {
	if errors.Is(err, ErrRefused) {
		return !k.saver.accepted
	}
	e := new(Error)
	return errors.As(err, &e)
}
