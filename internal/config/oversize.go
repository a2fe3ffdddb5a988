package config

import (
	"fmt"
	"regexp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

// Oversize is a thing that an event which is too large can give up.
type Oversize string

// What an event gives up.
const (
	OversizePatch     Oversize = "patch"
	OversizeBefore    Oversize = "before"
	OversizeReference Oversize = "reference" // all of it: the event says where the whole is kept, see ClaimCheck
)

// Values are all of them.
func (Oversize) Values() []string { return names(OversizePatch, OversizeBefore, OversizeReference) }

// ClaimCheck is where the whole of an event is kept that is too large for the bus: in one place at most. In a file
// `claimCheck: {}` is none.
type ClaimCheck struct {
	ObjectStore *ObjectStore    `yaml:"objectStore,omitempty"`
	Directory   *ClaimDirectory `yaml:"directory,omitempty"`
	HTTP        *ClaimHTTP      `yaml:"http,omitempty"`
}

// SetDefaults removes the default claim check, as Bus does.
func (c *ClaimCheck) SetDefaults() { *c = ClaimCheck{} }

// none reports whether there is no place at all.
func (c *ClaimCheck) none() bool { return *c == ClaimCheck{} }

// ObjectStore is a bucket of JetStream's object store on the servers of bus.nats. What matters to a bucket that is
// created is taken from the stream, whose records refer to what is in it.
type ObjectStore struct {
	Bucket   string        `yaml:"bucket"`
	Create   bool          `yaml:"create"`   // create it where it does not exist
	MaxBytes yamldoc.Bytes `yaml:"maxBytes"` // 0: not bounded
}

// DefaultBucket is the name of the bucket where the file gives none.
const DefaultBucket = "KUBECDC_LARGE"

// SetDefaults sets the defaults of the bucket.
func (o *ObjectStore) SetDefaults() { *o = defaultObjectStore() }

func defaultObjectStore() ObjectStore { return ObjectStore{Bucket: DefaultBucket, Create: true} }

// ClaimDirectory is a directory, one that consumers can read for instance.
type ClaimDirectory struct {
	Path string `yaml:"path"` // absolute
}

// ClaimHTTP is a server that keeps what is PUT below a URL.
type ClaimHTTP struct {
	URL         string           `yaml:"url"`     // the name of each event is put behind its path
	Timeout     yamldoc.Duration `yaml:"timeout"` // of a request, from the first byte to the last
	HeadersFile string           `yaml:"headersFile,omitempty"`
	TokenFile   string           `yaml:"tokenFile,omitempty"` // bearer token
	Insecure    bool             `yaml:"insecure,omitempty"`  // as in HTTP
	TLS         *TLS             `yaml:"tls,omitempty"`       // nil: the system's authorities where the URL is https
}

// SetDefaults sets the defaults of the requests.
func (c *ClaimHTTP) SetDefaults() { *c = ClaimHTTP{Timeout: defaultHTTP().Timeout} }

// DeadLetter is where an event goes that the bus refuses for good: one member, the one of the bus's kind, or none at
// all. In a file `deadLetter: {}` is none.
type DeadLetter struct {
	Subject string `yaml:"subject,omitempty"` // template with {cluster}; with bus.nats
	Topic   string `yaml:"topic,omitempty"`   // template with {cluster}; with bus.kafka
	URL     string `yaml:"url,omitempty"`     // with bus.http
}

// SetDefaults removes the default dead letter, as Bus does.
func (d *DeadLetter) SetDefaults() { *d = DeadLetter{} }

// Where dead letters go if the file does not say.
const (
	DefaultDeadSubject = "kubecdc.{cluster}.dead"
	DefaultDeadTopic   = "kubecdc.{cluster}.dead"
	// SpareDeadTopic is the default if bus.kafka.topic may make DefaultDeadTopic, for a namespace called dead for instance. The
	// names of namespaces, resources and groups do not begin with "_".
	SpareDeadTopic = "kubecdc.{cluster}._dead"
)

// defaultClaimCheck is the one for a bus: JetStream has a store of its own, the others need to be told one.
func (b *Bus) defaultClaimCheck() ClaimCheck {
	if b.NATS == nil {
		return ClaimCheck{}
	}
	store := defaultObjectStore()
	return ClaimCheck{ObjectStore: &store}
}

// defaultDeadLetter is the one for a bus. A topic that nobody has created takes none.
func (c *Config) defaultDeadLetter(b *Bus) DeadLetter {
	switch {
	case b.NATS != nil:
		return DeadLetter{Subject: DefaultDeadSubject}
	case b.Kafka != nil && b.Kafka.Create != nil && topicsMeet(c.inCluster(b.Kafka.Topic), c.inCluster(DefaultDeadTopic)):
		return DeadLetter{Topic: SpareDeadTopic}
	case b.Kafka != nil && b.Kafka.Create != nil:
		return DeadLetter{Topic: DefaultDeadTopic}
	}
	return DeadLetter{}
}

// defaultOversize is all that can be given up: without a place for it there is no reference.
func (c *Config) defaultOversize() []Oversize {
	if c.ClaimCheck.none() {
		return []Oversize{OversizePatch, OversizeBefore}
	}
	return []Oversize{OversizePatch, OversizeBefore, OversizeReference}
}

// UseBus takes another bus than the one of the file. What the former had by default, or what does not fit this one, becomes
// the default of this one.
func (c *Config) UseBus(b Bus) {
	former := c.Bus
	wasDefault := slices.Equal(c.Oversize, c.defaultOversize())
	c.Bus = b
	if c.ClaimCheck.ObjectStore != nil && b.NATS == nil || c.ClaimCheck.none() && former.NATS == nil {
		c.ClaimCheck = b.defaultClaimCheck()
	}
	if d := c.DeadLetter; d == c.defaultDeadLetter(&former) ||
		d.Subject != "" && b.NATS == nil || d.Topic != "" && b.Kafka == nil || d.URL != "" && b.HTTP == nil {
		c.DeadLetter = c.defaultDeadLetter(&b)
	}
	switch {
	case wasDefault:
		c.Oversize = c.defaultOversize()
	case c.ClaimCheck.none():
		c.Oversize = slices.DeleteFunc(slices.Clone(c.Oversize), func(o Oversize) bool { return o == OversizeReference })
	}
}

func (c *Config) validateOversize(path *field.Path) field.ErrorList {
	list := unique(c.Oversize, path)
	for i, o := range c.Oversize {
		switch at := path.Index(i); {
		case !slices.Contains(o.Values(), string(o)):
			list = append(list, field.Invalid(at, string(o), "must be "+yamldoc.OneOf(o)))
		case o == OversizeReference && c.ClaimCheck.none():
			list = append(list, field.Forbidden(at, "needs a place for the whole event: name one under claimCheck, or leave reference out"))
		}
	}
	return list
}

func (c *Config) validateClaimCheck(path *field.Path) field.ErrorList {
	k := &c.ClaimCheck
	if list := onlyOne(path, "place", false, choice{"objectStore", k.ObjectStore != nil}, choice{"directory", k.Directory != nil},
		choice{"http", k.HTTP != nil}); len(list) > 0 {
		return list
	}
	var list field.ErrorList
	switch {
	case k.ObjectStore != nil:
		at := path.Child("objectStore")
		if c.Bus.NATS == nil {
			list = append(list, field.Forbidden(at, "is on the servers of bus.nats, which is not the bus; name a directory or http"))
		}
		if !bucketName.MatchString(k.ObjectStore.Bucket) {
			list = append(list, field.Invalid(at.Child("bucket"), k.ObjectStore.Bucket, `must be at most 128 letters, digits, "-" or "_"`))
		}
		if k.ObjectStore.MaxBytes < 0 {
			list = append(list, field.Invalid(at.Child("maxBytes"), k.ObjectStore.MaxBytes, "must not be negative"))
		}
	case k.Directory != nil:
		at := path.Child("directory", "path")
		if !absolutePath.MatchString(k.Directory.Path) {
			list = append(list, field.Invalid(at, k.Directory.Path, "must be an absolute path, such as /var/lib/kubecdc/large"))
		}
	case k.HTTP != nil:
		at := path.Child("http")
		list = append(list, validateEndpoint(k.HTTP.URL, at.Child("url"))...)
		list = append(list, inLimit(at.Child("timeout"), k.HTTP.Timeout)...)
		list = append(list, validateHTTPFiles(at, k.HTTP.URL, k.HTTP.HeadersFile, k.HTTP.TokenFile, k.HTTP.TLS)...)
		list = append(list, validateHTTPSecrecy(at, "url", k.HTTP.URL, k.HTTP.HeadersFile, k.HTTP.TokenFile, k.HTTP.Insecure)...)
	}
	return list
}

var (
	bucketName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)
	// A subject is tokens separated by dots, without spaces and wildcards.
	deadSubject = regexp.MustCompile(`^([^\x00-\x20\x7f.*>{}]|\{cluster\})+(\.([^\x00-\x20\x7f.*>{}]|\{cluster\})+)*$`)
	deadTopic   = regexp.MustCompile(`^([A-Za-z0-9._-]|\{cluster\}){1,249}$`)
)

