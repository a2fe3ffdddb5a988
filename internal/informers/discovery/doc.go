// Package discovery follows what an API server serves, defines and lets the agent read.
//
//   - Discover asks for the API groups, once.
//   - Extensions follows CustomResourceDefinitions and APIServices. It says when the API groups should be discovered again, because
//     something has changed.
//   - Namespaces follows which namespaces exist.
//   - Review asks in which namespaces a resource may be read.
//   - IsBuiltIn and TakesExtensions know the API groups that the API server itself serves.
//
// An extension is a resource that is not built into the API server: a custom resource, or one that another API server serves.
// Where definitions or APIServices may not be read, discovery alone finds extensions.
//
// Extensions and Namespaces list and watch, report each change as an Event, and answer questions about their present state.
//
// # Invariants
//
//   - Only metadata is kept, and of a definition the versions that it serves.
//   - The state changes before the Event that reports it. Events about one kind of object come in the order of history, one at a time.
//   - A definition that was deleted is reported for each uid that was seen, at the resourceVersion of its deletion, or of the list that
//     no longer has it.
//   - If etcd was restored, the objects are listed again before an event of the new history is taken.
//
// # Goroutines
//
// Extensions.Run has two, one for each kind of object; Namespaces.Run uses its caller's. They end with its context.
//
// The package knows nothing of informers: its caller decides what follows from an Event.
package discovery
