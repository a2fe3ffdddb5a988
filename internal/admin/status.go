package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/scope"
)

// Status is the answer of GET /status: the state of the agent, for 'kubecdc status' and for programs. It holds no secret.
type Status struct {
	Version    string            `json:"version"`
	Mode       string            `json:"mode"` // cluster, node or central
	Cluster    string            `json:"cluster,omitempty"`
	ClusterUID string            `json:"clusterUID,omitempty"` // "": not read from the API server yet
	APIServer  string            `json:"apiServer"`
	Started    time.Time         `json:"started"`
	Now        time.Time         `json:"now"`
	Socket     string            `json:"socket,omitempty"` // path on the agent's machine at which it accepts commands; "": nowhere
	Ready      bool              `json:"ready"`
	Standby    bool              `json:"standby"` // another agent leads; of what follows there are only the checks, the leader and the configuration
	Checks     []Check           `json:"checks"`  // as in /readyz
	Leader     *LeaderStatus     `json:"leader,omitempty"`
	Config     *ConfigStatus     `json:"config,omitempty"` // there is none without a file
	Bus        BusStatus         `json:"bus"`
	Queue      QueueStatus       `json:"queue"`
	Checkpoint *CheckpointStatus `json:"checkpoint,omitempty"`
	Published  PublishedStatus   `json:"published"`
	Informers  InformersStatus   `json:"informers"`
	Scopes     []ScopeStatus     `json:"scopes"`        // those with a problem first
	Omitted    int               `json:"scopesOmitted"` // how many there are beyond these: ?scopes=N takes more
}

// LeaderStatus is the state of the leader election.
type LeaderStatus struct {
	Leading bool   `json:"leading"`
	Paused  bool   `json:"paused,omitempty"` // the Lease could not be renewed in time: nothing is published
	Holder  string `json:"holder,omitempty"`
	Epoch   uint64 `json:"epoch"`
}

// ConfigStatus is the state of the configuration file.
type ConfigStatus struct {
	File     string     `json:"file"`
	SHA256   string     `json:"sha256"`             // of the content that is in force
	Since    time.Time  `json:"since"`              // it has been in force
	Taking   *time.Time `json:"taking,omitempty"`   // since when a changed file is being taken
	Problems []string   `json:"problems,omitempty"` // why the file, as it is now, is not in force
	Refused  *time.Time `json:"refused,omitempty"`  // when that was found
}

// BusStatus is the state of the connection to the bus.
type BusStatus struct {
	Name      string     `json:"name"`
	Connected bool       `json:"connected"`
	Since     time.Time  `json:"since"` // it has been so
	Problem   string     `json:"problem,omitempty"`
	Log       *LogStatus `json:"log,omitempty"` // there is none with HTTP and standard output
}

// LogStatus is the state of the stream, or of the topics.
type LogStatus struct {
	Logs    int    `json:"logs"`    // how many are known
	Unknown int    `json:"unknown"` // of these: whose identity could not be read, so that a replacement may not be detected
	Problem string `json:"problem,omitempty"`
}

// QueueStatus is the state of the queue.
type QueueStatus struct {
	Events         int     `json:"events"` // waiting, or sent and not acknowledged
	MaxEvents      int     `json:"maxEvents"`
	Bytes          int64   `json:"bytes"`
	MaxBytes       int64   `json:"maxBytes"`
	InFlight       int     `json:"inFlight"`       // of the events, on their way to the bus
	Waiting        int     `json:"waiting"`        // informers that wait for room
	OldestSeconds  float64 `json:"oldestSeconds"`  // for how long the oldest is known
	BlockedSeconds float64 `json:"blockedSeconds"` // that informers have waited so far, summed
}

// CheckpointStatus is the state of the checkpoint.
type CheckpointStatus struct {
	Place          string     `json:"place"`
	Saved          *time.Time `json:"saved,omitempty"`
	UnsavedSeconds float64    `json:"unsavedSeconds"` // for how long there has been something to save
	Problem        string     `json:"problem,omitempty"`
}

// PublishedStatus counts events since the agent started.
type PublishedStatus struct {
	Events      uint64 `json:"events"` // that the bus has acknowledged
	Bytes       uint64 `json:"bytes"`
	Retries     uint64 `json:"retries"`    // attempts that failed and were made again
	Duplicates  uint64 `json:"duplicates"` // acknowledged as copies of what the bus has
	Shortened   uint64 `json:"shortened"`  // were too large for the bus
	DeadLetters uint64 `json:"deadLetters"`
}

