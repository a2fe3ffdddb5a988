package answer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubecdc/kubecdc/internal/past/timeline"
)

// canMove returns an error unless objects can be restored into one other namespace, "": they stay
// in theirs.
func canMove(objects []*timeline.Version, to string) error {
	if to == "" {
		return nil
	}
	var without, namespaces []string
	for _, v := range objects {
		switch {
		case isOfEvents(v.Resource):
		case v.Namespace == "":
			without = append(without, KindName(v))
		case !slices.Contains(namespaces, v.Namespace):
			namespaces = append(namespaces, v.Namespace)
		}
	}
	if len(without) > 0 {
		return UsageError{
			fmt.Errorf("--to-namespace: these objects have no namespace, ask without them: %s",
				strings.Join(without, ", ")),
		}
	}
	if len(namespaces) > 1 {
		return UsageError{
			fmt.Errorf("--to-namespace: the objects are of several namespaces, add --namespace for one of: %s",
				strings.Join(namespaces, ", ")),
		}
	}
	return nil
}

// move moves the object into another namespace. It removes what the object of the old one keeps,
// and notes where it still refers to that.
func (m *manifest) move(to string) {
	metadata, spec := mapIn(m.object, "metadata"), mapIn(m.object, "spec")
	old, _ := metadata["namespace"].(string)
	metadata["namespace"] = to
	if old == to {
		return
	}
	switch {
	case m.resource == "persistentvolumeclaims" && m.volume != "":
		delete(spec, "volumeName")
		m.volume = ""
		m.notes = append(m.notes, withoutVolume)
	case m.resource == "services" && m.dropPorts(spec):
		m.notes = append(m.notes, withoutPorts)
	}
	m.refers = nil
	m.findReferences(m.object, "", old)
	if len(m.refers) > 0 {
		m.notes = append(m.notes, refersToOld)
	}
}

// dropPorts removes the addresses of a Service that only one can have. It reports whether it had
// some.
func (m *manifest) dropPorts(spec map[string]any) (had bool) {
	drop := func(in map[string]any, field string) {
		if in[field] != nil && in[field] != "None" {
			delete(in, field)
			had = true
		}
	}
	if spec["clusterIP"] != "None" {
		drop(spec, "clusterIP")
		drop(spec, "clusterIPs")
	}
	drop(spec, "healthCheckNodePort")
	ports, _ := spec["ports"].([]any)
	for _, p := range ports {
		if port, ok := p.(map[string]any); ok {
			drop(port, "nodePort")
		}
	}
	return had
}

// findReferences notes the paths of values that name a namespace: members called namespace, and
// names of Services such as web.shop.svc.
func (m *manifest) findReferences(value any, path, old string) {
	switch value := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			m.findReferences(value[key], path+memberText(key, path == ""), old)
		}
	case []any:
		for i, e := range value {
			m.findReferences(e, fmt.Sprintf("%s[%d]", path, i), old)
		}
	case string:
		isNamespace := value == old && (strings.HasSuffix(path, ".namespace") || path == "namespace")
		if isNamespace || strings.Contains(value, "."+old+".svc") {
			m.refers = append(m.refers, path)
		}
	}
}
