package stdout

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
)

// Config is the settings of the bus, of which there are none.
type Config struct{}

// Driver returns the driver of the bus "stdout".
func Driver() *driver.Driver {
	return &driver.Driver{
		Name: "stdout", Schemes: []string{"stdout"}, URL: "stdout:", Stdout: true,
		Default: func() driver.Config { return new(Config) },
	}
}

// SetURL implements driver.Config.
func (*Config) SetURL(string) error { return nil }

// Validate implements driver.Config.
func (*Config) Validate(*field.Path, *driver.Facts) field.ErrorList { return nil }

// Summary implements driver.Config.
func (*Config) Summary() driver.Summary {
	return driver.Summary{Kind: "stdout", Text: "standard output, as JSON lines", Log: "standard output", Identity: "stdout"}
}

// Open implements driver.Config.
func (*Config) Open(e *driver.Env) (publish.Bus, error) { return New(e.Stdout, e.Fence), nil }
