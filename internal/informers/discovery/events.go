package discovery

import "context"

// Event is a change that Extensions reports (DefinitionUpdated, DefinitionDeleted, APIServiceAvailable), or Namespaces (NamespacesListed,
// NamespacesUnavailable, NamespaceCreated, NamespaceDeleted).
type Event interface{ isEvent() }

// DefinitionUpdated says that a CustomResourceDefinition was created, changed or deleted in part, its status included.
type DefinitionUpdated struct {
	Name string // plural.group
	// SchemaChanged: its generation changed by more than the request to delete it. A definition that is new has not changed.
	SchemaChanged bool
	// StorageChanged: with its schema, the version in which objects are stored has changed, or may have.
	StorageChanged bool
}

// DefinitionDeleted says that a CustomResourceDefinition no longer existed at a resourceVersion. One of the same name may exist by now.
type DefinitionDeleted struct {
	Name            string // plural.group
	ResourceVersion uint64
}

// APIServiceAvailable says that another API server has begun to serve a group version, or serves it by another specification.
type APIServiceAvailable struct {
	Name string // version.group
}

// NamespacesListed says that it is known which namespaces exist: from now on, or once more.
type NamespacesListed struct{}

// NamespacesUnavailable says that the namespaces could not be listed. That is retried.
type NamespacesUnavailable struct{}

// NamespaceCreated says that a namespace exists that did not before.
type NamespaceCreated struct{ Name string }

// NamespaceDeleted says that a namespace no longer exists.
type NamespaceDeleted struct{ Name string }

func (DefinitionUpdated) isEvent()     {}
func (DefinitionDeleted) isEvent()     {}
func (APIServiceAvailable) isEvent()   {}
func (NamespacesListed) isEvent()      {}
func (NamespacesUnavailable) isEvent() {}
func (NamespaceCreated) isEvent()      {}
func (NamespaceDeleted) isEvent()      {}

// Handler takes events. The next event about the same kind of object is not read before it returns. No lock is held: it may ask who
// reports the event.
type Handler func(ctx context.Context, ev Event)
