package driver

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Driver is one kind of bus.
type Driver struct {
	Name    string   // its key in the file, below bus and below relays[].to
	Schemes []string // of its URLs on the command line
	URL     string   // the form of such a URL, for help texts and errors: "nats://host:port"

	Flags []Flag // of the commands that read the bus

	Default func() Config        // the settings of a file that has only the name of the bus
	Keys    map[string]check.Key // by path below its key: "stream.replicas"

	DeadLetter  *DeadLetter // the destination of its dead letters; nil: it has none
	ObjectStore bool        // its Bus is an ObjectStorer
	LastEvents  bool        // its Bus is a LastEventer
	// LastProgress: its Bus is a LastProgresser.
	LastProgress bool
	// ObjectsOnly: it accepts no events about the stream.
	ObjectsOnly bool
	// Copies is the maximum number of copies in memory of an unacknowledged event, the encoded
	// event included. 0: one.
	Copies int
	// Stdout: it writes records to Env.Stdout, which has no size limit and cannot be queried: by
	// default no checkpoint is stored.
	Stdout bool
}

// Config is the settings of one bus: a pointer to a struct that package yamldoc decodes. It may
// implement Readable, Named, Hinter, Changelogger and Splitter too. Package buses has the Opener of
// each.
//
// SetURL sets the address from a URL with one of the driver's schemes. It does not validate the
// URL. Its error does not repeat the URL, which may contain a secret.
//
// Validate returns the errors of the settings at path. It connects to nothing.
type Config interface {
	SetURL(url string) error
	Validate(path *field.Path, f *Facts) field.ErrorList
	Summary() Summary
}

// Opener makes buses of valid settings.
//
// Open returns the bus, and starts nothing. The bus may implement Checker, Logger, ObjectStorer,
// LastEventer, LastProgresser and Limiter too.
type Opener interface {
	Open(e *Env) (publish.Bus, error)
}

// Defaults returns the settings of a file that has only the name of the bus.
func Defaults[T any, C interface {
	*T
	Config
	yamldoc.Defaulter
}]() Config {
	c := C(new(T))
	c.SetDefaults()
	return c
}

// Facts is the part of the remaining configuration that a bus needs.
type Facts struct {
	Cluster       string // the configured name; "": the uid of namespace kube-system, not known yet
	MaxEventBytes yamldoc.Bytes
	Binary        bool   // events are sent in binary mode
	Target        bool   // the settings are those of a relay's target
	Source        Config // the bus that this relay reads; nil: unknown
}

// ClusterName returns the name of the cluster, or a placeholder of the length of its uid.
func (f *Facts) ClusterName() string {
	if f.Cluster != "" {
		return f.Cluster
	}
	return "00000000-0000-0000-0000-000000000000"
}

// DeadLetter describes the configuration of the destination of dead letters.
type DeadLetter struct {
	Key   string // in deadLetter: "subject"
	Value check.Key
	// Default returns the value for a file without one; "": there is none.
	Default func(c Config, cluster string) string
	// Validate returns the errors of a value. It is also called for other buses, with a nil c.
	Validate func(path *field.Path, value string, c Config, f *Facts) field.ErrorList
}

// Env is the environment of Open.
type Env struct {
	Key           string // of the settings, for errors and advice: "bus.nats"
	Cluster       string // of Kubernetes
	MaxEventBytes int    // the largest event to be published
	DeadLetter    string // destination of dead letters, by the key of Driver.DeadLetter; "": none
	FullAdvice    string // replaces the general advice for a full bus; "": the general advice
	// Retiring reports whether a scope is no longer selected: errors of only such scopes do not
	// make the bus unready. nil: none is.
	Retiring func(scope string) bool
	Fence    publish.Fence // see the drivers; nil: everything passes
	Stdout   io.Writer
	Log      *slog.Logger
	Metrics  *publish.Metrics // nil: none
}

// Checker is a Bus that can check for immediate errors of Run in advance. Check connects to
// nothing.
type Checker interface{ Check() error }

