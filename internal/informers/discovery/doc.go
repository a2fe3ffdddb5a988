// Package discovery follows what an API server serves and defines, and what the agent may read.
//
//   - Discover reads the API groups once.
//   - Extensions follows CustomResourceDefinitions and APIServices, and waits until the API groups should be read again.
//   - Namespaces follows which namespaces exist.
//   - Review asks in which namespaces a resource may be read.
//   - IsBuiltIn and TakesExtensions distinguish the API groups that the API server itself serves from all others.
//
// An extension is a resource that is not built into the API server: a custom resource, or one that another API server serves.
// A definition is a CustomResourceDefinition. If definitions or APIServices may not be read, only Discover finds extensions.
//
// Extensions and Namespaces list and watch, report each change as an Event, and answer questions about their present state.
//
// # Invariants
//
//   - Only metadata is kept, and of a definition the versions that it serves.
//   - The state changes before the Event that reports it. Events about one kind of object come in the order of history, one at a time.
//   - The deletion of a definition is reported for each uid that was seen, at the resourceVersion of the deletion, or of the list that
//     no longer has it.
//   - If etcd was restored, the objects are listed again before an event of the new history is applied.
//
// # Goroutines
//
// Extensions.Run starts two, one for each kind of object. Namespaces.Run starts none. Both return when their context ends.
//
// The package does not depend on informers. Its caller decides what follows from an Event.
package discovery
