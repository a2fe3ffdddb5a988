package answers

import (
	"context"

	"github.com/kubecdc/kubecdc/internal/past/answer"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
)

// Audit prints whether the record has every change of the objects in a span. The error is
// answer.ErrNotProven if it does not.
func (q *Question) Audit(ctx context.Context, s *answer.AuditSpan) error {
	report, err := q.Question.Audit(ctx, s)
	if err != nil {
		return err
	}
	switch q.Format.Name {
	case printer.JSON, printer.YAML:
		err = q.printValue(report)
	case printer.Markdown:
		err = WriteMarkdown(q.Stdout, report)
	default:
		err = writeText(q.Stdout, report)
	}
	if err == nil && !report.IsProven() {
		err = answer.ErrNotProven
	}
	return err
}
