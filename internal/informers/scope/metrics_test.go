package scope

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
			if isFound := len(recoveriesOf(reason)) > 0; isFound != strings.Contains(line, string(reason)) {
				t.Errorf("%s: found by informers: %t, %s", reason, isFound, line)
			}
		}
		return
	}
	t.Error("the reference does not have the metric")
}
