// Package walk runs the commands of the documentation in an empty home directory, with a real API
// server and the real kubectl. TestREADME runs each command of README and docs/start in order, and
// checks the output. TestDocumentedCommands runs those of the other pages. The tests fail for a
// command that none of them runs, and for an exception whose command is on no page. Other tests
// compare the documents with the repository: tests and their tiers, targets, folders, links.
package walk
