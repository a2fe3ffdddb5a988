// Command screenshots draws the terminal output of kubecdc's commands. It runs the binary with the
// files of testdata and renders the colours of its output as SVG, for README.md and docs/. `make
// screenshots` writes the files of docs/images; a test compares them with the current output of the
// binary.
//
// testdata/*.jsonl are records of the demo, taken with
//
//	kubecdc tail -o json --since all > all.jsonl
//
// and trimmed to the ones worth showing: whole lines, as they were. The images show the command
// line as a person types it, without the --bus that names the file.
package main
