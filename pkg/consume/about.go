package consume

// About is what the place of a record on the bus says of its content: its subject, or its key. It
// helps if the content itself cannot be read. Empty fields are not known; the zero value knows
// nothing.
type About struct {
	Cluster   string // as in Event.Cluster
	Resource  string // as Event.GroupResource returns it
	Namespace string // NoNamespace: the object is cluster-scoped
	Name      string
	Progress  bool // the progress of an agent
}
