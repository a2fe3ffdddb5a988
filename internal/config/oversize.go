package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/catalog"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/http/httpconfig"
	"github.com/kubecdc/kubecdc/internal/config/check"
)

// Oversize is a part that is removed from an event that is too large.
type Oversize string

// The parts.
const (
	OversizePatch     Oversize = "patch"
	OversizeBefore    Oversize = "before"
	OversizeReference Oversize = "reference" // all of it: the event refers to the stored whole, see ClaimCheck
)

// Values returns all parts.
func (Oversize) Values() []string {
	return check.Names(OversizePatch, OversizeBefore, OversizeReference)
}

// ClaimCheck is the place where events are stored that are too large for the bus. At most one of
// its fields is set. In a file, `claimCheck: {}` means that there is no place.
type ClaimCheck struct {
	ObjectStore *driver.ObjectStore      `yaml:"objectStore,omitempty"`
	Directory   *ClaimDirectory          `yaml:"directory,omitempty"`
	HTTP        *httpconfig.ClientConfig `yaml:"http,omitempty"` // a server that stores files by PUT below a URL
}

// SetDefaults removes the default claim check, as Bus does.
func (c *ClaimCheck) SetDefaults() { *c = ClaimCheck{} }

// isNone reports whether there is no place.
func (c *ClaimCheck) isNone() bool { return *c == ClaimCheck{} }

// ClaimDirectory is a directory, for example one that consumers can read.
type ClaimDirectory struct {
	Path string `yaml:"path"` // absolute
}

// DeadLetter is the destination of events that the bus rejects for good: at most one member, with
// the key of the bus's driver. In a file, `deadLetter: {}` means that there is no destination.
type DeadLetter map[string]string

// Keys implements yamldoc.Variants.
func (DeadLetter) Keys() []string {
	var keys []string
	for _, d := range withDeadLetters() {
		keys = append(keys, d.DeadLetter.Key)
	}
	return keys
}

// New implements yamldoc.Variants.
func (DeadLetter) New(string) any { return new(string) }

// withDeadLetters returns the drivers that have dead letters.
func withDeadLetters() []*driver.Driver {
	return slices.DeleteFunc(catalog.Buses(), func(d *driver.Driver) bool { return d.DeadLetter == nil })
}

// Of returns the destination of a driver's dead letters, "" if there is none.
func (d DeadLetter) Of(bus *driver.Driver) string {
	if bus == nil || bus.DeadLetter == nil {
		return ""
	}
	return d[bus.DeadLetter.Key]
}

// hasObjectStore reports whether the bus has a store for large events.
func (b Bus) hasObjectStore() bool {
	d, _ := b.Chosen()
	return d != nil && d.ObjectStore
}

// defaultClaimCheck returns the object store of a bus, if it has one.
func (b Bus) defaultClaimCheck() ClaimCheck {
	if !b.hasObjectStore() {
		return ClaimCheck{}
	}
	store := new(driver.ObjectStore)
	store.SetDefaults()
	return ClaimCheck{ObjectStore: store}
}

// defaultDeadLetter returns the default destination for a bus.
func (c *Config) defaultDeadLetter(b Bus) DeadLetter {
	d, settings := b.Chosen()
	if d == nil || d.DeadLetter == nil {
		return nil
	}
	value := d.DeadLetter.Default(settings, c.Cluster)
	if value == "" {
		return nil
	}
	return DeadLetter{d.DeadLetter.Key: value}
}

// defaultOversize returns all parts. Without a claim check, events cannot have a reference.
func (c *Config) defaultOversize() []Oversize {
	if c.ClaimCheck.isNone() {
		return []Oversize{OversizePatch, OversizeBefore}
	}
	return []Oversize{OversizePatch, OversizeBefore, OversizeReference}
}

