package encode

import (
	"strconv"
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
)

const (
	objectSchema = "https://kubecdc.dev/schema/object/v1"
	streamSchema = "https://kubecdc.dev/schema/stream/v1"
)

// put adds an attribute whose value has been appended to ev.values, with values as the result, and
// returns the value. Empty attributes are omitted.
func (ev *Event) put(name string, values []byte) []byte {
	value := values[len(ev.values):len(values):len(values)]
	ev.values = values
	if len(value) > 0 {
		ev.attributes = append(ev.attributes, Attribute{Name: name, Value: value})
	}
	return value
}

func (ev *Event) putText(name, value string) { ev.put(name, appendText(ev.values, value)) }

// putObjectAttributes adds the attributes of an object event, in the order of the contract.
func (e *Encoder) putObjectAttributes(ev *Event, d *object.Delta) {
	ref, res := d.Ref, d.Ref.Resource

	ev.put("specversion", append(ev.values, "1.0"...))
	ev.ID = ev.put("id", appendObjectID(ev.values, d))
	ev.Source = ev.put("source", append(ev.values, e.source...))
	v := append(ev.values, object.ObjectTypePrefix...)
	ev.Type = ev.put("type", append(v, d.Op.Word()...))
	v = appendPath(ev.values, res, ref.Namespace())
	v = append(v, '/')
	name := shortName(ref.Name())
	ev.put("subject", appendPathSegment(v, name))
	e.putCommon(ev, d, res, objectSchema)
	if selects(d.Scope) {
		ev.putText("scope", d.Scope)
	}
	ev.putText("namespace", ref.Namespace())
	ev.putText("name", name)
	ev.putText("uid", ref.UID)
	ev.put("op", append(ev.values, d.Op...))
	ev.putVersion(d.ResourceVersion)
	ev.PartitionKey = ev.put("partitionkey", e.appendObjectKey(ev.values, ref))
	ev.putText("epoch", e.epoch)
	e.setTrace(ev)
}

// selects reports whether a scope has a selector. The events of such a scope name it, because
// resource and namespace, which are attributes anyway, do not identify it.
func selects(scope string) bool {
	return strings.Contains(scope, "Selector=") || strings.Contains(scope, "?any=")
}

// putStreamAttributes adds the attributes of a stream event in the same order, with the scope in
// place of the object.
func (e *Encoder) putStreamAttributes(ev *Event, d *object.Delta) {
	s := d.Stream

	ev.put("specversion", append(ev.values, "1.0"...))
	ev.ID = ev.put("id", appendStreamID(ev.values, d))
	ev.Source = ev.put("source", append(ev.values, e.source...))
	v := append(ev.values, object.TypePrefix...)
	ev.Type = ev.put("type", append(v, s.Kind...))
	ev.put("subject", appendPath(ev.values, s.Resource, ""))
	e.putCommon(ev, d, s.Resource, streamSchema)
	ev.putText("scope", s.Scope)
	if s.Kind != object.Gap { // a gap spans two versions
		ev.putVersion(s.ResourceVersion)
	}
	v = append(appendText(ev.values, e.o.Cluster), '/')
	ev.PartitionKey = ev.put("partitionkey", appendText(v, s.Scope))
	ev.putText("epoch", e.epoch)
	if s.Kind == object.ScopeStarted || s.Kind == object.SnapshotStarted {
		ev.Writer, ev.Run = []byte(e.o.Writer), []byte(e.o.Run)
	}
}

// putCommon adds the attributes between subject and scope or namespace.
func (e *Encoder) putCommon(ev *Event, d *object.Delta, res *object.Resource, schema string) {
	ev.put("time", appendTime(ev.values, d.Observed))
	ev.put("datacontenttype", append(ev.values, dataType...))
	ev.put("dataschema", append(ev.values, schema...))
	ev.putText("cluster", e.o.Cluster)
	ev.ClusterUID = ev.put("clusteruid", appendText(ev.values, e.o.ClusterUID))
	v := ev.values
	if res.Group != "" {
		v = append(appendText(v, res.Group), '/')
	}
	ev.put("apiversion", appendText(v, res.Version))
	ev.putText("kind", res.Kind)
	ev.putText("resource", res.Name)
}

// appendTime appends nanoseconds since 1970 in RFC 3339, with all nine digits: every time has the
// same length and sorts as text.
func appendTime(dst []byte, nanos int64) []byte {
	t := time.Unix(0, nanos).UTC()
	dst = t.AppendFormat(dst, time.RFC3339) // several times as fast as a layout with fractional digits
	point := len(dst) - len("Z")
	dst = strconv.AppendInt(dst[:point], int64(time.Second)+int64(t.Nanosecond()), 10)
	dst[point] = '.' // overwrites the digit of the added second
	return append(dst, 'Z')
}

