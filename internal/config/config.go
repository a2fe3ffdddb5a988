package config

import (
	"log/slog"
	"time"

	"github.com/kubecdc/kubecdc/internal/config/check"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish"
	"github.com/kubecdc/kubecdc/internal/publish/drivers"
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
	ClaimCheck     ClaimCheck     `yaml:"claimCheck"` // where the whole of it is kept
	DeadLetter     DeadLetter     `yaml:"deadLetter"` // where it goes when the bus refuses it for good
	Relays         []Relay        `yaml:"relays"`
	Checkpoint     Checkpoint     `yaml:"checkpoint"`
	Mode           Mode           `yaml:"mode"`
	LeaderElection LeaderElection `yaml:"leaderElection"`
	Server         Server         `yaml:"server"`
	Log            Log            `yaml:"log"`
	Tracing        Tracing        `yaml:"tracing"`
}

// Rule says which objects are taken, and what is sent of them. Rules are tried in order, for each object by itself: the
// first one whose Resources name its resource, and whose Namespaces and selectors it is within, takes it.
type Rule struct {
	Resources     []ResourcePattern `yaml:"resources"`
	Except        []ResourcePattern `yaml:"except,omitempty"`
	Namespaces    Namespaces        `yaml:"namespaces,omitempty"`    // none: all, and cluster-scoped objects
	LabelSelector string            `yaml:"labelSelector,omitempty"` // as kubectl's --selector
	FieldSelector string            `yaml:"fieldSelector,omitempty"` // as kubectl's --field-selector

	Operations []Operation `yaml:"operations,omitempty"` // of Created, Updated and Deleted those that are sent; none: all
	Where      string      `yaml:"where,omitempty"`      // CEL, sent only where it holds; "": always
	OnError    OnError     `yaml:"onError,omitempty"`    // "": there is no Where
	Redact     []string    `yaml:"redact,omitempty"`     // paths, see object.NewCutter
}

// Takes reports whether the rule names the resource and does not except it. Group is "" for the core group.
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

// OnError is what becomes of a change whose Where cannot be evaluated.
type OnError string

// What becomes of it. Either way it is counted.
const (
	OnErrorSend OnError = "send"
	OnErrorDrop OnError = "drop"
)

// Values are both.
func (OnError) Values() []string { return check.Names(OnErrorSend, OnErrorDrop) }

// Noise is a ready-made filter for updates without information. docs/guides/select.md says what each filter withholds.
type Noise string

// The ready-made filters.
const (
	NoiseStatusOnly        Noise = "status-only"
	NoiseLeaseHeartbeats   Noise = "lease-heartbeats"
	NoiseNodeHeartbeats    Noise = "node-heartbeats"
	NoiseManagedFieldsOnly Noise = "managed-fields-only"
	NoiseEndpointsChurn    Noise = "endpoints-churn"
)

// Values are all of them.
func (Noise) Values() []string {
	return check.Names(NoiseStatusOnly, NoiseLeaseHeartbeats, NoiseNodeHeartbeats, NoiseManagedFieldsOnly, NoiseEndpointsChurn)
}

// Redaction says how values that must not leave the cluster are treated.
type Redaction struct {
	Secrets       bool          `yaml:"secrets"` // those of Secrets are redacted, beside what rules name
	Mode          RedactionMode `yaml:"mode"`
	KeyFile       string        `yaml:"keyFile"`       // of the hash
	AcrossObjects bool          `yaml:"acrossObjects"` // a value has the same hash wherever it stands
}

// RedactionMode is what takes the place of a redacted value.
type RedactionMode string

// What takes its place.
const (
	RedactRemove RedactionMode = "remove" // nothing
	RedactHash   RedactionMode = "hash"   // a keyed hash: it tells that the value changed, and not what it is
)

// Values are both.
func (RedactionMode) Values() []string { return check.Names(RedactRemove, RedactHash) }

