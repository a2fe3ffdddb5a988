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
	Schemes []string // of the URLs that name it on the command line
	URL     string   // the form of such a URL, for help texts and errors: "nats://host:port"

	Default func() Config        // the settings of a file that names the bus and says no more
	Keys    map[string]check.Key // by path below its own: "stream.replicas"

	DeadLetter  *DeadLetter // where its dead letters go; nil: it has none
	ObjectStore bool        // its Bus is an ObjectStorer
	LastEvents  bool        // its Bus is a LastEventer
	// ObjectsOnly: it takes no events about the stream.
	ObjectsOnly bool
	// Copies is how many times it holds an event at most until the bus has acknowledged it, the encoded event included. 0: once.
	Copies int
	// Stdout: it writes records to Env.Stdout. They have no limit in size and no reader that could be asked: no checkpoint is kept by default.
	Stdout bool
}

// Config is the settings of one bus: a pointer to a struct that package yamldoc decodes. It may implement Readable, Named and Hinter too.
//
// SetURL sets the address from a URL with one of the driver's schemes. Its error does not repeat the URL, which may hold a secret; what
// Validate finds is not its business.
//
// Validate returns what is wrong with the settings at path. It contacts nothing.
//
// Open returns the bus of valid settings, and starts nothing. The bus may implement Checker, Logger, ObjectStorer and LastEventer too.
type Config interface {
	SetURL(url string) error
	Validate(path *field.Path, f *Facts) field.ErrorList
	Summary() Summary
	Open(e *Env) (publish.Bus, error)
}

// Facts is the rest of the configuration, as far as it matters to a bus.
type Facts struct {
	Cluster       string // the configured name; "": it is the uid of namespace kube-system, not known yet
	MaxEventBytes yamldoc.Bytes
	Binary        bool   // events are sent in binary mode
	Target        bool   // the settings are those of a relay's target
	Source        Config // the bus that this relay reads; nil: not known
}

// ClusterName returns the name of the cluster, or a stand-in as long as the uid that it will be.
func (f *Facts) ClusterName() string {
	if f.Cluster != "" {
		return f.Cluster
	}
	return "00000000-0000-0000-0000-000000000000"
}

// DeadLetter is how the configuration says where dead letters go.
type DeadLetter struct {
	Key   string // in deadLetter: "subject"
	Value check.Key
	// Default returns the value for a file that does not say; "": there is none.
	Default func(c Config, cluster string) string
	// Validate returns what is wrong with a value. It is called for other buses too, with a nil c.
	Validate func(path *field.Path, value string, c Config, f *Facts) field.ErrorList
}

// Env is what a bus is opened with, beside its settings.
type Env struct {
	Key           string // of the settings, for errors and advice: "bus.nats"
	Cluster       string // of Kubernetes
	MaxEventBytes int    // the largest event that will be published
	DeadLetter    string // where dead letters go, by the key of Driver.DeadLetter; "": nowhere
	FullAdvice    string // what to do when the bus is full, in place of the general advice; "": that
	// Retiring reports whether a scope is no longer selected: what is wrong for such scopes alone does not make the bus unready. nil: none is.
	Retiring func(scope string) bool
	Fence    publish.Fence // see the drivers; nil: everything passes
	Stdout   io.Writer
	Log      *slog.Logger
	Metrics  *publish.Metrics // nil: none
}

// Checker is a Bus that can find beforehand what its Run would end with at once. Check contacts nothing.
type Checker interface{ Check() error }

// Logger is a Bus whose logs (streams, topics) have an identity.
type Logger interface{ Logs() *publish.Logs }

// LastEventer is a Bus that can be asked for the last stream event of a resource. LastStreamEvent waits until Run has connected. false: the bus
// has none.
type LastEventer interface {
	LastStreamEvent(ctx context.Context, r *object.Resource) (publish.StreamEvent, bool, error)
}

// ObjectStorer is a Bus with a store for large events of its own.
type ObjectStorer interface {
	ObjectStore(c ObjectStore, log *slog.Logger, m *publish.Metrics) (publish.ClaimStore, error)
}

// ObjectStore names a bucket of a bus's object store.
type ObjectStore struct {
	Bucket   string
	Create   bool  // where it does not exist; one that exists is used as it is, and never changed
	MaxBytes int64 // of one that is created; 0: not bounded
}

// Named is the Config of a bus with subjects or topics. Destinations returns the function that names the destination of an event, stream events
// included. Its error says that the template cannot be used for the cluster.
type Named interface {
	Destinations(cluster string) (func(*object.Delta) string, error)
}

// Summary is a bus in short. It holds no secret.
type Summary struct {
	Kind    string   `json:"kind"`          // the driver's name
	URL     string   `json:"url,omitempty"` // without a query
	Stream  string   `json:"stream,omitempty"`
	Subject string   `json:"subject,omitempty"`
	Brokers []string `json:"brokers,omitempty"`
	Topic   string   `json:"topic,omitempty"`

	Text string `json:"-"` // address, storage and encryption, for people
	Log  string `json:"-"` // kind, address and stream or topic, for the log and the status
	// Servers are the addresses, as they are written, and Identity tells one destination of records from another, whatever their servers are
	// called: an agent with another Identity does not resume at the checkpoint.
	Servers  []string `json:"-"`
	Identity string   `json:"-"`
	// Retention is the age at which the bus deletes records, as far as the key RetentionKey below its own says it; 0: it does not, or never.
	Retention    time.Duration `json:"-"`
	RetentionKey string        `json:"-"`
}

// Hinter is the Config of a bus whose records can be shown by commands.
type Hinter interface{ Hints(h *Hinting) []Hint }

// Hinting is what hints depend on.
type Hinting struct {
	Cluster    string
	ConfigFile string // "": there is none
	Embedded   bool   // the agent runs the bus itself
	Found      bool   // kubecdc tail finds it without flags
}

// Hint is something to type, and what for.
type Hint struct{ Command, Purpose string }

// With returns ", with a and b" of the words that are not empty, or nothing.
func With(words ...string) string {
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	if len(words) == 0 {
		return ""
	}
	return ", with " + strings.Join(words, " and ")
}

// Servers returns addresses as they are compared, in order: without spaces around them and a final slash.
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
