package record

// Stream is the JetStream for all records, and Subjects are its subjects.
const (
	Stream   = "KUBECDC"
	Subjects = "kubecdc.>"
	Cluster  = "bench"
	Source   = "/kubernetes/" + Cluster
)

// Objects are the subjects of all pods, without those of stream events.
const Objects = "kubecdc." + Cluster + ".object.core.pods.>"

// Subject is the subject of a pod's records, by the agent's default template.
func Subject(namespace, name string) string {
	return "kubecdc." + Cluster + ".object.core.pods." + namespace + "." + name
}

// SubjectOf returns the subject of an object's records; group is empty for the core group.
func SubjectOf(group, resource, namespace, name string) string {
	if group == "" {
		group = "core"
	}
	return "kubecdc." + Cluster + ".object." + group + "." + resource + "." + namespace + "." + name
}

// IDOf returns the id of a version of an object that was seen on a watch.
func IDOf(group, resource, uid, version string) string {
	if group != "" {
		resource += "." + group
	}
	return resource + "/" + uid + "/" + version
}

// ID returns the id of a version of a pod. op is 'u' for an update, 'r' for a listed pod.
func ID(uid, version string, op byte) string {
	id := "pods/" + uid + "/" + version
	if op == 'r' {
		id += "/r/1"
	}
	return id
}
