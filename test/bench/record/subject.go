package record

// Stream is the JetStream that all records go to, and Subjects what it takes.
const (
	Stream   = "KUBECDC"
	Subjects = "kubecdc.>"
	Cluster  = "bench"
	Source   = "/kubernetes/" + Cluster
)

// Objects are the subjects of all pods, without those of stream events.
const Objects = "kubecdc." + Cluster + ".object.core.pods.>"

// Subject of a pod's records: the agent's default template.
func Subject(namespace, name string) string {
	return "kubecdc." + Cluster + ".object.core.pods." + namespace + "." + name
}

// SubjectOf an object's records; group is empty for pods and their like.
func SubjectOf(group, resource, namespace, name string) string {
	if group == "" {
		group = "core"
	}
	return "kubecdc." + Cluster + ".object." + group + "." + resource + "." + namespace + "." + name
}

// IDOf a version of any object that was seen on a watch.
func IDOf(group, resource, uid, version string) string {
	if group != "" {
		resource += "." + group
	}
	return resource + "/" + uid + "/" + version
}

// ID names a version of a pod; op is 'u' for an update, 'r' for one that was listed.
func ID(uid, version string, op byte) string {
	id := "pods/" + uid + "/" + version
	if op == 'r' {
		id += "/r/1"
	}
	return id
}
