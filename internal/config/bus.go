package config

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/publish/driver"
	"github.com/kubecdc/kubecdc/internal/publish/drivers"
)

// Bus is the destination of records: the settings of a driver, by its name. Validate requires exactly one. A `bus` in the file
// replaces the default one, and is not merged with it.
type Bus map[string]driver.Config

// Keys implements yamldoc.Variants.
func (Bus) Keys() []string { return drivers.Names(drivers.Buses()) }

// New implements yamldoc.Variants.
func (Bus) New(name string) any { return drivers.Named(drivers.Buses(), name).Default() }

// Chosen returns the bus. It may be one of several, or nil, if the configuration is not valid.
func (b Bus) Chosen() (*driver.Driver, driver.Config) { return chosen(drivers.Buses(), b) }

func chosen(all []*driver.Driver, settings map[string]driver.Config) (*driver.Driver, driver.Config) {
	for _, d := range all {
		if c, ok := settings[d.Name]; ok {
			return d, c
		}
	}
	return nil, nil
}

// choices returns the drivers that a mapping can name, and whether it names them.
func choices(all []*driver.Driver, settings map[string]driver.Config) []check.Choice {
	list := make([]check.Choice, len(all))
	for i, d := range all {
		_, is := settings[d.Name]
		list[i] = check.Choice{Name: d.Name, Is: is}
	}
	return list
}

// BusOf returns the bus that a URL names, with the settings of configured for a bus of its kind. ok is false if no bus has its scheme, or the
// URL has another form.
func BusOf(url string, configured Bus) (b Bus, ok bool) {
	d, c, ok := ofURL(drivers.Buses(), url, configured)
	if !ok {
		return nil, false
	}
	return Bus{d.Name: c}, true
}

func ofURL(all []*driver.Driver, url string, configured map[string]driver.Config) (*driver.Driver, driver.Config, bool) {
	scheme, _, _ := strings.Cut(url, ":")
	i := slices.IndexFunc(all, func(d *driver.Driver) bool { return slices.Contains(d.Schemes, scheme) })
	if i < 0 {
		return nil, nil, false
	}
	c, ok := configured[all[i].Name]
	if !ok {
		c = all[i].Default()
	}
	return all[i], c, c.SetURL(url) == nil
}

// facts returns the settings outside of `bus` that a bus needs.
func (c *Config) facts() *driver.Facts {
	f := &driver.Facts{MaxEventBytes: c.Event.MaxBytes, Binary: c.Event.Mode == EventBinary}
	if clusterName.MatchString(c.Cluster) {
		f.Cluster = c.Cluster
	}
	return f
}

func (c *Config) validateBus(path *field.Path) field.ErrorList {
	if list := check.OnlyOne(path, "bus", true, choices(drivers.Buses(), c.Bus)...); len(list) > 0 {
		return list
	}
	d, settings := c.Bus.Chosen()
	return settings.Validate(path.Child(d.Name), c.facts())
}

// Stdout reports whether records go to standard output.
func (b Bus) Stdout() bool {
	d, _ := b.Chosen()
	return d != nil && d.Stdout
}
