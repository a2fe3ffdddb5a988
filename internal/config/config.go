package config

import (
	"log/slog"
	"time"

	"github.com/kubecdc/kubecdc/internal/bus/catalog"
	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// APIVersion is the only value of apiVersion that this release reads.
const APIVersion = "kubecdc.dev/v1"

// Config is the whole file. The zero value is not valid; start from Default.
type Config struct {
	APIVersion     string         `yaml:"apiVersion"`
	Cluster        string         `yaml:"cluster"` // "": the UID of namespace kube-system
	Watch          []Rule         `yaml:"watch"`
	Strip          []string       `yaml:"strip"` // paths, see object.NewCutter
	Noise          []Noise        `yaml:"noise"`
	Redaction      Redaction      `yaml:"redaction"`
	Snapshot       Snapshot       `yaml:"snapshot"`
	Event          Event          `yaml:"event"`
	Queue          Queue          `yaml:"queue"`
	Bus            Bus            `yaml:"bus"`
	Oversize       []Oversize     `yaml:"oversize"`   // what an event that is too large gives up, in this order
	ClaimCheck     ClaimCheck     `yaml:"claimCheck"` // where its whole is stored
	DeadLetter     DeadLetter     `yaml:"deadLetter"` // where it is sent if the bus rejects it for good
	Relays         []Relay        `yaml:"relays"`
	Checkpoint     Checkpoint     `yaml:"checkpoint"`
	Mode           Mode           `yaml:"mode"`
	LeaderElection LeaderElection `yaml:"leaderElection"`
	Server         Server         `yaml:"server"`
	Log            Log            `yaml:"log"`
	Tracing        Tracing        `yaml:"tracing"`
}

// Rule selects objects, and which of their changes are sent. Rules are tried in order, for each
// object separately. The first one whose Resources, Namespaces and selectors match takes the
// object.
type Rule struct {
	Resources     []ResourcePattern `yaml:"resources"`
	Except        []ResourcePattern `yaml:"except,omitempty"`
	Namespaces    Namespaces        `yaml:"namespaces,omitempty"`    // none: all, and cluster-scoped objects
	LabelSelector string            `yaml:"labelSelector,omitempty"` // as kubectl's --selector
	FieldSelector string            `yaml:"fieldSelector,omitempty"` // as kubectl's --field-selector

	// the changes that are sent, of those that Choosable returns; none: all
	Operations []Operation `yaml:"operations,omitempty"`
	Where      string      `yaml:"where,omitempty"`   // CEL, a change is sent only if it is true; "": always
	OnError    OnError     `yaml:"onError,omitempty"` // "": there is no Where
	Redact     []string    `yaml:"redact,omitempty"`  // paths, see object.NewCutter
}

// Takes reports whether the rule names the resource and does not except it. Group is "" for the
// core group.
func (r *Rule) Takes(group, version, resource string) bool {
	matches := func(patterns []ResourcePattern) bool {
		for _, p := range patterns {
			if p.Match(group, version, resource) {
				return true
			}
		}
		return false
	}
	return matches(r.Resources) && !matches(r.Except)
}

// OnError determines whether a change is sent if its Where cannot be evaluated.
type OnError string

// The choices. Either way the change is counted.
const (
	OnErrorSend OnError = "send"
	OnErrorDrop OnError = "drop"
)

// Values returns both.
func (OnError) Values() []string { return check.Names(OnErrorSend, OnErrorDrop) }

// Noise is a ready-made filter for updates without information. docs/guides/select.md says what
// each filter withholds.
type Noise string

// The ready-made filters.
const (
	NoiseStatusOnly        Noise = "status-only"
	NoiseLeaseHeartbeats   Noise = "lease-heartbeats"
	NoiseNodeHeartbeats    Noise = "node-heartbeats"
	NoiseManagedFieldsOnly Noise = "managed-fields-only"
	NoiseEndpointsChurn    Noise = "endpoints-churn"
)

// Values returns all filters.
func (Noise) Values() []string {
	return check.Names(NoiseStatusOnly, NoiseLeaseHeartbeats, NoiseNodeHeartbeats, NoiseManagedFieldsOnly,
		NoiseEndpointsChurn)
}

// Redaction configures the values that must not leave the cluster.
type Redaction struct {
	Secrets       bool          `yaml:"secrets"` // redact those of Secrets, in addition to the paths of rules
	Mode          RedactionMode `yaml:"mode"`
	KeyFile       string        `yaml:"keyFile"`       // of the hash
	AcrossObjects bool          `yaml:"acrossObjects"` // a value has the same hash in all objects of a namespace
}

// RedactionMode is the replacement of a redacted value.
type RedactionMode string

// The replacements.
const (
	RedactRemove RedactionMode = "remove" // nothing
	RedactHash   RedactionMode = "hash"   // a keyed hash: it shows that the value changed, but not the value
)

// Values returns both.
func (RedactionMode) Values() []string { return check.Names(RedactRemove, RedactHash) }

// Snapshot configures when the existing objects are read and sent.
type Snapshot struct {
	Mode SnapshotMode `yaml:"mode"`
	// Every is the interval between snapshots, 0: none. If the file does not set it, see
	// defaultEvery.
	Every yamldoc.Duration `yaml:"every"`
	// UnpagedObjects is the most objects of a list in one response, which is made if pages of a
	// list always expire. 0: none is made.
	UnpagedObjects yamldoc.Count `yaml:"unpagedObjects"`
}

// SnapshotMode is when a snapshot is sent at start.
type SnapshotMode string

// When a snapshot is sent.
const (
	SnapshotInitial SnapshotMode = "initial" // if there is no checkpoint
	SnapshotAlways  SnapshotMode = "always"  // at every start
	SnapshotNever   SnapshotMode = "never"
)

// Values returns all modes.
func (SnapshotMode) Values() []string {
	return check.Names(SnapshotInitial, SnapshotAlways, SnapshotNever)
}

// Event is the shape of events.
type Event struct {
	Mode     EventMode     `yaml:"mode"`
	Before   bool          `yaml:"before"`   // include the object before the change
	Patch    bool          `yaml:"patch"`    // include the RFC 6902 patch from before to after
	MaxBytes yamldoc.Bytes `yaml:"maxBytes"` // body and attributes of the largest event that is sent
}

// EventMode is a content mode of CloudEvents.
type EventMode string

// The content modes.
const (
	EventStructured EventMode = "structured" // envelope and data are one JSON document
	EventBinary     EventMode = "binary"     // the envelope is headers, the data is the body
)

// Values returns all modes.
func (EventMode) Values() []string { return check.Names(EventStructured, EventBinary) }

// Queue bounds the changes between the API server and the bus. At either bound, informers wait.
type Queue struct {
	Events int           `yaml:"events"` // deltas
	Bytes  yamldoc.Bytes `yaml:"bytes"`  // of objects, as held: compressed

	// InFlightBytes bounds the events between the queue and the bus's acknowledgement, as they are
	// in memory.
	InFlightBytes yamldoc.Bytes `yaml:"inFlightBytes"`
}

// Checkpoint is the place where the agent stores its position. If neither is set, the agent chooses
// one when it knows where it runs.
type Checkpoint struct {
	ConfigMap *CheckpointConfigMap `yaml:"configMap,omitempty"`
	File      *CheckpointFile      `yaml:"file,omitempty"`
}

// CheckpointConfigMap is a ConfigMap of the cluster that is captured.
type CheckpointConfigMap struct {
	Namespace string `yaml:"namespace"`
	Name      string `yaml:"name"`
}

// DefaultCheckpoint is the name of the ConfigMap if the file has none.
const DefaultCheckpoint = "kubecdc-checkpoint"

// SetDefaults sets the default name of the ConfigMap.
func (m *CheckpointConfigMap) SetDefaults() { *m = CheckpointConfigMap{Name: DefaultCheckpoint} }

// CheckpointFile is a file on the machine that the agent runs on.
type CheckpointFile struct {
	Path string `yaml:"path"` // absolute
}

// Mode is the part of a cluster that an agent watches.
type Mode string

// The parts.
const (
	ModeCluster Mode = "cluster" // all of the cluster
	ModeNode    Mode = "node"    // the objects of the node that it runs on
	ModeCentral Mode = "central" // all objects that agents on nodes do not watch
)

// Values returns all modes.
func (Mode) Values() []string { return check.Names(ModeCluster, ModeNode, ModeCentral) }

// LeaderElection ensures that only one of several agents works. The durations are those of
// client-go's leaderelection.
type LeaderElection struct {
	Enabled       bool             `yaml:"enabled"`
	Lease         string           `yaml:"lease"`         // its name
	Namespace     string           `yaml:"namespace"`     // "": that of the pod
	LeaseDuration yamldoc.Duration `yaml:"leaseDuration"` // how long others wait for a leader that does not renew
	// how long a leader that cannot renew the Lease writes to the bus
	RenewDeadline yamldoc.Duration `yaml:"renewDeadline"`
	RetryPeriod   yamldoc.Duration `yaml:"retryPeriod"` // between two reads of the Lease
}

// DefaultLease is the name of the Lease if the file has none.
const DefaultLease = "kubecdc"

// Server is the agent's own HTTP server: /metrics, /healthz, /readyz, /status.
type Server struct {
	Address string `yaml:"address"` // host:port, as for net.Listen; port 0: a free one
	Pprof   bool   `yaml:"pprof"`   // profiles, at the agent's Unix socket
}

// Log configures the log.
type Log struct {
	Level  LogLevel  `yaml:"level"`
	Format LogFormat `yaml:"format"`
}

// LogLevel is the lowest level that is written.
type LogLevel string

// The levels, as in log/slog.
const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// Values returns all levels, the lowest first.
func (LogLevel) Values() []string { return check.Names(LogDebug, LogInfo, LogWarn, LogError) }

// Slog returns the level of log/slog; info if l is none of the four.
func (l LogLevel) Slog() slog.Level {
	switch l {
	case LogDebug:
		return slog.LevelDebug
	case LogWarn:
		return slog.LevelWarn
	case LogError:
		return slog.LevelError
	case LogInfo:
	}
	return slog.LevelInfo
}

// LogFormat is the format of a log line.
type LogFormat string

// The formats.
const (
	LogAuto LogFormat = "auto" // for people at a terminal, JSON otherwise
	LogJSON LogFormat = "json"
	LogText LogFormat = "text"
)

// Values returns all formats.
func (LogFormat) Values() []string { return check.Names(LogAuto, LogJSON, LogText) }

// Tracing configures the spans of the agent's own work.
type Tracing struct {
	Enabled     bool          `yaml:"enabled"`
	Endpoint    string        `yaml:"endpoint"`    // URL of an OTLP/HTTP receiver, without /v1/traces
	SampleRatio yamldoc.Ratio `yaml:"sampleRatio"` // the share of events that is traced
	HeadersFile string        `yaml:"headersFile,omitempty"`
	Insecure    bool          `yaml:"insecure,omitempty"` // the headers may be sent unencrypted
	TLS         *publish.TLS  `yaml:"tls,omitempty"`
}

// Default returns the configuration of an empty file. configs/kubecdc.yaml has the same values,
// with comments. It is valid.
func Default() *Config {
	first := catalog.Buses()[0]
	c := &Config{
		APIVersion: APIVersion,
		Watch: []Rule{{
			Resources: []ResourcePattern{{Resource: "*"}},
			Except: []ResourcePattern{
				{Resource: "events"},
				{Resource: "leases", Group: "coordination.k8s.io"},
			},
		}},
		Strip: []string{
			"metadata.managedFields",
			`metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`,
		},
		Redaction: Redaction{Secrets: true, Mode: RedactRemove},
		Snapshot: Snapshot{Mode: SnapshotInitial, Every: yamldoc.Duration{
			Duration: mostEvery,
		}, UnpagedObjects: 100_000},
		Event: Event{
			Mode:     EventStructured,
			Before:   true,
			Patch:    true,
			MaxBytes: 900 << 10,
		},
		Queue: Queue{Events: 131072, Bytes: 64 << 20, InFlightBytes: 32 << 20},
		Bus:   Bus{first.Name: first.Default()},
		Mode:  ModeCluster,
		LeaderElection: LeaderElection{
			Lease:         DefaultLease,
			LeaseDuration: yamldoc.Duration{Duration: 6 * time.Second},
			RenewDeadline: yamldoc.Duration{
				Duration: 4 * time.Second,
			},
			RetryPeriod: yamldoc.Duration{Duration: time.Second},
		},
		Server:  Server{Address: ":8080"},
		Log:     Log{Level: LogInfo, Format: LogAuto},
		Tracing: Tracing{Endpoint: "http://127.0.0.1:4318", SampleRatio: 0.01},
	}
	c.ClaimCheck, c.DeadLetter = c.Bus.defaultClaimCheck(), c.defaultDeadLetter(c.Bus)
	c.Oversize = c.defaultOversize()
	return c
}

// mostEvery is the interval between snapshots, unless records expire too early for it.
const mostEvery = 24 * time.Hour

// settle sets the defaults that depend on other keys. written reports whether the file has a key.
func (c *Config) settle(written func(path string) bool) {
	c.settleNode(written)
	for i := range c.Watch {
		if r := &c.Watch[i]; r.Where != "" && r.OnError == "" {
			r.OnError = OnErrorSend
		}
	}
	if c.Redaction.KeyFile != "" && !written("redaction.mode") {
		c.Redaction.Mode = RedactHash
	}
	if !written("claimCheck") {
		c.ClaimCheck = c.Bus.defaultClaimCheck()
	}
	if !written("oversize") {
		c.Oversize = c.defaultOversize()
	}
	if !written("deadLetter") {
		c.DeadLetter = c.defaultDeadLetter(c.Bus)
	}
	if !written("snapshot.every") {
		c.Snapshot.Every = c.defaultEvery()
	}
}

// defaultEvery returns the interval between snapshots if the file does not set it.
func (c *Config) defaultEvery() yamldoc.Duration {
	every := mostEvery
	if age, _ := c.expiry(); age > 0 {
		every = min(every, age/2)
	}
	if least := Limits()["snapshot.every"].Low.Int64(); c.Snapshot.Mode == SnapshotNever || int64(every) < least {
		return yamldoc.Duration{}
	}
	return yamldoc.Duration{Duration: every}
}

// expiry returns the age at which the bus deletes records, and the key that sets it. 0: never, or
// the file does not say.
func (c *Config) expiry() (age time.Duration, key string) {
	_, settings := c.Bus.Chosen()
	if settings == nil {
		return 0, ""
	}
	s := settings.Summary()
	return s.Retention, "bus." + s.Kind + "." + s.RetentionKey
}
