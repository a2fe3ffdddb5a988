// Command prose checks the language of documents, help texts, the chart, messages and comments:
// sentences that are too long, and phrases that a reader stumbles over. The rules are in rules.go.
//
//	go run ./prose docs                       documents
//	go run ./prose help                       help texts of the commands
//	go run ./prose chart                      the chart and the default configuration: documents, notes, comments, alerts
//	go run ./prose messages                   errors and log lines
//	go run ./prose comments internal/queue    comments of packages
//
// Paths are relative to the repository. The exit code is 1 if there are findings.
package main
