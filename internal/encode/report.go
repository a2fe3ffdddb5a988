package encode

import (
	"strconv"
	"time"

	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/object/jsonscan"
)

const (
	progressSchema = "https://kubecdc.dev/schema/progress/v1"
	progressPath   = "/progress/" // the attribute subject, before the writer
)

// checkReport checks that a progress event has everything that the contract requires.
func (e *Encoder) checkReport(d *object.Delta, _ *shortening) error {
	if e.o.Writer == "" || e.o.Run == "" {
		return errNoWriter
	}
	for i := range d.Report.Scopes {
		if d.Report.Scopes[i].Resource == nil {
			return errNoRef
		}
	}
	return nil
}

// putReportAttributes adds the attributes of a progress event.
func (e *Encoder) putReportAttributes(ev *Event, d *object.Delta) {
	ev.put("specversion", append(ev.values, "1.0"...))
	id := append(appendText(append(ev.values, "progress/"...), e.o.Writer), '/')
	id = append(appendText(id, e.o.Run), '/')
	ev.ID = ev.put("id", strconv.AppendUint(id, d.Report.Number, 10))
	ev.Source = ev.put("source", append(ev.values, e.source...))
	ev.Type = ev.put("type", append(ev.values, object.TypeProgress...))
	ev.Writer = ev.put("subject", appendText(append(ev.values, progressPath...), e.o.Writer))[len(progressPath):]
	ev.put("time", appendTime(ev.values, d.Observed))
	ev.put("datacontenttype", append(ev.values, dataType...))
	ev.put("dataschema", append(ev.values, progressSchema...))
	ev.putText("cluster", e.o.Cluster)
	ev.ClusterUID = ev.put("clusteruid", appendText(ev.values, e.o.ClusterUID))
	key := append(appendText(ev.values, e.o.Cluster), "/progress/"...)
	ev.PartitionKey = ev.put("partitionkey", appendText(key, e.o.Writer))
	ev.putText("epoch", e.epoch)
}

// appendReport appends the data of a progress event.
func (e *Encoder) appendReport(dst []byte, _ *Event, d *object.Delta, _ *shortening) ([]byte, error) {
	r := d.Report
	dst = jsonscan.AppendString(append(dst, `{"writer":`...), e.o.Writer)
	dst = jsonscan.AppendString(append(dst, `,"run":`...), e.o.Run)
	dst = strconv.AppendUint(append(dst, `,"number":`...), r.Number, 10)
	dst = appendOptional(dst, `,"checkpoint":`, e.o.Checkpoint)
	dst = appendOptional(dst, `,"node":`, e.o.Node)
	dst = appendOptional(dst, `,"apiServerVersion":`, r.APIServerVersion)
	dst = appendMoment(dst, `,"since":"`, r.Since)
	dst = appendMoment(dst, `,"to":"`, r.To)
	dst = appendMoment(dst, `,"snapshotBegan":"`, r.SnapshotBegan)
	dst = appendOptional(dst, `,"etcd":`, r.Etcd)
	if r.Ends {
		dst = append(dst, `,"ends":true`...)
	}
	dst = append(dst, `,"scopes":[`...)
	for i := range r.Scopes {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendScopeReport(dst, &r.Scopes[i])
	}
	return append(dst, "]}"...), nil
}

func appendScopeReport(dst []byte, s *object.ScopeReport) []byte {
	dst = jsonscan.AppendString(append(dst, `{"resource":`...), s.Resource.String())
	dst = appendOptional(dst, `,"scope":`, s.Scope)
	dst = appendOptional(dst, `,"etcd":`, s.Etcd)
	if s.Count > 1 {
		dst = strconv.AppendInt(append(dst, `,"count":`...), int64(s.Count), 10)
	}
	dst = appendVersion(dst, `,"resourceVersion":"`, s.ResourceVersion)
	if s.History > 0 {
		dst = strconv.AppendUint(append(dst, `,"history":`...), uint64(s.History), 10)
	}
	dst = appendMoment(dst, `,"to":"`, s.To)
	dst = appendMoment(dst, `,"snapshotBegan":"`, s.SnapshotBegan)
	dst = appendInterruptions(dst, s.Interruptions)
	return append(appendHidden(dst, s.Hidden), '}')
}

func appendInterruptions(dst []byte, all []object.Interruption) []byte {
	for i := range all {
		if i == 0 {
			dst = append(dst, `,"interruptions":[`...)
		} else {
			dst = append(dst, ',')
		}
		dst = jsonscan.AppendString(append(dst, `{"why":`...), string(all[i].Why))
		dst = appendMoment(dst, `,"from":"`, all[i].From)
		dst = append(appendMoment(dst, `,"until":"`, all[i].Until), '}')
		if i == len(all)-1 {
			dst = append(dst, ']')
		}
	}
	return dst
}

func appendHidden(dst []byte, all []object.HiddenSpan) []byte {
	for i := range all {
		if i == 0 {
			dst = append(dst, `,"hidden":[`...)
		} else {
			dst = append(dst, ',')
		}
		start := len(dst)
		dst = appendVersion(dst, `,"fromResourceVersion":"`, all[i].From.ResourceVersion)
		dst = appendMoment(dst, `,"from":"`, all[i].From.Time)
		dst = appendVersion(dst, `,"untilResourceVersion":"`, all[i].Until.ResourceVersion)
		dst = appendMoment(dst, `,"until":"`, all[i].Until.Time)
		if len(dst) == start {
			dst = append(dst, ',')
		}
		dst[start] = '{' // replaces the first comma
		dst = append(dst, '}')
		if i == len(all)-1 {
			dst = append(dst, ']')
		}
	}
	return dst
}

// appendOptional appends a member with the given name, unless its text is empty.
func appendOptional(dst []byte, member, text string) []byte {
	if text == "" {
		return dst
	}
	return jsonscan.AppendString(append(dst, member...), text)
}

// appendMoment appends a member with the given name and opening quote, unless the time is zero.
func appendMoment(dst []byte, member string, t time.Time) []byte {
	if t.IsZero() {
		return dst
	}
	return append(t.UTC().AppendFormat(append(dst, member...), time.RFC3339Nano), '"')
}
