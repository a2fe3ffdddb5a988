package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/catalog"
	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/object"
)

// Bus is the destination of records: the settings of a driver, by its name. Validate requires
// exactly one. A `bus` in the file replaces the default one, and is not merged with it.
type Bus map[string]driver.Config

// Keys implements yamldoc.Variants.
func (Bus) Keys() []string { return catalog.Names(catalog.Buses()) }

// New implements yamldoc.Variants.
func (Bus) New(name string) any { return catalog.Named(catalog.Buses(), name).Default() }

// Chosen returns the bus. It may be one of several, or nil, if the configuration is not valid.
func (b Bus) Chosen() (*driver.Driver, driver.Config) { return chosen(catalog.Buses(), b) }

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

// BusOf returns the bus that a URL names, with the settings of configured for a bus of its kind. ok
// is false if no bus has its scheme, or the URL has another form.
func BusOf(url string, configured Bus) (b Bus, ok bool) {
	return ofURL(catalog.Buses(), url, configured)
}

func ofURL(all []*driver.Driver, url string, configured map[string]driver.Config) (map[string]driver.Config, bool) {
	scheme, _, _ := strings.Cut(url, ":")
	i := slices.IndexFunc(all, func(d *driver.Driver) bool { return slices.Contains(d.Schemes, scheme) })
	if i < 0 {
		return nil, false
	}
	c, ok := configured[all[i].Name]
	if !ok {
		c = all[i].Default()
	}
	if c.SetURL(url) != nil {
		return nil, false
	}
	return map[string]driver.Config{all[i].Name: c}, true
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
	if list := check.OnlyOne(path, "bus", true, choices(catalog.Buses(), c.Bus)...); len(list) > 0 {
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

// Relay forwards records of the bus to a target, with a cursor of its own.
type Relay struct {
	Name       string            `yaml:"name"`  // of its cursor: at most 63 of a-z, 0-9 and "-"
	Start      RelayStart        `yaml:"start"` // used only if there is no cursor
	Resources  []ResourcePattern `yaml:"resources,omitempty"`
	Namespaces Namespaces        `yaml:"namespaces,omitempty"`
	Operations []Operation       `yaml:"operations,omitempty"` // none: all
	Refused    RelayRefused      `yaml:"refused"`
	Format     RelayFormat       `yaml:"format"`
	// StreamTopic is the topic of the events about the stream, with FormatDebezium. "": derived
	// from the topic of the target.
	StreamTopic string      `yaml:"streamTopic,omitempty"`
	To          RelayTarget `yaml:"to"`
}

// SetDefaults sets the defaults of a relay.
func (r *Relay) SetDefaults() { *r = Relay{Start: RelayLive, Refused: RelayStop, Format: FormatEvents} }

// Takes reports whether the relay selects the resource. Group is "" for the core group.
func (r *Relay) Takes(group, version, resource string) bool {
	rule := Rule{Resources: r.Resources}
	return len(r.Resources) == 0 || rule.Takes(group, version, resource)
}

// Copies reports whether the relay selects all events of a scope of a resource
// ("deployments.apps"). scope is its name; "" stands for all scopes of the resource. It returns
// false if that is not certain.
func (r *Relay) Copies(resource, scope string) bool {
	plural, group, _ := strings.Cut(resource, ".")
	if len(r.Operations) > 0 || !r.Takes(group, "", plural) { // a version in a pattern may not be the one of the events
		return false
	}
	if r.Namespaces.All() {
		return true
	}
	namespaces := NamespacesOf(scope)
	return len(namespaces) > 0 && r.Namespaces.covers(namespaces)
}

// NamespacesOf returns the namespaces in the name of a scope, such as
// "pods/team-?,!team-x?labelSelector=app=web"; none: it has all.
func NamespacesOf(scope string) Namespaces {
	if eq := strings.IndexByte(scope, '='); eq >= 0 { // patterns have none
		scope = scope[:max(strings.LastIndexByte(scope[:eq], '?'), 0)]
	}
	_, patterns, ok := strings.Cut(scope, "/")
	if !ok {
		return nil
	}
	var all Namespaces
	for p := range strings.SplitSeq(patterns, ",") {
		all = append(all, NamespacePattern(p))
	}
	return all
}

// RelayStart is the position at which a relay without a cursor starts.
type RelayStart string

// The positions.
const (
	RelayLive      RelayStart = "live"      // records that arrive after its first start
	RelayBeginning RelayStart = "beginning" // the oldest record of the bus
)

// Values returns both.
func (RelayStart) Values() []string { return check.Names(RelayLive, RelayBeginning) }

// RelayRefused is the reaction to a record that the target rejects for good.
type RelayRefused string

// The reactions.
const (
	RelayStop RelayRefused = "stop" // the relay stops until an operator intervenes
	RelaySkip RelayRefused = "skip" // the record is counted, logged and skipped; it remains on the bus
)

// Values returns both.
func (RelayRefused) Values() []string { return check.Names(RelayStop, RelaySkip) }

// RelayFormat is the form in which a relay sends events.
type RelayFormat string

// The forms.
const (
	FormatEvents   RelayFormat = "events"   // as they are on the bus
	FormatDebezium RelayFormat = "debezium" // as rows of a table, in the envelope of Debezium; only to Kafka
)

// Values returns both.
func (RelayFormat) Values() []string { return check.Names(FormatEvents, FormatDebezium) }

// Operation is the word for an op (object.Op.Word), which ends the type of an object's event.
type Operation string

// OperationOf returns the Operation of an op.
func OperationOf(op object.Op) Operation { return Operation(op.Word()) }

// Values returns the words for all ops of the event contract.
func (Operation) Values() []string {
	var words []string
	for _, op := range object.Ops() {
		words = append(words, op.Word())
	}
	return words
}

// RelayTarget is the target of a relay: the settings of a driver, by its name. Validate requires
// exactly one.
type RelayTarget map[string]driver.Config

// Keys implements yamldoc.Variants.
func (RelayTarget) Keys() []string { return catalog.Names(catalog.Targets()) }

// New implements yamldoc.Variants.
func (RelayTarget) New(name string) any { return catalog.Named(catalog.Targets(), name).Default() }

// Chosen returns the target. It may be one of several, or nil, if the configuration is not valid.
func (t RelayTarget) Chosen() (*driver.Driver, driver.Config) { return chosen(catalog.Targets(), t) }

// TargetOf returns the target that a URL names; ok is false if none has its scheme, or the URL has
// another form.
func TargetOf(url string) (t RelayTarget, ok bool) {
	return ofURL(catalog.Targets(), url, nil)
}

func (c *Config) validateRelays(path *field.Path) field.ErrorList {
	var list field.ErrorList
	if _, bus := c.Bus.Chosen(); len(c.Relays) > 0 && bus != nil {
		if _, ok := bus.(driver.Readable); !ok {
			list = append(list, field.Forbidden(path, ErrNotReadable().Error()))
		}
	}
	seen := map[string]int{}
	for i := range c.Relays {
		r, at := &c.Relays[i], path.Index(i)
		switch first, twice := seen[r.Name]; {
		case r.Name == "":
			list = append(list, field.Required(at.Child("name"), "is missing: the relay stores its position under it"))
		case !relayName.MatchString(r.Name):
			list = append(list,
				field.Invalid(at.Child("name"), r.Name,
					`must be at most 63 of a-z, 0-9 and "-", beginning and ending with a letter or digit`))
		case twice:
			list = append(list,
				field.Invalid(at.Child("name"), r.Name,
					fmt.Sprintf("must be unique, %s has the same", path.Index(first))))
		default:
			seen[r.Name] = i
		}
		list = append(list, check.InEnum(at.Child("start"), r.Start)...)
		list = append(list, check.Unique(r.Resources, at.Child("resources"))...)
		list = append(list, check.Unique(r.Namespaces, at.Child("namespaces"))...)
		list = append(list, r.Namespaces.validate(at.Child("namespaces"))...)
		list = append(list, check.Unique(r.Operations, at.Child("operations"))...)
		for j, o := range r.Operations {
			list = append(list, check.InEnum(at.Child("operations").Index(j), o)...)
		}
		list = append(list, check.InEnum(at.Child("refused"), r.Refused)...)
		target := c.validateTarget(r.To, at.Child("to"))
		list = append(list, target...)
		list = append(list, c.validateFormat(r, at, len(target) == 0)...)
	}
	return list
}

// validateFormat checks the keys of a relay's format. isTarget reports whether the target is valid.
func (c *Config) validateFormat(r *Relay, path *field.Path, isTarget bool) field.ErrorList {
	list := check.InEnum(path.Child("format"), r.Format)
	if r.Format != FormatDebezium {
		return append(list,
			check.If(r.StreamTopic != "",
				field.Forbidden(path.Child("streamTopic"), "has an effect only with format: debezium; remove it"))...)
	}
	list = append(list, check.If(len(r.Operations) > 0, field.Forbidden(path.Child("operations"),
		"cannot be combined with format: debezium: a table without some operations would be wrong; remove it"))...)
	d, settings := r.To.Chosen()
	target, ok := settings.(driver.Changelogger)
	switch {
	case d != nil && !ok:
		return append(list,
			field.Invalid(path.Child("format"), r.Format,
				"is possible only to "+check.Listed(catalog.Names(catalog.Changelogs()), "or")+", and "+
					path.Child("to").String()+" is "+d.Name))
	case !isTarget:
		return list
	}
	return append(list,
		target.ValidateChangelog(path.Child("to", d.Name), path.Child("streamTopic"), r.StreamTopic,
			c.targetFacts())...)
}

var relayName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// ErrNotReadable returns the error about a relay of a bus that stores no records.
func ErrNotReadable() error {
	kept := catalog.Names(catalog.Readable())
	others := slices.DeleteFunc(catalog.Names(catalog.Buses()), func(name string) bool {
		return slices.Contains(kept, name)
	})
	return fmt.Errorf("reads the bus, which must be %s: %s keep no records", check.Listed(kept, "or"),
		check.Listed(others, "and"))
}

func (c *Config) validateTarget(t RelayTarget, path *field.Path) field.ErrorList {
	if list := check.OnlyOne(path, "target", true, choices(catalog.Targets(), t)...); len(list) > 0 {
		return list
	}
	d, settings := t.Chosen()
	return settings.Validate(path.Child(d.Name), c.targetFacts())
}

// targetFacts returns the settings outside of `to` that the target of a relay needs.
func (c *Config) targetFacts() *driver.Facts {
	f := c.facts()
	f.Target = true
	_, f.Source = c.Bus.Chosen()
	return f
}
