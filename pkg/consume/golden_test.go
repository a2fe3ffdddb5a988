package consume_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

func parse(tb testing.TB, record string) *consume.Event {
	tb.Helper()
	e, err := consume.Parse([]byte(record))
	if err != nil {
		tb.Fatalf("%v in %s", err, record)
	}
	return e
}
