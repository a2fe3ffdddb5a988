package answer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/timeline"
)

// printForApply prints objects without the fields that the server sets. It omits objects with redacted values and returns an error.
func (q *Question) printForApply(objects []*timeline.Version) error {
	var redacted, owned []string
	var out []*timeline.Version
	for _, v := range objects {
		name := kindName(v)
		if v.Namespace != "" {
			name += " -n " + v.Namespace
		}
		if v.Redacted() {
			redacted = append(redacted, name)
			continue
		}
		applied, hadOwner, err := forApply(v)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if hadOwner {
			owned = append(owned, name)
		}
		out = append(out, &timeline.Version{Object: v.Object, After: applied})
	}
	if err := q.printDocuments(out); err != nil {
		return err
	}
	if len(owned) > 0 {
		fmt.Fprintf(q.Stderr, "without owner references, because the owners may have been recreated: %s\n", strings.Join(owned, ", "))
	}
	if len(redacted) > 0 {
		return fmt.Errorf("left out, because the record has redacted values of them: %s", strings.Join(redacted, ", "))
	}
	return nil
}

// forApply returns an object without the fields that the server or a controller sets.
func forApply(v *timeline.Version) (_ json.RawMessage, hadOwner bool, _ error) {
	var o map[string]any
	d := json.NewDecoder(strings.NewReader(string(v.After)))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		return nil, false, err
	}
	delete(o, "status")
	metadata, _ := o["metadata"].(map[string]any)
	owners, _ := metadata["ownerReferences"].([]any)
	for _, field := range []string{
		"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "ownerReferences",
		"resourceVersion", "selfLink", "uid",
	} {
		delete(metadata, field)
	}
	dropKeys(metadata, "annotations", func(key string) bool {
		return slices.Contains([]string{"kubectl.kubernetes.io/last-applied-configuration", "deployment.kubernetes.io/revision"}, key) ||
			strings.HasPrefix(key, "pv.kubernetes.io/") || strings.HasPrefix(key, "deprecated.daemonset.template.generation")
	})
	spec, _ := o["spec"].(map[string]any)
	switch v.Resource {
	case "services":
		if spec["clusterIP"] != "None" { // None is set by the user
			delete(spec, "clusterIP")
			delete(spec, "clusterIPs")
		}
	case "pods":
		delete(spec, "nodeName")
	case "persistentvolumeclaims":
		delete(spec, "volumeName")
	case "namespaces":
		delete(spec, "finalizers")
	case "jobs.batch":
		forgetJob(spec, metadata)
	}
	if len(spec) == 0 {
		delete(o, "spec")
	}
	out, err := json.Marshal(o)
	return out, len(owners) > 0, err
}

// forgetJob removes the generated selector and labels that connect a Job with its pods, unless the Job has a manual selector.
func forgetJob(spec, metadata map[string]any) {
	if spec["manualSelector"] == true {
		return
	}
	delete(spec, "selector")
	generated := func(key string) bool {
		return strings.HasSuffix(key, "controller-uid") || strings.HasSuffix(key, "job-name")
	}
	dropKeys(metadata, "labels", generated)
	if template, ok := spec["template"].(map[string]any); ok {
		if m, ok := template["metadata"].(map[string]any); ok {
			dropKeys(m, "labels", generated)
		}
	}
}

// dropKeys removes keys from a map in an object, and also the map if it becomes empty.
func dropKeys(object map[string]any, field string, drop func(string) bool) {
	m, ok := object[field].(map[string]any)
	if !ok {
		return
	}
	for key := range m {
		if drop(key) {
			delete(m, key)
		}
	}
	if len(m) == 0 {
		delete(object, field)
	}
}
