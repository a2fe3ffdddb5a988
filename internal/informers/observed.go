package informers

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
	"github.com/kubecdc/kubecdc/internal/object"
)

// observed is one watch event's object on its way through the reflector, which asks for no more than its
// resourceVersion and (of a bookmark) its annotations.
type observed struct {
	metav1.Object // nil: the methods that are not overridden are never called

	rv        string
	object    *object.Object // nil for a bookmark
	outside   bool           // no clause takes it; then object has no content, unless it is an answer to a question
	changedBy []byte
	at        int64 // when it was read, in nanoseconds since 1970
}

// GetResourceVersion implements metav1.Object.
func (o *observed) GetResourceVersion() string { return o.rv }

// GetAnnotations implements metav1.Object.
func (*observed) GetAnnotations() map[string]string { return nil }

// GetObjectKind implements runtime.Object.
func (*observed) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. What is observed is immutable.
func (o *observed) DeepCopyObject() runtime.Object { return o }

// reader makes objects of raw JSON. For one goroutine.
type reader struct {
	informer *informer
	scanner  *selection.Scanner
	lean     bool              // of what no clause takes, the content is not wanted
	own      map[string]uint64 // gets the fingerprints of ignored objects of the scope, by namespace/name; nil: not wanted
	out      []byte
	key      []byte

	// prev is the object made before this one. The store may not have it yet, since the reflector takes it while the
	// next one is read; older ones it has.
	prev *object.Object

	// scanned is the metadata of the object that was read last.
	scanned *object.Scanned
}

func (i *informer) newReader() *reader {
	return &reader{informer: i, scanner: i.selection.NewScanner()}
}

// errExcluded says that an object lies in a namespace that every rule leaves out, or is the agent's own.
var errExcluded = errors.New("excluded")

// read strips and packs one object. raw is not kept. withChangedBy: changedBy is wanted (watch events).
func (r *reader) read(raw []byte, withChangedBy bool) (*observed, error) {
	i := r.informer
	out, m, match, err := r.scanner.Scan(r.out[:0], raw)
	if err != nil {
		return nil, err
	}
	r.out, r.scanned = out, m
	o := &observed{at: time.Now().UnixNano(), outside: match.Clause == selection.Outside}
	rv, err := strconv.ParseUint(string(m.ResourceVersion), 10, 64)
	if err != nil || rv == 0 {
		return nil, fmt.Errorf("%w: %s has the resourceVersion %q, which is not a number", apiserver.ErrUnsupported, m.Name, m.ResourceVersion)
	}
	if len(m.UID) == 0 || len(m.Name) == 0 {
		return nil, fmt.Errorf("%w: an object (name %q) has no uid or name", apiserver.ErrUnsupported, m.Name)
	}
	o.rv = string(m.ResourceVersion)
	if match.Excluded {
		return o, errExcluded
	}
	ref, since := i.store.ref(m.Namespace, m.Name, m.UID, match.Clause, &r.key)
	if i.ignored(ref) {
		if r.own != nil && !o.outside {
			r.own[ownName(ref.Namespace(), ref.Name())] = fingerprintOf(ref, rv)
		}
		return o, errExcluded
	}
	if p := r.prev; p != nil && p.Ref.UID == ref.UID && p.Ref.Key == ref.Key {
		if since = p.Managed; p.Ref.Clause == match.Clause {
			ref = p.Ref
		}
	}
	if o.outside && r.lean { // that it is outside is all that matters
		o.object = object.New(ref, rv, m.Managed, nil, nil)
		r.prev = o.object
		return o, nil
	}
	if withChangedBy {
		o.changedBy = m.AppendChangedBy(nil, since)
	}
	o.object = object.New(ref, rv, m.Managed, i.dictionary.codecFor(out), out)
	r.prev = o.object
	if cap(r.out) > 1<<20 {
		r.out = nil // a giant does not stay
	}
	return o, nil
}