// Snapshot says when the objects that exist are read and sent.
type Snapshot struct {
	Mode SnapshotMode `yaml:"mode"`
	// Every is after what time it is taken again, 0: never. What a file leaves out is 24h where that is allowed, see settle.
	Every yamldoc.Duration `yaml:"every"`
}

// SnapshotMode is when a snapshot is sent at start.
type SnapshotMode string

// When a snapshot is sent.
const (
	SnapshotInitial SnapshotMode = "initial" // where there is no checkpoint
	SnapshotAlways  SnapshotMode = "always"  // at every start
	SnapshotNever   SnapshotMode = "never"
)

// Values are all modes.
func (SnapshotMode) Values() []string {
	return check.Names(SnapshotInitial, SnapshotAlways, SnapshotNever)
}

// Event is the shape of events.
type Event struct {
	Mode     EventMode     `yaml:"mode"`
	Before   bool          `yaml:"before"`   // carry the object as it was
	Patch    bool          `yaml:"patch"`    // carry the RFC 6902 patch from before to after
	MaxBytes yamldoc.Bytes `yaml:"maxBytes"` // body and attributes of the largest event that is sent
}

// EventMode is a content mode of CloudEvents.
type EventMode string

// The content modes.
const (
	EventStructured EventMode = "structured" // envelope and data are one JSON document
	EventBinary     EventMode = "binary"     // the envelope is headers, the data is the body
)

// Values are all modes.
func (EventMode) Values() []string { return check.Names(EventStructured, EventBinary) }

// Queue bounds what waits between the API server and the bus. Either bound makes informers wait.
type Queue struct {
	Events int           `yaml:"events"` // deltas
	Bytes  yamldoc.Bytes `yaml:"bytes"`  // of objects, as held: compressed

	// InFlightBytes bounds the events between the queue and the bus's acknowledgement, as they are in memory.
	InFlightBytes yamldoc.Bytes `yaml:"inFlightBytes"`
}

// Checkpoint is where the agent remembers how far it has come. Neither: where that is best by itself, which the agent
// decides when it knows where it runs.
type Checkpoint struct {
	ConfigMap *CheckpointConfigMap `yaml:"configMap,omitempty"`
	File      *CheckpointFile      `yaml:"file,omitempty"`
}

// CheckpointConfigMap is a ConfigMap of the cluster that is captured.
type CheckpointConfigMap struct {
	Namespace string `yaml:"namespace"`
	Name      string `yaml:"name"`
}

// DefaultCheckpoint is the name of the ConfigMap where the file gives none.
const DefaultCheckpoint = "kubecdc-checkpoint"

// SetDefaults sets the default name of the ConfigMap.
func (m *CheckpointConfigMap) SetDefaults() { *m = CheckpointConfigMap{Name: DefaultCheckpoint} }

// CheckpointFile is a file of the machine that the agent runs on.
type CheckpointFile struct {
	Path string `yaml:"path"` // absolute
}

// Mode is what part of a cluster an agent watches.
type Mode string

// What part an agent watches.
const (
	ModeCluster Mode = "cluster" // all of the cluster
	ModeNode    Mode = "node"    // what belongs to the node that it runs on
	ModeCentral Mode = "central" // all but what agents on the nodes watch
)

// Values are all modes.
func (Mode) Values() []string { return check.Names(ModeCluster, ModeNode, ModeCentral) }

// LeaderElection is how several agents see to it that one of them works. The durations are those of client-go's
// leaderelection.
type LeaderElection struct {
	Enabled       bool             `yaml:"enabled"`
	Lease         string           `yaml:"lease"`         // its name
	Namespace     string           `yaml:"namespace"`     // "": that of the pod
	LeaseDuration yamldoc.Duration `yaml:"leaseDuration"` // how long others wait for a leader that is silent
	RenewDeadline yamldoc.Duration `yaml:"renewDeadline"` // how long a leader writes to the bus that cannot renew the Lease
	RetryPeriod   yamldoc.Duration `yaml:"retryPeriod"`   // between two looks at the Lease
}

