// Package discovery follows the resources that an API server serves and defines, and those that the
// agent may read.
//
//   - Discover reads the API groups once.
//   - Extensions follows CustomResourceDefinitions and APIServices, and waits until the API groups
//     should be read again.
//   - Namespaces follows which namespaces exist.
//   - Review asks in which namespaces a resource may be read.
//   - IsBuiltIn and TakesExtensions distinguish the API groups that the API server itself serves
//     from all others.
//
// An extension is a resource that is not built into the API server: a custom resource, or one that
// another API server serves. A definition is a CustomResourceDefinition. If definitions or
// APIServices may not be read, only Discover finds extensions.
//
// # Invariants
//
//   - Only metadata is stored, and the served versions of a definition.
//   - The state changes before the Event that reports it. Events about one kind of object come in
//     the order of history, one at a time.
//   - The deletion of a definition is reported for each uid that was seen, at the resourceVersion
//     of the deletion, or of the list that no longer has it.
//   - If etcd was restored, the objects are listed again before an event of the new history is
//     applied.
//
// # Goroutines
//
// Extensions.Run follows definitions, and starts a goroutine that follows APIServices.
// Namespaces.Run starts none. Both return when their context ends.
package discovery
