package timeline

import "github.com/kubecdc/kubecdc/pkg/consume"

// When a topic grows, the later events of an object may go to another partition. The next snapshot
// then sweeps the object in its old partition, although it exists. And if it was deleted in the new
// one, the sweep must not return its end again. So an end in one log counts only if no other log
// has the object or its end.

// versionsOfGone returns the versions of the objects that an event of a log shows to be gone.
func (f *Fold) versionsOfGone(l *logFold, e *consume.Event, gone []consume.Object) []*Version {
	var out []*Version
	for i := range gone {
		o := &gone[i]
		switch key := (objectKey{o.ClusterKey(), o.Resource, o.UID}); {
		case f.hasMoved(l, key):
		case f.gone[key]:
			f.forgetGone(key)
		default:
			out = append(out, goneOf(*o, e))
		}
	}
	return out
}

// hasMoved reports whether an object that is gone from a log exists in another one.
func (f *Fold) hasMoved(from *logFold, key objectKey) bool {
	if len(f.logs) < 2 {
		return false
	}
	for _, l := range f.logs {
		has := l != from && l.objects.Has(key.cluster, key.resource, key.uid)
		if has && !l.highest(key).isBefore(from.highest(key)) {
			return true
		}
	}
	return false
}

// noteGone notes the end of an object in a log, if another log still has the object.
func (f *Fold) noteGone(in *logFold, v *Version) {
	if len(f.logs) < 2 {
		return
	}
	switch key := v.key(); {
	case !v.Gone():
		delete(f.gone, key)
	case f.isInOther(key, in):
		f.gone[key.clone()] = true
	}
}

// forgetGone removes the end of an object after the last log has swept it.
func (f *Fold) forgetGone(key objectKey) {
	if !f.isInOther(key, nil) {
		delete(f.gone, key)
	}
}

// isInOther reports whether a log other than one has an object.
func (f *Fold) isInOther(key objectKey, one *logFold) bool {
	for _, l := range f.logs {
		if l != one && l.objects.Has(key.cluster, key.resource, key.uid) {
			return true
		}
	}
	return false
}
