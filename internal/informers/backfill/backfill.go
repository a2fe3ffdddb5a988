package backfill

import (
	"context"

	"github.com/kubecdc/kubecdc/internal/object"
)

// Asker reads the past of one scope from an API server. It is safe for concurrent use.
type Asker interface {
	// Ask makes one request and returns the answer to q, nil if no object had the name.
	Ask(ctx context.Context, q Question) (*Answer, error)
	// List reads one list at resourceVersion rv. It calls request before the request of each page,
	// and each for every listed object; o is nil if the scope leaves the object out. The metadata m
	// is valid until each returns. An error of either ends the list and is returned.
	List(
		ctx context.Context, rv uint64, request func() error, each func(o *object.Object, m *object.Scanned) error,
	) error
	// Retry calls request until it succeeds, fails permanently (as with apiserver.ErrUnanswerable),
	// or ctx ends, and returns its last error.
	Retry(ctx context.Context, request func(ctx context.Context) error) error
}

// Question asks which object had the name of Ref at a resourceVersion.
type Question struct {
	Ref      *object.Ref
	At       uint64 // resourceVersion, 0: now
	Selected bool   // only an object that matches the selectors of the API server
}

// Answer is one version of an object, as the answer to a Question.
type Answer struct {
	Object   *object.Object
	Managers *object.Scanned // of Object, and nothing else. They become changedBy once the previous version is known.
	// no rule of the scope selects it. An Asker sets it for rules that the agent itself applies.
	Outside bool
}

// Gap is a lost span of history of one scope.
type Gap struct {
	From, To uint64 // resourceVersions: the last known one, and that of the list that ends the gap
	Changed  []Change
}

// Change is a name whose object differs between the beginning of a gap and its end.
type Change struct {
	Key           string
	Before, After *object.Object  // nil: none in the scope
	Managers      *object.Scanned // of After; nil if unknown, and so is its changedBy
}

// Version is one version of a name inside a gap.
type Version struct {
	ResourceVersion uint64         // of the version, or of its deletion
	Object          *object.Object // nil: deleted
	ChangedBy       []byte         // as on a watch event; nil if the previous version is unknown
	Outside         bool           // the selectors of the scope do not match it
}

// Leads reports whether versions lead from one object to another without a contradiction. nil: no
// object.
func Leads(from *object.Object, versions []Version, to *object.Object) bool {
	for k := range versions {
		next := versions[k].Object
		if from == nil && next == nil || from != nil && next != nil && from.Ref.UID != next.Ref.UID {
			return false
		}
		from = next
	}
	return from == to || from != nil && to != nil && sameVersion(from, to)
}

func sameVersion(a, b *object.Object) bool {
	return a.ResourceVersion == b.ResourceVersion && a.Ref.UID == b.Ref.UID
}
