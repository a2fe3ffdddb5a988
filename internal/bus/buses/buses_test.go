package buses_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/buses"
	"github.com/kubecdc/kubecdc/internal/bus/catalog"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
)

// Settings without their runtime would fail only at the start of an agent.
func TestAllOfTheCatalogRun(t *testing.T) {
	t.Parallel()
	for _, d := range catalog.Targets() {
		c := d.Default()
		o := buses.Of(c)
		if o == nil {
			t.Errorf("nothing opens %s", d.Name)
		}
		if _, readable := c.(driver.Readable); readable {
			if _, ok := o.(driver.Reader); !ok {
				t.Errorf("nothing reads %s", d.Name)
			}
		}
		if _, rows := c.(driver.Changelogger); rows {
			if _, ok := o.(driver.ChangelogOpener); !ok {
				t.Errorf("nothing writes rows to %s", d.Name)
			}
		}
	}
	if buses.Of(nil) != nil {
		t.Error("something runs without settings")
	}
}
