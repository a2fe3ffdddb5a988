// Package walk goes through README as a person does: every command of it, in its order, in an empty home directory, with a
// real API server and the real kubectl. A command that no step knows fails the test, and so does a step whose command is
// gone. What other documents name is held against what there is: tests, targets, folders.
package walk
