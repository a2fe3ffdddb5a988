package config

import (
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Relay takes records from the bus and sends them on, with a cursor of its own.
type Relay struct {
	Name       string            `yaml:"name"`  // of its cursor: at most 63 of a-z, 0-9 and "-"
	Start      RelayStart        `yaml:"start"` // matters only where there is no cursor yet
	Resources  []ResourcePattern `yaml:"resources,omitempty"`
	Namespaces Namespaces        `yaml:"namespaces,omitempty"`
	Operations []Operation       `yaml:"operations,omitempty"` // none: all
	Refused    RelayRefused      `yaml:"refused"`
	To         RelayTarget       `yaml:"to"`
}

// SetDefaults sets the defaults of a relay.
func (r *Relay) SetDefaults() { *r = Relay{Start: RelayLive, Refused: RelayStop} }

// Takes reports whether the relay names the resource, or none at all. Group is "" for the core group.
func (r *Relay) Takes(group, version, resource string) bool {
	rule := Rule{Resources: r.Resources}
	return len(r.Resources) == 0 || rule.Takes(group, version, resource)
}

// RelayStart is where a relay begins that has no cursor yet.
type RelayStart string

// Where a relay begins.
const (
	RelayLive      RelayStart = "live"      // with what comes after its first start
	RelayBeginning RelayStart = "beginning" // with the oldest record of the bus
)

// Values are both.
func (RelayStart) Values() []string { return names(RelayLive, RelayBeginning) }

// RelayRefused is what becomes of a record that the target refuses for good.
type RelayRefused string

// What becomes of it.
const (
	RelayStop RelayRefused = "stop" // the relay stands still until somebody has looked
	RelaySkip RelayRefused = "skip" // it is counted, logged and passed over; the bus has it still
)

// Values are both.
func (RelayRefused) Values() []string { return names(RelayStop, RelaySkip) }

// Operation is what an event says about an object: the last word of its type.
type Operation string

// The operations.
const (
	Created Operation = "created"
	Updated Operation = "updated"
	Deleted Operation = "deleted"
	Read    Operation = "read"    // it exists, says a snapshot
	Entered Operation = "entered" // it began to match a selector
	Left    Operation = "left"    // it ceased to
)

// Values are all operations.
func (Operation) Values() []string { return names(Created, Updated, Deleted, Read, Entered, Left) }

// RelayTarget is where a relay sends records: exactly one that is not nil.
type RelayTarget struct {
	Slack  *Slack  `yaml:"slack,omitempty"`
	HTTP   *HTTP   `yaml:"http,omitempty"`
	NATS   *NATS   `yaml:"nats,omitempty"`
	Kafka  *Kafka  `yaml:"kafka,omitempty"`
	Stdout *Stdout `yaml:"stdout,omitempty"`
}

// Slack is a channel of Slack: by an incoming webhook, or by a token and the channel's name.
type Slack struct {
	URLFile   string `yaml:"urlFile,omitempty"` // holds the webhook's URL, which is a secret
	TokenFile string `yaml:"tokenFile,omitempty"`
	Channel   string `yaml:"channel,omitempty"` // "#deploys" or its id, with TokenFile
}

func (c *Config) validateRelays(path *field.Path) field.ErrorList {
	var list field.ErrorList
	if len(c.Relays) > 0 && c.Bus.NATS == nil && c.Bus.Kafka == nil && (c.Bus.HTTP != nil || c.Bus.Stdout != nil) {
		list = append(list, field.Forbidden(path, "reads the bus, which has to be nats or kafka: http and stdout keep nothing that could be read"))
	}
	seen := map[string]int{}
	for i := range c.Relays {
		r, at := &c.Relays[i], path.Index(i)
		switch first, twice := seen[r.Name]; {
		case r.Name == "":
			list = append(list, field.Required(at.Child("name"), "is missing: the relay goes on by it where it ended"))
		case !relayName.MatchString(r.Name):
			list = append(list, field.Invalid(at.Child("name"), r.Name, `must be at most 63 of a-z, 0-9 and "-", beginning and ending with a letter or digit`))
		case twice:
			list = append(list, field.Invalid(at.Child("name"), r.Name, fmt.Sprintf("must not be that of another relay, it is that of %s", path.Index(first))))
		default:
			seen[r.Name] = i
		}
		list = append(list, inEnum(at.Child("start"), r.Start)...)
		list = append(list, unique(r.Resources, at.Child("resources"))...)
		list = append(list, unique(r.Namespaces, at.Child("namespaces"))...)
		list = append(list, r.Namespaces.validate(at.Child("namespaces"))...)
		list = append(list, unique(r.Operations, at.Child("operations"))...)
		for j, o := range r.Operations {
			list = append(list, inEnum(at.Child("operations").Index(j), o)...)
		}
		list = append(list, inEnum(at.Child("refused"), r.Refused)...)
		list = append(list, c.validateTarget(&r.To, at.Child("to"))...)
	}
	return list
}

var relayName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

func (c *Config) validateTarget(t *RelayTarget, path *field.Path) field.ErrorList {
	list := onlyOne(path, "target", true, choice{"slack", t.Slack != nil}, choice{"http", t.HTTP != nil}, choice{"nats", t.NATS != nil},
		choice{"kafka", t.Kafka != nil}, choice{"stdout", t.Stdout != nil})
	switch {
	case len(list) > 0:
	case t.Slack != nil:
		list = t.Slack.validate(path.Child("slack"))
	case t.HTTP != nil:
		list = t.HTTP.validate(path.Child("http"), EventStructured) // whatever comes, it goes on so
		if u, err := url.Parse(t.HTTP.URL); err == nil && u.Hostname() == "hooks.slack.com" {
			list = append(list, field.Forbidden(path.Child("http", "url"), "is a webhook of Slack, which takes no CloudEvents and whose URL is a secret: "+
				"write slack: {urlFile: /etc/kubecdc/webhook}, with the URL in that file"))
		}
	case t.NATS != nil:
		list = t.NATS.validate(path.Child("nats"))
		if b := c.Bus.NATS; b != nil && shared(strings.Split(b.URL, ","), strings.Split(t.NATS.URL, ",")) {
			switch {
			case b.Stream.Name == t.NATS.Stream.Name:
				list = append(list, field.Forbidden(path.Child("nats"), "is the bus itself: the relay would read what it has written; name another server, or a stream of another account"))
			case reflect.DeepEqual(b.Auth, t.NATS.Auth) && reflect.DeepEqual(b.TLS, t.NATS.TLS):
				list = append(list, field.Forbidden(path.Child("nats"), "is on the server of the bus and in its account, where the stream of the bus takes these subjects; name another server, or the auth of another account"))
			}
		}
	case t.Kafka != nil:
		list = t.Kafka.validate(path.Child("kafka"), c.Event.MaxBytes)
		if b := c.Bus.Kafka; b != nil && topicsMeet(c.inCluster(b.Topic), c.inCluster(t.Kafka.Topic)) && shared(b.Brokers, t.Kafka.Brokers) {
			list = append(list, field.Forbidden(path.Child("kafka"), "has topics of the bus itself: the relay would read what it has written; name another topic or cluster"))
		}
	}
	return list
}

// shared reports whether two lists of servers have one in common.
func shared(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool {
		return slices.ContainsFunc(b, func(t string) bool { return strings.Trim(s, " /") == strings.Trim(t, " /") })
	})
}

func (s *Slack) validate(path *field.Path) field.ErrorList {
	list := onlyOne(path, "way", true, choice{"urlFile", s.URLFile != ""}, choice{"tokenFile", s.TokenFile != ""})
	switch {
	case len(list) > 0:
	case s.TokenFile != "" && s.Channel == "":
		list = append(list, field.Required(path.Child("channel"), `is missing: with tokenFile, the channel has to be named, such as "#deploys"`))
	case s.URLFile != "" && s.Channel != "":
		list = append(list, field.Forbidden(path.Child("channel"), "is of no use with urlFile: a webhook belongs to one channel; leave it out"))
	}
	list = append(list, secretFile(path.Child("urlFile"), s.URLFile)...)
	return append(list, secretFile(path.Child("tokenFile"), s.TokenFile)...)
}
