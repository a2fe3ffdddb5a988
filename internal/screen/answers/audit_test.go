package answers_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/audit"
	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
)

// A name in the record is text in a table of Markdown, whatever it contains.
func TestMarkdownOfHostileNames(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	end := noon.Add(time.Hour)
	scopes := []certainty.Scope{{Resource: "pods", Name: "pods/a|b\n# x<script>", Certainty: certainty.Exact}}
	r := audit.New(noon, end).Report(audit.Asked{}, []audit.Part{{
		Since: noon, Until: end, Answer: certainty.New("", scopes, ""),
	}})
	r.Question.Objects, r.Question.Command = []string{"*x*"}, "kubecdc audit"
	var b strings.Builder
	if err := answers.WriteMarkdown(&b, r); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script>", "\n# x", "a|b\n"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("the report has %q:\n%s", bad, b.String())
		}
	}
}
