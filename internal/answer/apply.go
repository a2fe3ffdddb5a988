package answer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/timeline"
)

// printForApply prints objects without the fields that the server sets. It omits objects with redacted values, and those from which the agent
// may have removed values, and returns an error.
func (q *Question) printForApply(objects []*timeline.Version, agent *config.Config) error {
	a := manifests{agent: agent, removed: map[string][]string{}}
	for _, v := range objects {
		name := kindName(v)
		if v.Namespace != "" {
			name += " -n " + v.Namespace
		}
		if err := a.add(v, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := q.printDocuments(a.out); err != nil {
		return err
	}
	if len(a.owned) > 0 {
		fmt.Fprintf(q.Stderr, "without owner references, because the owners may have been recreated: %s\n", strings.Join(a.owned, ", "))
	}
	switch {
	case len(a.out) == 0:
	case agent == nil:
		fmt.Fprintln(q.Stderr, "objects may lack values that the agent removed: name its configuration with --config, or run 'kubectl diff' before you apply")
	default:
		fmt.Fprintln(q.Stderr, "complete by the redact and strip rules of --config, if these were the agent's at that moment")
	}
	var omitted []string
	if len(a.redacted) > 0 {
		omitted = append(omitted, "left out, because the record has redacted values of them: "+strings.Join(a.redacted, ", "))
	}
	if len(a.lacking) > 0 {
		omitted = append(omitted, "left out, because the agent may have removed values from them (-o yaml prints the rest): "+strings.Join(a.lacking, ", "))
	}
	if len(omitted) > 0 {
		return errors.New(strings.Join(omitted, "; "))
	}
	return nil
}

// manifests are objects to apply, and the names of those that are not complete.
type manifests struct {
	agent   *config.Config      // nil if it is not known
	removed map[string][]string // paths, by resource

	out                      []*timeline.Version
	redacted, lacking, owned []string
}

func (a *manifests) add(v *timeline.Version, name string) error {
	if v.Redacted() {
		a.redacted = append(a.redacted, name)
		return nil
	}
	var o map[string]any
	d := json.NewDecoder(strings.NewReader(string(v.After)))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		return err
	}
	if lacks, err := a.lacks(v.Resource, o); err != nil || len(lacks) > 0 {
		a.lacking = append(a.lacking, fmt.Sprintf("%s (%s)", name, strings.Join(lacks, ", ")))
		return err
	}
	applied, hadOwner, err := forApply(v.Resource, o)
	if hadOwner {
		a.owned = append(a.owned, name)
	}
	a.out = append(a.out, &timeline.Version{Object: v.Object, After: applied})
	return err
}

// lacks returns the paths at which the agent may have removed a value from an object that has to be in a manifest.
func (a *manifests) lacks(resource string, o map[string]any) ([]string, error) {
	if a.agent == nil {
		return nil, nil
	}
	paths, known := a.removed[resource]
	if !known {
		unneeded, err := object.NewCutter(append(object.Copies(), "status", "metadata.creationTimestamp", "metadata.generation",
			"metadata.ownerReferences", "metadata.selfLink", `metadata.annotations["deployment.kubernetes.io/revision"]`))
		if err != nil {
			return nil, err
		}
		paths = slices.DeleteFunc(slices.Clone(a.agent.Strip), func(path string) bool {
			return strings.HasPrefix(path, "metadata.annotations") || strings.HasPrefix(path, "metadata.labels") // of controllers
		})
		if a.agent.Redaction.Mode == config.RedactRemove { // a hash would be in the object
			paths = withheld(a.agent, resource)
		}
		slices.Sort(paths)
		paths = slices.DeleteFunc(slices.Compact(paths), unneeded.Removes)
		a.removed[resource] = paths
	}
	var lacks []string
	for _, path := range paths {
		may, err := object.MayLack(o, path)
		if err != nil {
			return nil, err
		}
		if may {
			lacks = append(lacks, path)
		}
	}
	return lacks, nil
}

// forApply returns an object without the fields that the server or a controller sets. It changes o.
func forApply(resource string, o map[string]any) (_ json.RawMessage, hadOwner bool, _ error) {
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
	switch resource {
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
