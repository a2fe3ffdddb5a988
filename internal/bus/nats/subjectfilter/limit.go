package subjectfilter

import (
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/bus/subject"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Limit is the set of subjects of a reader that may read no others.
type Limit struct {
	subjects []string
	filter   *Filter
}

// NewLimit returns the limit of a reader. template is bus.nats.subject; "" is the default.
func NewLimit(template string, subjects []string) (*Limit, error) {
	f, err := parse(template)
	return &Limit{subjects, f}, err
}

// Reads reports whether the reader may read some of the events of objects, and whether it may read
// all of them. For events of both kinds, some is that of the events of objects. cluster is the only
// one of the events; "": any.
func (l *Limit) Reads(objects []consume.Objects, events consume.Events, cluster string) (some, all bool) {
	all = true
	for _, kind := range []consume.Events{
		consume.ObjectEvents, consume.StreamEvents, consume.ScopeEvents, consume.ProgressEvents,
	} {
		isProgress := kind == consume.ProgressEvents && events != consume.ObjectEvents
		if events != consume.AllEvents && events != kind && !isProgress {
			continue
		}
		wildcards := [][]string{progresses(cluster)}
		if kind != consume.ProgressEvents {
			wildcards = l.filter.wildcards(objects, kind, cluster)
		}
		for _, tokens := range wildcards {
			wanted := strings.Join(tokens, ".")
			all = all && slices.ContainsFunc(l.subjects, func(s string) bool { return subject.Covers(s, wanted) })
			if events != consume.AllEvents || kind == consume.ObjectEvents {
				some = some ||
					slices.ContainsFunc(l.subjects, func(s string) bool { return subject.Overlap(s, wanted) })
			}
		}
	}
	return some, all
}
