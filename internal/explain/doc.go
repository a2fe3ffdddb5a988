// Package explain tells people what a valid configuration does: which rules take a resource and how its changes are sent (Resource), a
// summary of the whole (Summarize), and which expressions probably do not mean what they say (Doubts). It contacts no cluster and no bus.
package explain
