package apiview

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// otherVersion is an API version in which Kubernetes serves objects that it stores once, beside
// the one in which the record has them.
type otherVersion struct {
	recorded, served string // "v1", "events.k8s.io/v1"
	plural           string
	// convert returns an object of the recorded version in the served one, as kube-apiserver does.
	convert func(members) error
}

// otherVersions returns those that clients ask for.
func otherVersions() []otherVersion {
	return []otherVersion{
		{"v1", "events.k8s.io/v1", "events", eventToGroup},
		{"events.k8s.io/v1", "v1", "events", eventToCore},
		{"autoscaling/v2", "autoscaling/v1", "horizontalpodautoscalers", autoscalerToV1},
	}
}

// members are those of an object that is converted. A value that is not converted stays as it is,
// so that neither an unknown member nor a redacted value is lost.
type members map[string]json.RawMessage

// rename moves a member.
func (m members) rename(from, to string) {
	if value, ok := m[from]; ok {
		delete(m, from)
		m[to] = value
	}
}

// omit removes a member that has its zero value, which the version does not write.
func (m members) omit(name, zero string) {
	if string(m[name]) == zero {
		delete(m, name)
	}
}

// fill adds the zero value of a member, which the version always writes.
func (m members) fill(name, zero string) {
	if m[name] == nil {
		m[name] = json.RawMessage(zero)
	}
}

// change changes a member that is an object, if there is one.
func (m members) change(name string, how func(members)) error {
	raw := m[name]
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	var inner members
	if err := json.Unmarshal(raw, &inner); err != nil {
		return err
	}
	how(inner)
	var err error
	m[name], err = json.Marshal(inner)
	return err
}

// convertJSON returns an object in the served version. Objects of a third version, and bookmarks,
// stay as they are.
func (v *otherVersion) convertJSON(body []byte) ([]byte, error) {
	var m members
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	if string(m["apiVersion"]) != strconv.Quote(v.recorded) {
		return body, nil
	}
	m["apiVersion"] = json.RawMessage(strconv.Quote(v.served))
	if err := v.convert(m); err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// renamed are the members of an Event that have another name in events.k8s.io.
func renamed() [][2]string {
	return [][2]string{
		{"involvedObject", "regarding"},
		{"message", "note"},
		{"source", "deprecatedSource"},
		{"firstTimestamp", "deprecatedFirstTimestamp"},
		{"lastTimestamp", "deprecatedLastTimestamp"},
		{"count", "deprecatedCount"},
		{"reportingComponent", "reportingController"},
	}
}

func eventToGroup(m members) error {
	for _, names := range renamed() {
		m.rename(names[0], names[1])
	}
	m.omit("reportingController", `""`)
	m.omit("reportingInstance", `""`)
	return m.change("series", func(s members) {
		s.fill("count", "0")
		s.fill("lastObservedTime", "null")
	})
}

func eventToCore(m members) error {
	for _, names := range renamed() {
		m.rename(names[1], names[0])
	}
	m.fill("reportingComponent", `""`)
	m.fill("reportingInstance", `""`)
	return m.change("series", func(s members) { s.omit("count", "0") })
}

// addVersions adds the other versions of the resources, except those that the record has itself.
func (v *View) addVersions() {
	recorded := slices.DeleteFunc(v.resources, func(r *resource) bool { return r.other != nil })
	v.resources = recorded
	for _, other := range otherVersions() {
		has := func(version string) func(*resource) bool {
			return func(r *resource) bool { return r.groupVersion() == version && r.plural == other.plural }
		}
		i := slices.IndexFunc(recorded, has(other.recorded))
		if i < 0 || slices.ContainsFunc(recorded, has(other.served)) {
			continue
		}
		from := recorded[i]
		r := &resource{
			kind:    from.kind,
			content: from.content,
			columns: from.columns,
			other:   &other,
		}
		r.group, r.apiVersion, _ = strings.Cut(other.served, "/")
		if r.apiVersion == "" {
			r.group, r.apiVersion = "", r.group
		}
		v.resources = append(v.resources, r)
	}
	v.sort()
}

// convert returns an object of the record in the version of the resource.
func (r *resource) convert(body []byte) ([]byte, error) {
	if r.other == nil {
		return body, nil
	}
	out, err := r.other.convertJSON(body)
	if err != nil {
		return nil, failure(http.StatusInternalServerError, metav1.StatusReasonInternalError,
			"an object of %s cannot be shown in version %s, as a redacted value may have another type: ask for %s: %v",
			r.content.name, r.other.served, r.other.recorded, err)
	}
	return out, nil
}