// DefaultLease is the name of the Lease where the file gives none.
const DefaultLease = "kubecdc"

// Server is the agent's own HTTP server: /metrics, /healthz, /readyz, /status.
type Server struct {
	Address string `yaml:"address"` // host:port, as for net.Listen; port 0: a free one
	Pprof   bool   `yaml:"pprof"`   // profiles, at the agent's Unix socket
}

// Log is how the agent logs.
type Log struct {
	Level  LogLevel  `yaml:"level"`
	Format LogFormat `yaml:"format"`
}

// LogLevel is the least level that is written.
type LogLevel string

// The levels, as in log/slog.
const (
	LogDebug LogLevel = "debug"
	LogInfo  LogLevel = "info"
	LogWarn  LogLevel = "warn"
	LogError LogLevel = "error"
)

// Values are all levels, the least first.
func (LogLevel) Values() []string { return check.Names(LogDebug, LogInfo, LogWarn, LogError) }

// Slog is the level as log/slog has it; info where l is none of the four.
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

// LogFormat is how a log line is written.
type LogFormat string

// The formats.
const (
	LogAuto LogFormat = "auto" // for a person's eyes at a terminal, JSON otherwise
	LogJSON LogFormat = "json"
	LogText LogFormat = "text"
)

// Values are all formats.
func (LogFormat) Values() []string { return check.Names(LogAuto, LogJSON, LogText) }

// Tracing is where spans of the agent's own work are sent.
type Tracing struct {
	Enabled     bool          `yaml:"enabled"`
	Endpoint    string        `yaml:"endpoint"`    // URL of an OTLP/HTTP receiver, without /v1/traces
	SampleRatio yamldoc.Ratio `yaml:"sampleRatio"` // the part of the events that is traced
	HeadersFile string        `yaml:"headersFile,omitempty"`
	Insecure    bool          `yaml:"insecure,omitempty"` // the headers may be sent unencrypted
	TLS         *publish.TLS  `yaml:"tls,omitempty"`
}

// Default is what holds where a file says nothing; configs/kubecdc.yaml says the same with comments. It is valid.
func Default() *Config {
	first := drivers.Buses()[0]
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
		Snapshot:  Snapshot{Mode: SnapshotInitial, Every: yamldoc.Duration{Duration: mostEvery}},
		Event:     Event{Mode: EventStructured, Before: true, Patch: true, MaxBytes: 900 << 10},
		Queue:     Queue{Events: 131072, Bytes: 64 << 20, InFlightBytes: 32 << 20},
		Bus:       Bus{first.Name: first.Default()},
		Mode:      ModeCluster,
		LeaderElection: LeaderElection{
			Lease:         DefaultLease,
			LeaseDuration: yamldoc.Duration{Duration: 6 * time.Second}, RenewDeadline: yamldoc.Duration{Duration: 4 * time.Second}, RetryPeriod: yamldoc.Duration{Duration: time.Second},
		},
		Server:  Server{Address: ":8080"},
		Log:     Log{Level: LogInfo, Format: LogAuto},
		Tracing: Tracing{Endpoint: "http://127.0.0.1:4318", SampleRatio: 0.01},
	}
	c.ClaimCheck, c.DeadLetter = c.Bus.defaultClaimCheck(), c.defaultDeadLetter(c.Bus)
	c.Oversize = c.defaultOversize()
	return c
}

// mostEvery is how often a snapshot is taken again where nothing makes it more often.
const mostEvery = 24 * time.Hour

// settle gives what depends on other keys its default where the file, which has what written tells, does not have it.
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

// defaultEvery is how often a snapshot is taken again where the file does not say.
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

// expiry is the age at which records are deleted, as far as the file says it, and the key that does; 0: it does not, or
// for ever.
func (c *Config) expiry() (age time.Duration, key string) {
	_, settings := c.Bus.Chosen()
	if settings == nil {
		return 0, ""
	}
	s := settings.Summary()
	return s.Retention, "bus." + s.Kind + "." + s.RetentionKey
}
