package informer

import (
	"os"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/object"
)

// The reference of the metrics names each reason of a gap that an informer can find.
func TestGapReasonsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| `kubecdc_informer_gaps_total`") {
			continue
		}
		for _, reason := range object.GapReasons() {
			if isFound := isFoundByInformers(reason); isFound != strings.Contains(line, string(reason)) {
				t.Errorf("%s: found by informers: %t, %s", reason, isFound, line)
			}
		}
		return
	}
	t.Error("the reference does not have the metric")
}

// isFoundByInformers reports whether informers find gaps of a reason.
func isFoundByInformers(reason object.GapReason) bool {
	return reason != object.DeadLetter && reason != object.Forbidden
}
