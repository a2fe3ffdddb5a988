package consume_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/pkg/consume/internal/consumetest"
)

// TestDocsExamples compares each block of JSON in events.md with the golden event that the comment
// above it names.
func TestDocsExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	events := map[string]string{}
	for _, r := range consumetest.Goldens(t, "structured") {
		events[r.Name] = string(r.Body)
	}
	blocks := regexp.MustCompile("(?m)^(?:<!-- golden: (.*) -->\n)?```json\n((?s:.*?))^```$").FindAllSubmatch(page, -1)
	for _, block := range blocks {
		var compact bytes.Buffer
		if err := json.Compact(&compact, block[2]); err != nil {
			t.Fatalf("%v in\n%s", err, block[2])
		}
		if diff := cmp.Diff(events[string(block[1])], compact.String()); diff != "" {
			t.Errorf("golden event %q (-golden +page):\n%s", block[1], diff)
		}
	}
	if len(blocks) < 4 {
		t.Errorf("events.md has %d examples: the test shows nothing of the others", len(blocks))
	}
}