// InformersStatus sums up the scopes.
type InformersStatus struct {
	Scopes   int            `json:"scopes"`
	Phases   map[string]int `json:"phases"`
	Health   map[string]int `json:"health"` // scopes by health
	Objects  int            `json:"objects"`
	Bytes    int64          `json:"bytes"`    // of the last-known objects, compressed
	Pending  int            `json:"pending"`  // as in a scope, summed
	Problems int            `json:"problems"` // scopes whose health is not ok, and those that wait for the bus: announcing, blocked, draining, drained or retiring
}

// ScopeStatus is the state of one informer.
type ScopeStatus struct {
	Scope          string     `json:"scope"`
	Resource       string     `json:"resource"`
	Phase          string     `json:"phase"`           // waiting, listing, announcing, live, blocked, relisting, draining, drained or retiring
	Health         string     `json:"health"`          // ok, failing, stale, forbidden or notserved
	Since          *time.Time `json:"since,omitempty"` // the health has not been ok, if that is known
	Seen           *time.Time `json:"seen,omitempty"`  // the last event, bookmark or list
	SilenceSeconds float64    `json:"silenceSeconds"`  // the watch's age: since the API server's last sign of life
	LagSeconds     float64    `json:"lagSeconds"`      // for how long the oldest change that is not acknowledged is known
	Objects        int        `json:"objects"`
	Bytes          int        `json:"bytes"`
	Pending        int        `json:"pending"` // reads of a snapshot and inferred changes that are not on the bus yet
	Resumed        bool       `json:"resumed,omitempty"`
	Failures       int        `json:"failures,omitempty"` // in a row
	Reason         string     `json:"reason,omitempty"`   // the class of the error
	Error          string     `json:"error,omitempty"`
}

const (
	// defaultScopes limits the scopes of an answer if the request sets no limit.
	defaultScopes = 1000
	// MaxScopes limits the scopes of an answer.
	MaxScopes = 100_000
)

// showStatus answers /status.
func showStatus(w http.ResponseWriter, r *http.Request, look func() Status) {
	most := defaultScopes
	if text := r.FormValue("scopes"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > MaxScopes {
			http.Error(w, fmt.Sprintf("scopes: must be between 0 and %d, got %q", MaxScopes, text), http.StatusBadRequest)
			return
		}
		most = n
	}
	s := look()
	s.keep(most)
	w.Header().Set("Cache-Control", "no-store")
	respond(w, http.StatusOK, &s)
}

// keep leaves the first n scopes.
func (s *Status) keep(n int) {
	if more := len(s.Scopes) - n; more > 0 {
		s.Scopes, s.Omitted = s.Scopes[:n], more
	}
}

// AddScopes adds the scopes and their sums, those with a problem first.
func (s *Status) AddScopes(all []scope.Status) {
	slices.SortStableFunc(all, worseFirst)
	s.Informers = InformersStatus{Scopes: len(all), Phases: map[string]int{}, Health: map[string]int{}}
	s.Scopes = make([]ScopeStatus, len(all))
	for i := range all {
		st := &all[i]
		phase, health := st.Phase.String(), st.Health.String()
		s.Informers.Phases[phase]++
		s.Informers.Health[health]++
		s.Informers.Objects += st.Objects
		s.Informers.Bytes += int64(st.Held)
		s.Informers.Pending += st.Pending
		if severity(phase, health) > 0 {
			s.Informers.Problems++
		}
		out := &s.Scopes[i]
		*out = ScopeStatus{
			Scope: st.Scope, Resource: st.Resource, Phase: phase, Health: health, SilenceSeconds: st.Silence.Seconds(), LagSeconds: st.Lag.Seconds(),
			Objects: st.Objects, Bytes: st.Held, Pending: st.Pending, Resumed: st.Resumed, Failures: st.Failures, Reason: st.Reason, Error: st.Error,
		}
		if !st.LastSeen.IsZero() {
			out.Seen = &st.LastSeen
		}
		if !st.Since.IsZero() {
			out.Since = &st.Since
		}
	}
}

// severity ranks the problem of a scope; 0: there is none.
func severity(phase, health string) int {
	switch health {
	case scope.HealthStale.String():
		return 4
	case scope.HealthFailing.String(), scope.HealthForbidden.String():
		return 3
	case scope.HealthNotServed.String():
		return 2
	}
	switch phase {
	case scope.PhaseAnnouncing.String(), scope.PhaseBlocked.String(), scope.PhaseDraining.String(),
		scope.PhaseRetiring.String(), scope.PhaseDrained.String():
		return 1
	}
	return 0
}

// Severity ranks the problem of a scope; 0: there is none.
func Severity(st *scope.Status) int { return severity(st.Phase.String(), st.Health.String()) }

// worseFirst orders by severity, as a comparison.
func worseFirst(a, b scope.Status) int { return cmp.Compare(Severity(&b), Severity(&a)) }
