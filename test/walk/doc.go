// Package walk does what the documentation says, in an empty home directory, with a real API server and the real kubectl.
// TestREADME runs every command of README and docs/start in order, and checks what it shows. TestDocumentedCommands runs those of
// the other pages. A command that no test runs fails, and so does an entry of a list whose command no page shows. Other tests compare the
// documents with what exists: tests, targets, folders, links.
package walk
