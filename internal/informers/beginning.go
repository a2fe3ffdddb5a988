package informers

import (
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
)

// beginning is what an informer begins from: a position, or a creation. If it has neither, it
// begins with the objects that exist.
type beginning struct {
	origin  *informer.Origin // nil: none
	created creation
}

// creation is the creation of a resource or namespace. The zero value stands for an unknown one.
type creation struct {
	rv uint64    // the resource or namespace had no object before
	at time.Time // when the creation was seen
}

// heritage has all that an informer may begin from.
type heritage struct {
	own     *informer.Origin  // the position of its scope, from the last run or an earlier informer; nil: none
	created creation          // of its resource, or of its namespace
	left    []informer.Origin // the positions of other scopes of its resource, from which no informer begins
	unbegun []creation        // unused creations of informers that ended before their first list
}

// choose returns the beginning:
//
//   - The own position, unless consumers may have received left events of the scope. These have
//     later resourceVersions than the position. Only the reads of a new list are later still.
//   - Otherwise the lowest position of another scope: the selection was changed. So no change of an
//     object that both scopes select is lost. A position does not count if the history before it is
//     unknown, or if left events may have followed it.
//   - Otherwise the latest creation.
func (h *heritage) choose() beginning {
	if h.own != nil && !isAnnounced(h.own) {
		return beginning{origin: h.own}
	}
	var lowest *informer.Origin
	for k := range h.left {
		c := &h.left[k]
		if c.Lost == nil && !isAnnounced(c) && (lowest == nil || c.ResourceVersion < lowest.ResourceVersion) {
			lowest = c
		}
	}
	if lowest != nil {
		return beginning{origin: &informer.Origin{Scope: lowest.Scope, Inherited: true}}
	}
	var b beginning
	if h.own == nil {
		b.created = h.created
	}
	for _, c := range h.unbegun {
		if c.rv > b.created.rv {
			b.created = c
		}
	}
	return b
}

// isAnnounced reports whether consumers may have received left events of a scope.
func isAnnounced(c *informer.Origin) bool { return c.Retiring != nil && c.Retiring.Announced }