func (c *Config) validateDeadLetter(path *field.Path) field.ErrorList {
	d, b := &c.DeadLetter, &c.Bus
	if list := onlyOne(path, "place", false, choice{"subject", d.Subject != ""}, choice{"topic", d.Topic != ""},
		choice{"url", d.URL != ""}); len(list) > 0 {
		return list
	}
	fits := ""
	switch {
	case b.NATS != nil:
		fits = "subject"
	case b.Kafka != nil:
		fits = "topic"
	case b.HTTP != nil:
		fits = "url"
	}
	for _, got := range []struct{ key, value, bus string }{{"subject", d.Subject, "nats"}, {"topic", d.Topic, "kafka"}, {"url", d.URL, "http"}} {
		switch {
		case got.value == "" || got.key == fits:
		case fits == "":
			return field.ErrorList{field.Forbidden(path.Child(got.key), fmt.Sprintf("is for bus.%s; standard output refuses nothing, leave it out", got.bus))}
		default:
			return field.ErrorList{field.Forbidden(path.Child(got.key), fmt.Sprintf("is for bus.%s; with this bus write %s", got.bus, fits))}
		}
	}
	var list field.ErrorList
	switch {
	case d.Subject != "" && !deadSubject.MatchString(d.Subject):
		list = append(list, field.Invalid(path.Child("subject"), d.Subject, "must be a subject such as "+DefaultDeadSubject+
			": words with dots between them, no spaces and none of * >; {cluster} is the only placeholder"))
	case d.Topic != "" && !deadTopic.MatchString(d.Topic):
		list = append(list, field.Invalid(path.Child("topic"), d.Topic, "must be a topic such as "+DefaultDeadTopic+
			`: at most 249 letters, digits, ".", "_" and "-"; {cluster} is the only placeholder`))
	case d.Topic != "" && b.Kafka != nil && topicsMeet(c.inCluster(d.Topic), c.inCluster(b.Kafka.Topic)):
		list = append(list, field.Invalid(path.Child("topic"), d.Topic,
			"must be another topic than those of the events (bus.kafka.topic), such as "+SpareDeadTopic))
	case d.URL != "":
		list = append(list, validateEndpoint(d.URL, path.Child("url"))...)
		if b.HTTP != nil && d.URL == b.HTTP.URL {
			list = append(list, field.Forbidden(path.Child("url"), "must be another URL than that of the events (bus.http.url), which refuses them"))
		}
	}
	return list
}
