// Package explain explains a valid configuration. It contacts no cluster and no bus.
//
//   - Resource: which rules take a resource, and how its changes are sent.
//   - Summarize: a summary of the whole.
//   - Doubts: expressions that probably do not mean what they say.
package explain
