package config_test

import (
	"errors"
	"os"
	"testing"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// FuzzParse: whatever the file holds, Parse returns a valid configuration or Errors, and does not
// panic.
func FuzzParse(f *testing.F) {
	names := []string{defaultFile}
	for _, dir := range []string{"testdata/good/", "testdata/bad/"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			f.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, dir+e.Name())
		}
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.Parse(data, "fuzz")
		var errs yamldoc.Errors
		switch {
		case err == nil:
			if err := c.Validate(); err != nil {
				t.Errorf("parsed and not valid: %v", err)
			}
		case !errors.As(err, &errs) || err.Error() == "":
			t.Errorf("%T: %v", err, err)
		}
	})
}
