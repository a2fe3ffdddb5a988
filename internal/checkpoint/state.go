package checkpoint

import "time"

// State is the state of a checkpoint, for status and probes.
type State struct {
	Where   string
	Saved   time.Time     // of the last save, in this run or an earlier one; zero if there was none
	Unsaved time.Duration // for how long there has been something to save; normally less than 5 s (60 s)
	Failing time.Duration // for how long attempts to save have failed or hung; 0 if the last one succeeded
	Trouble error         // of the last attempt to read or save, nil if it succeeded
}

// State returns the state of the checkpoint. It does not block.
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
