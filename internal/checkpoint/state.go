package checkpoint

import "time"

// State is how a checkpoint is, for people and probes.
type State struct {
	Where   string
	Saved   time.Time     // when it was saved last, by this run or the one before; zero: never
	Unsaved time.Duration // for how long there has been something to save, short of 5 s (60 s) where all is well
	Failing time.Duration // for how long attempts to save have failed or hung, 0: the last one succeeded
	Trouble error         // why it could not be read or saved the last time, nil: it could
}

// State is how the checkpoint is. It does not block.
func (k *Keeper) State() State {
	s := State{Where: k.store.String(), Unsaved: k.metrics.unsaved()}
	if at := k.lastSaved.Load(); at != 0 {
		s.Saved = time.Unix(0, at)
	}
	if at := k.failing.Load(); at != 0 {
		s.Failing = max(0, time.Since(k.began)-time.Duration(at))
	}
	if err := k.trouble.Load(); err != nil {
		s.Trouble = *err
	}
	return s
}