// Logger is a Bus whose logs (streams, topics) have an identity.
type Logger interface{ Logs() *publish.Logs }

// Throttler is a Bus that may have to wait because of a quota of its servers. Throttled returns
// what it waits for, and until when. A zero time: it does not wait.
type Throttler interface {
	Throttled() (by string, until time.Time)
}

// LastEventer is a Bus that can return the last events of a resource. Its methods wait until Run
// has connected. false: there is none.
type LastEventer interface {
	LastStreamEvent(ctx context.Context, r *object.Resource) (publish.StreamEvent, bool, error)
	// LastObjectEvent returns the newest event of an object. It returns false for one that does not
	// show an observed version.
	LastObjectEvent(ctx context.Context, r *object.Resource) (publish.ObjectEvent, bool, error)
}

// ObjectStorer is a Bus with its own store for large events.
type ObjectStorer interface {
	ObjectStore(c ObjectStore, log *slog.Logger, m *publish.Metrics) publish.ClaimStore
}

// ObjectStore is a bucket of a bus's object store. The replicas and the age of a created bucket
// follow those of the stream, whose records refer to it.
type ObjectStore struct {
	Bucket   string        `yaml:"bucket"`
	Create   bool          `yaml:"create"`   // if it does not exist; an existing one is never changed
	MaxBytes yamldoc.Bytes `yaml:"maxBytes"` // of a new bucket; 0: unlimited
}

// SetDefaults implements yamldoc.Defaulter.
func (o *ObjectStore) SetDefaults() { *o = ObjectStore{Bucket: "KUBECDC_LARGE", Create: true} }

// Named is the Config of a bus with subjects or topics. Destinations returns a function that
// returns the destination of an event, stream events included. It fails if the template cannot be
// used for the cluster.
type Named interface {
	Destinations(cluster string) (func(*object.Delta) string, error)
}

// Summary describes a bus. It contains no secret.
type Summary struct {
	Kind    string   `json:"kind"`          // the driver's name
	URL     string   `json:"url,omitempty"` // without a query
	Stream  string   `json:"stream,omitempty"`
	Subject string   `json:"subject,omitempty"`
	Brokers []string `json:"brokers,omitempty"`
	Topic   string   `json:"topic,omitempty"`

	Text string `json:"-"` // address, storage and encryption, for people
	Log  string `json:"-"` // kind, address and stream or topic, for the log and the status
	// Servers are the configured addresses. Identity identifies the destination of records,
	// regardless of server names: an agent with another Identity does not resume from the
	// checkpoint.
	Servers  []string `json:"-"`
	Identity string   `json:"-"`
	// Retention is the age at which the bus deletes records, from RetentionKey below its key; 0:
	// unknown, or never.
	Retention    time.Duration `json:"-"`
	RetentionKey string        `json:"-"`
}

// Hinter is the Config of a bus whose records commands can show.
type Hinter interface{ Hints(h *Hinting) []Hint }

// Hinting is the input of Hints.
type Hinting struct {
	Cluster    string
	ConfigFile string // "": there is none
	Embedded   string // directory of the bus that the agent runs itself; "": it runs none
	Named      bool   // this directory is that of --data-dir: kubecdc tail finds the bus only with this flag
}

// Hint is a command and its purpose.
type Hint struct{ Command, Purpose string }

// With returns ", with a and b" for the non-empty words, or "".
func With(words ...string) string {
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	if len(words) == 0 {
		return ""
	}
	return ", with " + strings.Join(words, " and ")
}

// Servers returns the sorted addresses in comparable form: without surrounding spaces and a final
// slash.
func Servers(addresses []string) []string {
	servers := make([]string, len(addresses))
	for i, a := range addresses {
		servers[i] = strings.TrimSuffix(strings.TrimSpace(a), "/")
	}
	slices.Sort(servers)
	return servers
}

// ShareServer reports whether two lists of addresses have a server in common.
func ShareServer(a, b []string) bool {
	b = Servers(b)
	return slices.ContainsFunc(Servers(a), func(s string) bool { return slices.Contains(b, s) })
}
