package kinds

import "strings"

// ObjectName returns the name of an object in the format Name, as kubectl prints it:
// deployment.apps/web.
func ObjectName(kind, group, name string) string {
	kind = strings.ToLower(kind)
	if group != "" {
		kind += "." + group
	}
	return kind + "/" + name
}

// MergeKeys returns the keys that distinguish the elements of Kubernetes' lists, the most specific
// first. A key must differ in all elements: a volume mount has a name, for example, but one volume
// may be mounted twice.
func MergeKeys() []string {
	return []string{
		"name", "mountPath", "containerPort", "port", "type", "key", "uid", "ip", "devicePath", "topologyKey", "host",
		"path", "id",
	}
}
