package informer

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/informers/store"
	"github.com/kubecdc/kubecdc/internal/object"
)

// observed is one version of an object as read.
type observed struct {
	rv uint64
	// nil: excluded, because every rule excludes its namespace, or because it is the agent's own
	object    *object.Object
	outside   bool // no clause takes it; then object has no content, unless it answers a question
	changedBy []byte
}

// reader makes objects of raw JSON. It must be used by one goroutine only.
type reader struct {
	informer *Informer
	state    *state // records the progress of a list: the state of informer, unless it reads for another one
	scanner  *selection.Scanner
	lean     bool // omits the content of objects that no clause takes
	live     bool // the objects come from a watch
	// collects the fingerprints of the scope's ignored objects, by namespace/name; nil: it does not
	own map[string]store.Fingerprint
	out []byte
	key []byte

	// unapplied has the versions of a watch that the store may not have yet: those of the current
	// batch, and of the previous one, which the owner applies meanwhile. The store has all older
	// ones.
	unapplied [2][]unapplied

	scanned *object.Scanned // metadata of the last object
}

// unapplied has the parts of a version with which the object's next version is compared.
type unapplied struct {
	ref     *object.Ref
	managed object.Stamp
}

func (i *Informer) newReader() *reader {
	return &reader{informer: i, state: &i.state, scanner: i.selection.NewScanner()}
}

// newBatch starts another batch.
func (r *reader) newBatch() {
	before := r.unapplied[0]
	clear(before)
	r.unapplied = [2][]unapplied{r.unapplied[1], before[:0]}
}

// ref returns the identity, under a clause, of the last object, and the stamp of its previous
// version's managedFields.
func (r *reader) ref(clause uint16) (*object.Ref, object.Stamp) {
	m := r.scanned
	ref, since := r.informer.store.Ref(m.Namespace, m.Name, m.UID, clause, &r.key)
	for _, batch := range r.unapplied {
		for _, v := range batch { // the newest is the last
			if v.ref.UID == ref.UID && v.ref.Key == ref.Key {
				since = v.managed
				if v.ref.Clause == clause {
					ref = v.ref
				}
			}
		}
	}
	return ref, since
}

// versionOf parses the resourceVersion of an object that can be captured.
func versionOf(m *object.Scanned) (uint64, error) {
	rv, err := strconv.ParseUint(string(m.ResourceVersion), 10, 64)
	switch {
	case err != nil, rv == 0:
		return 0,
			fmt.Errorf("%w: %s has the resourceVersion %q, which is not a number", apiserver.ErrUnsupported, m.Name,
				m.ResourceVersion)
	case len(m.UID) == 0, len(m.Name) == 0:
		return 0, fmt.Errorf("%w: an object (name %q) has no uid or name", apiserver.ErrUnsupported, m.Name)
	}
	return rv, nil
}

// read strips and packs one object. It does not keep raw. withChangedBy: the caller needs changedBy
// (watch events).
func (r *reader) read(raw []byte, withChangedBy bool) (o observed, err error) {
	i := r.informer
	out, m, match, err := r.scanner.Scan(r.out[:0], raw)
	if err != nil {
		return o, err
	}
	r.out = out
	r.scanned = m
	o.outside = match.Clause == selection.Outside
	o.rv, err = versionOf(m)
	if err != nil {
		return o, err
	}
	if match.Excluded {
		return o, nil
	}
	ref, since := r.ref(match.Clause)
	if i.deps.Ignored(ref) {
		if r.own != nil && !o.outside {
			r.own[OwnName(ref.Namespace(), ref.Name())] = store.NewFingerprint(ref, o.rv, object.Form(out))
		}
		return o, nil
	}
	if r.live {
		r.unapplied[1] = append(r.unapplied[1], unapplied{ref, m.Managed})
	}
	if o.outside && r.lean { // only the fact that it is outside matters
		o.object = object.New(ref, o.rv, m.Managed, nil, nil)
		return o, nil
	}
	if withChangedBy {
		o.changedBy = m.AppendChangedBy(nil, since)
	}
	o.object = object.NewScanned(ref, o.rv, m, i.dictionary.codecFor(out), out)
	if cap(r.out) > 1<<20 {
		r.out = nil // release the buffer of a huge object
	}
	return o, nil
}

// OwnName returns an object's name in the format of Scope.Ignored.
func OwnName(namespace, name string) string { return namespace + "/" + name }

const (
	// dictionaryObjects is the number of objects in a dictionary. Measured on 200 pods of 20
	// workloads, 5.4 KB each: 2,608 bytes kept per object without one, 698 with one object, 568
	// with eight, 531 with sixteen (docs/decisions/0004).
	dictionaryObjects = 16
	// dictionaryBytes is the limit of what a codec uses of them.
	dictionaryBytes = 64 << 10
)

// dictionary makes the codec of an informer from the first objects that it sees. Until then objects
// are packed without one: a resource with few objects needs none. It is made once: an object keeps
// the codec that packed it.
type dictionary struct {
	codec atomic.Pointer[object.Codec]

	mu      sync.Mutex
	objects int
	samples []byte
}

// codecFor returns the codec with which to pack json. While there is none, it adds json to the
// samples.
func (d *dictionary) codecFor(json []byte) *object.Codec {
	if c := d.codec.Load(); c != nil {
		return c
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.codec.Load() == nil {
		d.objects++
		d.samples = append(d.samples, json[:min(len(json), dictionaryBytes-len(d.samples))]...)
		if d.objects == dictionaryObjects || len(d.samples) == dictionaryBytes {
			d.codec.Store(object.NewCodec(d.samples))
			d.samples = nil
		}
	}
	return d.codec.Load()
}
