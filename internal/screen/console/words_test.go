package console_test

import (
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/screen/console"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Each op, and each reason of a gap or an end, has words of its own.
func TestWords(t *testing.T) {
	words := map[string]bool{}
	note := func(what, member, text string) {
		if text == "" || text == member || words[text] {
			t.Errorf("%s %s: %q", what, member, text)
		}
		words[text] = true
	}
	for _, op := range consume.Ops() {
		note("op", string(op), console.OpWord(op))
	}
	for _, reason := range consume.GapReasons() {
		text := console.GapReason(&consume.Stream{Reason: reason})
		note("gap", string(reason), strings.TrimPrefix(text, string(reason)+": ")+" ("+string(reason)+")")
		if !strings.HasPrefix(text, string(reason)+": ") {
			t.Errorf("gap %s: %q", reason, text)
		}
	}
	for _, reason := range consume.EndReasons() {
		note("end", string(reason), console.EndReason(&consume.Stream{End: reason, Successors: []string{"pods/shop"}}))
	}
}