// putVersion adds resourceversion, and sequence, its form that sorts as text.
func (ev *Event) putVersion(rv uint64) {
	if rv == 0 {
		return
	}
	digits := ev.put("resourceversion", strconv.AppendUint(ev.values, rv, 10))
	const zeros = "00000000000000000000" // as many as the digits of the largest uint64
	v := append(ev.values, zeros[len(digits):]...)
	ev.put("sequence", append(v, digits...))
}

// appendObjectID appends the id, which identifies one version of one object in one history. An
// observed and an inferred deletion have the same id.
func appendObjectID(dst []byte, d *object.Delta) []byte {
	dst = appendText(dst, d.Ref.Resource.Name)
	if group := d.Ref.Resource.Group; group != "" {
		dst = appendText(append(dst, '.'), group)
	}
	dst = appendText(append(dst, '/'), d.Ref.UID)
	dst = append(dst, '/')
	if d.Op == object.Deleted {
		return appendHistory(append(dst, 'd'), d.History)
	}
	dst = strconv.AppendUint(dst, d.ResourceVersion, 10)
	switch d.Op {
	case object.Read:
		dst = appendText(append(dst, "/r/"...), d.Snapshot)
	case object.Left: // another scope may have entered with the same version
		dst = append(dst, "/l"...)
	case object.Created, object.Updated, object.Entered, object.Deleted:
	}
	return appendHistory(dst, d.History)
}

func appendStreamID(dst []byte, d *object.Delta) []byte {
	s := d.Stream
	dst = append(appendText(dst, s.Scope), '/')
	switch s.Kind {
	case object.SnapshotStarted:
		dst = append(appendText(dst, s.Snapshot), "/started"...)
	case object.SnapshotCompleted:
		dst = append(appendText(dst, s.Snapshot), "/completed"...)
	case object.Gap:
		dst = strconv.AppendUint(append(dst, "gap/"...), s.From, 10)
		dst = strconv.AppendUint(append(dst, '-'), s.To, 10)
		if s.Letter != "" {
			// several gaps may span the same versions; the dead letter's id already names the
			// history, if any
			return appendText(append(dst, '/'), s.Letter)
		}
		dst = appendGapEnd(dst, d)
	case object.ScopeStarted, object.ScopeEnded: // several runs may begin and end a scope at one version
		dst = append(append(dst, strings.TrimPrefix(string(s.Kind), "scope.")...), '/')
		dst = strconv.AppendInt(dst, d.Observed, 10)
	}
	return appendHistory(dst, s.History)
}

// appendGapEnd appends what distinguishes the ids of gaps with the same ends.
func appendGapEnd(dst []byte, d *object.Delta) []byte {
	s := d.Stream
	switch s.Reason {
	case object.ContentChanged: // nothing was lost: any other gap may have the same ends
		dst = append(append(dst, '/'), object.ContentChanged...)
		if !s.Recovered { // the API server may change the form of one version again
			dst = strconv.AppendInt(append(dst, '/'), d.Observed, 10)
		}
		return dst
	case object.Expired, object.Compacted, object.Rewound, object.SelectionChanged, object.CheckpointLost,
		object.DeadLetter, object.Forbidden: // versions are lost for one reason, so it adds nothing
	}
	if s.Recovered { // a later gap with these ends may not be
		dst = append(dst, "/recovered"...)
	}
	return dst
}

// appendHistory appends the number of the history of an id, unless it is the first: after a
// restore, etcd assigns resourceVersions a second time.
func appendHistory(dst []byte, history uint32) []byte {
	if history == 0 {
		return dst
	}
	return strconv.AppendUint(append(dst, "/h"...), uint64(history), 10)
}

// appendObjectKey appends the key that all events of one object share,
// "prod-eu-1/apps/deployments/shop/web".
func (e *Encoder) appendObjectKey(dst []byte, ref *object.Ref) []byte {
	group, namespace := ref.Resource.Group, ref.Namespace()
	if group == "" {
		group = "core"
	}
	if namespace == "" {
		namespace = "_"
	}
	dst = append(appendText(dst, e.o.Cluster), '/')
	dst = append(appendText(dst, group), '/')
	dst = append(appendText(dst, ref.Resource.Name), '/')
	dst = append(appendText(dst, namespace), '/')
	return appendText(dst, shortName(ref.Name()))
}