// UseBus replaces the bus of the file. Settings that were defaults for the former bus, or are not
// for this one, become the defaults of this one.
func (c *Config) UseBus(b Bus) {
	former := c.Bus
	wasDefault := slices.Equal(c.Oversize, c.defaultOversize())
	c.Bus = b
	if c.ClaimCheck.ObjectStore != nil && !b.hasObjectStore() || c.ClaimCheck.isNone() && !former.hasObjectStore() {
		c.ClaimCheck = b.defaultClaimCheck()
	}
	if d, _ := b.Chosen(); maps.Equal(c.DeadLetter, c.defaultDeadLetter(former)) ||
		len(c.DeadLetter) > 0 && c.DeadLetter.Of(d) == "" {
		c.DeadLetter = c.defaultDeadLetter(b)
	}
	switch {
	case wasDefault:
		c.Oversize = c.defaultOversize()
	case c.ClaimCheck.isNone():
		c.Oversize = slices.DeleteFunc(slices.Clone(c.Oversize), func(o Oversize) bool {
			return o == OversizeReference
		})
	}
}

func (c *Config) validateOversize(path *field.Path) field.ErrorList {
	list := check.Unique(c.Oversize, path)
	for i, o := range c.Oversize {
		switch at := path.Index(i); {
		case o == OversizeReference && c.ClaimCheck.isNone():
			list = append(list,
				field.Forbidden(at,
					"needs a store for the whole event: configure one under claimCheck, or remove reference"))
		default:
			list = append(list, check.InEnum(at, o)...)
		}
	}
	return list
}

func (c *Config) validateClaimCheck(path *field.Path) field.ErrorList {
	k := &c.ClaimCheck
	if list := check.OnlyOne(path, "place", false, check.Choice{Name: "objectStore", Is: k.ObjectStore != nil},
		check.Choice{Name: "directory", Is: k.Directory != nil},
		check.Choice{Name: "http", Is: k.HTTP != nil}); len(list) > 0 {
		return list
	}
	var list field.ErrorList
	switch {
	case k.ObjectStore != nil:
		at := path.Child("objectStore")
		list = append(list,
			check.If(!c.Bus.hasObjectStore(),
				field.Forbidden(at,
					"is on the servers of bus.nats, which is not the bus; name a directory or http"))...)
		list = append(list,
			check.Matches(at.Child("bucket"), k.ObjectStore.Bucket, bucketName,
				`must be at most 128 letters, digits, "-" or "_"`)...)
		list = append(list,
			check.If(k.ObjectStore.MaxBytes < 0,
				field.Invalid(at.Child("maxBytes"), k.ObjectStore.MaxBytes, "must not be negative"))...)
	case k.Directory != nil:
		at := path.Child("directory", "path")
		list = append(list,
			check.Matches(at, k.Directory.Path, check.AbsolutePath,
				"must be an absolute path, such as /var/lib/kubecdc/large")...)
	case k.HTTP != nil:
		list = append(list, k.HTTP.Validate(path.Child("http"))...)
	}
	return list
}

var bucketName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

func (c *Config) validateDeadLetter(path *field.Path) field.ErrorList {
	var all []check.Choice
	for _, key := range c.DeadLetter.Keys() {
		all = append(all, check.Choice{Name: key, Is: c.DeadLetter[key] != ""})
	}
	if list := check.OnlyOne(path, "place", false, all...); len(list) > 0 {
		return list
	}
	bus, settings := c.Bus.Chosen()
	for _, d := range withDeadLetters() {
		value := c.DeadLetter.Of(d)
		switch at := path.Child(d.DeadLetter.Key); {
		case value == "":
		case bus == nil || d.Name == bus.Name:
			return d.DeadLetter.Validate(at, value, settings, c.facts())
		case bus.DeadLetter == nil:
			return field.ErrorList{
				field.Forbidden(at, fmt.Sprintf("is for bus.%s; bus.%s rejects nothing, remove it", d.Name, bus.Name)),
			}
		default:
			return field.ErrorList{
				field.Forbidden(at, fmt.Sprintf("is for bus.%s; with this bus write %s", d.Name, bus.DeadLetter.Key)),
			}
		}
	}
	return nil
}
