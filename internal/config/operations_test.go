package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/object"
)

// The operations of a relay are those of the event contract.
func TestOperations(t *testing.T) {
	var want []string
	for _, op := range object.Ops() {
		want = append(want, op.Word())
	}
	if diff := cmp.Diff(want, config.Operation("").Values()); diff != "" {
		t.Errorf("operations of the contract and of relays differ (-contract +relays):\n%s", diff)
	}
}
