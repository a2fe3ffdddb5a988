package console

import (
	"fmt"
	"strings"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Printable escapes everything in text that a terminal might interpret.
func Printable(text string) string { return clean(text) }

// Ops returns the words for the operations on objects.
func Ops() []string {
	var words []string
	for _, op := range consume.Ops() {
		words = append(words, op.Word())
	}
	return words
}

// Letters returns the short words for the operations: "c, u, d, r, e, l".
func Letters() string {
	var all []string
	for _, op := range consume.Ops() {
		all = append(all, string(op))
	}
	return strings.Join(all, ", ")
}

// ReadOp parses an operation on objects: its word, or the first letter of that.
func ReadOp(s string) (consume.Op, error) {
	word := strings.ToLower(strings.TrimSpace(s))
	for _, op := range consume.Ops() {
		if word == op.Word() || word == string(op) {
			return op, nil
		}
	}
	return "", fmt.Errorf("want some of %s (or %s), separated by commas", strings.Join(Ops(), ", "), Letters())
}
