package discovery

import "context"

// Event is a change that Extensions reports (DefinitionUpdated, DefinitionDeleted, APIServiceAvailable), or Namespaces (NamespacesListed,
// NamespacesUnavailable, NamespaceCreated, NamespaceDeleted).
type Event interface{ isEvent() }

// DefinitionUpdated reports that a definition was created or changed. Its status and a request to delete it count.
type DefinitionUpdated struct {
	Name string // plural.group
	// SchemaChanged: its spec has changed. This is false for a new definition.
	SchemaChanged bool
	// StorageChanged: SchemaChanged, and the version in which objects are stored has changed, or may have changed.
	StorageChanged bool
}

// DefinitionDeleted reports that a definition no longer existed at a resourceVersion. One of the same name may exist now.
type DefinitionDeleted struct {
	Name            string // plural.group
	ResourceVersion uint64
}

// APIServiceAvailable reports that another API server serves a group version. It did not before, or its APIService was different.
type APIServiceAvailable struct {
	Name string // version.group
}

// NamespacesListed reports that the namespaces were listed, for the first time or again.
type NamespacesListed struct{}

// NamespacesUnavailable reports that the namespaces could not be listed. This is retried.
type NamespacesUnavailable struct{}

// NamespaceCreated reports that a namespace exists that did not exist before.
type NamespaceCreated struct{ Name string }

// NamespaceDeleted reports that a namespace no longer exists.
type NamespaceDeleted struct{ Name string }

func (DefinitionUpdated) isEvent()     {}
func (DefinitionDeleted) isEvent()     {}
func (APIServiceAvailable) isEvent()   {}
func (NamespacesListed) isEvent()      {}
func (NamespacesUnavailable) isEvent() {}
func (NamespaceCreated) isEvent()      {}
func (NamespaceDeleted) isEvent()      {}

// Handler handles an event. The next event about the same kind of object is read after it has returned. No lock is held, so it may call
// methods of the Extensions or Namespaces that reports the event.
type Handler func(ctx context.Context, ev Event)
