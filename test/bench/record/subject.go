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

// ID names a version of a pod; op is 'u' for an update, 'r' for one that was listed.
func ID(uid, version string, op byte) string {
	id := "pods/" + uid + "/" + version
	if op == 'r' {
		id += "/r/1"
	}
	return id
}
