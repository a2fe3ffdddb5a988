package timeline

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Version is one version of an object. An event that is news states it. Or a sweep shows that the
// object is gone, although no event says so.
type Version struct {
	consume.Object
	APIVersion string
	Kind       string
	Cluster    string // its name
	Scope      string // the informer's, if that has a selector; else ""

	// ID is that of the event. "": no event says that the object is gone. Then Op is Deleted and
	// Inferred is true: a snapshot does not have the object, another object has its name, or its
	// deletion is among the dead letters.
	ID              string
	Op              consume.Op
	Time            time.Time
	ResourceVersion string
	History         uint32
	ChangedBy       []consume.Change
	Inferred        bool
	Skipped         int // versions that filters withheld before it
	// Again: a snapshot has read the known version again, because it may have another form (a gap
	// of reason content-changed).
	Again bool

	// After is the object, nil if it is gone, has left, or is not in the event (Truncated has
	// "after").
	After json.RawMessage
	// Truncated has the parts that the event leaves out, and DataRef a URI of the whole event, as
	// in consume.Event. A caller that needs the whole event fetches it before it adds the event
	// (fromnats.Whole), or later for the few versions that it shows.
	Truncated []string
	DataRef   string
	// SaysRedacted is Data.Redacted: whether the event says that values of After are redacted.
	SaysRedacted *bool

	// Before, Patch and PreviousResourceVersion are as in consume.Data. A State does not keep them.
	Before, Patch           json.RawMessage
	PreviousResourceVersion string
}

// Gone reports whether the object is not in the state after this version: it was deleted, or left
// the selection.
func (v *Version) Gone() bool { return v.Op == consume.Deleted || v.Op == consume.Left }

// Point returns the resourceVersion of the version as a moment.
func (v *Version) Point() Moment { return AtVersion(number(v.ResourceVersion), v.History) }

// isNull reports whether a member of the data is absent or null.
func isNull(raw json.RawMessage) bool { return len(raw) == 0 || raw[0] == 'n' }

func versionOf(e *consume.Event) *Version {
	d := e.Data
	v := &Version{
		Object: consume.Object{
			Source:     e.Source,
			ClusterUID: e.ClusterUID,
			Resource:   e.GroupResource(),
			Namespace:  e.Namespace,
			Name:       e.Name,
			UID:        e.UID,
		},
		APIVersion:              e.APIVersion,
		Kind:                    e.Kind,
		Cluster:                 e.Cluster,
		Scope:                   e.Scope,
		ID:                      e.ID,
		Op:                      e.Op,
		Time:                    e.Time,
		ResourceVersion:         e.ResourceVersion,
		History:                 e.History(),
		ChangedBy:               d.ChangedBy,
		Inferred:                d.Inferred,
		Skipped:                 d.Skipped,
		Truncated:               d.Truncated,
		DataRef:                 e.DataRef,
		SaysRedacted:            d.Redacted,
		Patch:                   d.Patch,
		PreviousResourceVersion: d.PreviousResourceVersion,
	}
	if !isNull(d.After) {
		v.After = d.After
	}
	if !isNull(d.Before) {
		v.Before = d.Before
	}
	return v
}

// goneOf returns the version of an object that e shows to be gone, although no event says so.
func goneOf(o consume.Object, e *consume.Event) *Version {
	v := &Version{
		Object:          o,
		APIVersion:      e.APIVersion,
		Kind:            e.Kind,
		Cluster:         e.Cluster,
		Op:              consume.Deleted,
		Inferred:        true,
		Time:            e.Time,
		ResourceVersion: e.ResourceVersion,
		History:         e.History(),
	}
	if s := e.Stream; s != nil {
		v.ResourceVersion = s.ResourceVersion
		if s.DeadLetter != "" {
			v.ResourceVersion = s.ToResourceVersion
		}
	}
	return v
}

// compact returns a copy of the version as a State keeps it. The copy shares no memory with an
// event.
func (v *Version) compact(intern func(string) string) *Version {
	c := *v
	c.Before = nil
	c.Patch = nil
	c.PreviousResourceVersion = ""
	c.After = slices.Clone(v.After)
	for _, s := range []*string{
		&c.Source, &c.Resource, &c.Namespace, &c.APIVersion, &c.Kind, &c.Cluster, &c.ClusterUID, &c.Scope,
	} {
		*s = intern(*s)
	}
	return &c
}
