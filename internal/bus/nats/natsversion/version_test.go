package natsversion_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/nats/natsversion"
)

func TestVersions(t *testing.T) {
	for version, want := range map[string]struct{ tooOld, loses bool }{
		"1.4.1":          {true, true},
		"2.2.0":          {true, true},
		"2.9.25":         {true, true},
		"2.10.0":         {false, true},
		"2.10.0-beta.1":  {false, true},
		"2.11.8":         {false, true},
		"2.12.15":        {false, true},
		"v2.12.15":       {false, true},
		"2.14.0":         {false, false},
		"2.15.2":         {false, false},
		"2.15.0-RC.1":    {false, false},
		"3.0.0":          {false, false},
		"":               {false, false}, // not connected
		"dev":            {false, false},
		"2.x":            {false, false},
		"99999999999999": {false, false},
	} {
		if got := natsversion.Check(version) != nil; got != want.tooOld {
			t.Errorf("%q is too old: %t, want %t", version, got, want.tooOld)
		}
		if got := natsversion.LosesWhenFull(version); got != want.loses {
			t.Errorf("%q loses records: %t, want %t", version, got, want.loses)
		}
	}
}
