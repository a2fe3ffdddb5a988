package replay

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// input reads the events of the selection.
type input struct {
	consume.Reader
	of *Replay
}

func (r *Replay) open(ctx context.Context, q consume.Query) (*input, error) {
	reader, err := r.o.Record.Source.Read(ctx, q)
	if err != nil {
		return nil, err
	}
	return &input{reader, r}, nil
}

// next returns the next event.
func (in *input) next(ctx context.Context) (*consume.Event, error) {
	for {
		e, err := in.Next(ctx)
		var unreadable *consume.RecordError
		var missed *consume.MissedError
		switch {
		case errors.As(err, &unreadable):
			if in.of.o.Selection.MayTake(unreadable.About) {
				in.of.bad[unreadable.Position] = unreadable.About
			}
		case errors.As(err, &missed):
			return nil, fmt.Errorf("%w; the replay cannot continue, because events would be missing", missed)
		case err != nil:
			return nil, err
		}
		if err != nil {
			continue
		}
		if s := in.of.o.Selection; !in.of.o.Record.Seeks() && (s.Cluster == "" || s.Cluster == e.Cluster) {
			in.of.etcds.Note(e)
		}
		if in.of.o.Selection.Takes(e) && (e.Data != nil || e.Stream != nil || e.Progress != nil) {
			return e, nil
		}
	}
}
