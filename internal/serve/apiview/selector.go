package apiview

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubecdc/kubecdc/internal/object"
)

// selector selects the objects of a list or a watch.
type selector struct {
	resource  *resource
	namespace string // "": all
	name      string // "": all
	labels    labels.Selector
	fields    fields.Selector
}

func newSelector(res *resource, namespace, name string, query url.Values) (*selector, error) {
	s := &selector{resource: res, namespace: namespace, name: name}
	var err error
	s.labels, err = labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return nil, badRequest("%v", err)
	}
	s.fields, err = fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return nil, badRequest("%v", err)
	}
	for _, r := range s.fields.Requirements() {
		if err := res.checkField(r.Field); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func badRequest(format string, args ...any) error {
	return failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, format, args...)
}

// takesAll reports whether labels and fields do not narrow the selection.
func (s *selector) takesAll() bool { return s.labels.Empty() && s.fields.Empty() }

// takes reports whether an object is selected; body is its JSON.
func (s *selector) takes(o *object.Object, body []byte) bool {
	if !s.isPlaced(o) {
		return false
	}
	if !s.labels.Empty() {
		var head object.Head
		if head.Peek(body) != nil || !s.labels.Matches(head.Labels) {
			return false
		}
	}
	return s.fields.Empty() || s.fields.Matches(s.values(o, body))
}

// isPlaced reports whether an object has the namespace and the name that are asked for.
func (s *selector) isPlaced(o *object.Object) bool {
	return (s.namespace == "" || o.Ref.Namespace() == s.namespace) && (s.name == "" || o.Ref.Name() == s.name)
}

// placed returns those objects that have the namespace and the name that are asked for.
func (s *selector) placed(objects iter.Seq[*object.Object]) iter.Seq[*object.Object] {
	return func(yield func(*object.Object) bool) {
		for o := range objects {
			if s.isPlaced(o) && !yield(o) {
				return
			}
		}
	}
}

// values returns the fields of an object that the selector asks for.
func (s *selector) values(o *object.Object, body []byte) fields.Set {
	set := fields.Set{}
	var content map[string]any
	for _, r := range s.fields.Requirements() {
		switch r.Field {
		case "metadata.name":
			set[r.Field] = o.Ref.Name()
		case "metadata.namespace":
			set[r.Field] = o.Ref.Namespace()
		default:
			if content == nil {
				if served, err := s.resource.convert(body); err == nil { // an error is that of the answer
					_ = json.Unmarshal(served, &content) // the record's JSON has been read before
				}
			}
			set[r.Field] = s.resource.value(content, r.Field)
		}
	}
	return set
}

// fieldLabels returns the field labels of a kind of Kubernetes beside metadata.name and
// metadata.namespace; nil: there are none. Each has the paths of its value: the first one that is
// set counts.
func (k *kind) fieldLabels() map[string][]string {
	same := func(paths ...string) map[string][]string {
		out := map[string][]string{}
		for _, p := range paths {
			out[p] = []string{p}
		}
		return out
	}
	switch k.String() {
	case "pods":
		out := same("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
			"spec.hostNetwork", "status.phase",
			"status.podIP", "status.podIPs", "status.nominatedNodeName")
		out["spec.host"] = out["spec.nodeName"]
		return out
	case "events":
		out := same("involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
			"involvedObject.apiVersion",
			"involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "type")
		out["source"] = []string{"source.component", "reportingComponent"}
		return out
	case "events.events.k8s.io":
		out := same("reason", "type", "reportingController")
		for _, field := range []string{
			"kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath",
		} {
			out["regarding."+field] = []string{"regarding." + field}
		}
		return out
	case "nodes":
		return same("spec.unschedulable")
	case "namespaces":
		return same("status.phase")
	case "secrets":
		return same("type")
	case "services":
		return same("spec.clusterIP", "spec.type")
	case "replicationcontrollers", "replicasets.apps":
		return same("status.replicas")
	case "jobs.batch":
		return map[string][]string{"status.successful": {"status.succeeded"}}
	case "certificatesigningrequests.certificates.k8s.io":
		return same("spec.signerName")
	}
	return nil
}

// checkField returns an error if objects of the kind cannot be selected by a field.
func (k *kind) checkField(field string) error {
	if field == "metadata.name" || field == "metadata.namespace" {
		return nil
	}
	known := k.fieldLabels()
	if known[field] != nil || slices.Contains(k.selectable, field) {
		return nil
	}
	if known != nil || !k.builtin {
		return badRequest("field label not supported: %s", field)
	}
	return badRequest("%q is not a known field selector: only %q, %q", field, "metadata.name", "metadata.namespace")
}

// value returns the value of a field as the API server compares it.
func (k *kind) value(content map[string]any, field string) string {
	paths := k.fieldLabels()[field]
	if paths == nil {
		paths = []string{field}
	}
	for _, path := range paths {
		var at any = content
		for step := range strings.SplitSeq(path, ".") {
			members, _ := at.(map[string]any)
			at = members[step]
		}
		switch at := at.(type) {
		case nil:
		case []any: // status.podIPs
			var ips []string
			for _, element := range at {
				members, _ := element.(map[string]any)
				ips = append(ips, fmt.Sprint(members["ip"]))
			}
			return strings.Join(ips, ",")
		default:
			return fmt.Sprint(at)
		}
	}
	switch field { // what is not written has its zero value
	case "spec.hostNetwork", "spec.unschedulable":
		return "false"
	case "status.replicas", "status.successful":
		return "0"
	}
	return ""
}
