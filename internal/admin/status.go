package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
)

// Status is the response of GET /status: the state of the agent, for 'kubecdc status' and for
// programs. It contains no secret.
type Status struct {
	Version    string    `json:"version"`
	Mode       string    `json:"mode"` // cluster, node or central
	Cluster    string    `json:"cluster,omitempty"`
	ClusterUID string    `json:"clusterUID,omitempty"` // "" until it is read from the API server
	APIServer  string    `json:"apiServer"`
	Started    time.Time `json:"started"`
	Now        time.Time `json:"now"`
	// path of the command socket on the agent's machine; "" without one
	Socket string `json:"socket,omitempty"`
	Ready  bool   `json:"ready"`
	// another agent leads; only the checks, the leader and the configuration follow
	Standby    bool              `json:"standby"`
	Checks     []Check           `json:"checks"` // as in /readyz
	Leader     *LeaderStatus     `json:"leader,omitempty"`
	Config     *ConfigStatus     `json:"config,omitempty"` // absent without a file
	Clock      ClockStatus       `json:"clock"`
	Bus        BusStatus         `json:"bus"`
	Queue      QueueStatus       `json:"queue"`
	Checkpoint *CheckpointStatus `json:"checkpoint,omitempty"`
	Published  PublishedStatus   `json:"published"`
	Informers  InformersStatus   `json:"informers"`
	// redacted paths that have matched nothing for a day
	Unmatched []UnmatchedPath `json:"unmatchedRedaction,omitempty"`
	Scopes    []ScopeStatus   `json:"scopes"`        // those with a problem first
	Omitted   int             `json:"scopesOmitted"` // number of further scopes: ?scopes=N shows more
}

// LeaderStatus is the state of the leader election.
type LeaderStatus struct {
	Leading bool   `json:"leading"`
	Paused  bool   `json:"paused,omitempty"` // the Lease was not renewed in time, so nothing is published
	Holder  string `json:"holder,omitempty"`
	Epoch   uint64 `json:"epoch"`
}

// ConfigStatus is the state of the configuration file.
type ConfigStatus struct {
	File     string     `json:"file"`
	SHA256   string     `json:"sha256"`             // of the content that is in force
	Since    time.Time  `json:"since"`              // when it came into force
	Taking   *time.Time `json:"taking,omitempty"`   // since when a changed file is being applied
	Problems []string   `json:"problems,omitempty"` // why the current file is not in force
	Refused  *time.Time `json:"refused,omitempty"`  // when the problems were found
}

// ClockStatus is the state of the agent's clock.
type ClockStatus struct {
	// how far it is ahead of the API server's, by the last response; negative: behind
	OffsetSeconds float64 `json:"offsetSeconds"`
	Differs       bool    `json:"differs,omitempty"` // the offset is certainly above 2 s
	// how far the times of events are ahead of the clock: they stand still
	AheadSeconds float64 `json:"aheadSeconds,omitempty"`
}

// BusStatus is the state of the connection to the bus.
type BusStatus struct {
	Name      string     `json:"name"`
	Connected bool       `json:"connected"`
	Since     time.Time  `json:"since"` // of the last change of connected
	Problem   string     `json:"problem,omitempty"`
	Throttled string     `json:"throttled,omitempty"` // by what, and for how long; the bus accepts no events meanwhile
	Log       *LogStatus `json:"log,omitempty"`       // absent for HTTP and standard output
}

// LogStatus is the state of the stream, or of the topics.
type LogStatus struct {
	Logs    int    `json:"logs"`    // number of known logs
	Unknown int    `json:"unknown"` // those whose identity is unreadable, so a replacement may go undetected
	Problem string `json:"problem,omitempty"`
}

// QueueStatus is the state of the queue.
type QueueStatus struct {
	Events         int     `json:"events"` // waiting, or sent but not acknowledged
	MaxEvents      int     `json:"maxEvents"`
	Bytes          int64   `json:"bytes"`
	MaxBytes       int64   `json:"maxBytes"`
	InFlight       int     `json:"inFlight"`       // of the events, in flight to the bus
	Waiting        int     `json:"waiting"`        // informers that wait for space
	OldestSeconds  float64 `json:"oldestSeconds"`  // age of the oldest event
	BlockedSeconds float64 `json:"blockedSeconds"` // total waiting time of the informers
}

// CheckpointStatus is the state of the checkpoint.
type CheckpointStatus struct {
	Place          string     `json:"place"`
	Saved          *time.Time `json:"saved,omitempty"`
	UnsavedSeconds float64    `json:"unsavedSeconds"` // time since something is left to save
	Problem        string     `json:"problem,omitempty"`
}

// PublishedStatus counts events since the agent started.
type PublishedStatus struct {
	Events      uint64 `json:"events"` // acknowledged by the bus
	Bytes       uint64 `json:"bytes"`
	Retries     uint64 `json:"retries"`    // failed attempts that were repeated
	Duplicates  uint64 `json:"duplicates"` // acknowledged as duplicates
	Shortened   uint64 `json:"shortened"`  // too large for the bus, and shortened
	DeadLetters uint64 `json:"deadLetters"`
}

// InformersStatus sums up the scopes.
type InformersStatus struct {
	Scopes  int            `json:"scopes"`
	Phases  map[string]int `json:"phases"`
	Health  map[string]int `json:"health"` // scopes by health
	Objects int            `json:"objects"`
	Bytes   int64          `json:"bytes"`   // of the last-known objects, compressed
	Pending int            `json:"pending"` // sum over the scopes
	// resources whose watches have shown no bookmark for minutes: their silence shows nothing
	NoBookmarks []string `json:"noBookmarks,omitempty"`
	// scopes whose health is not ok, and those that wait for the bus: announcing, blocked,
	// draining, drained or retiring
	Problems int `json:"problems"`
}

// UnmatchedPath is a redacted path that has matched nothing for a day: it may be misspelled.
type UnmatchedPath struct {
	Rule  string    `json:"rule"` // watch[0]
	Path  string    `json:"path"`
	Since time.Time `json:"since"` // when the agent started, or the rule came into force
}

// ScopeStatus is the state of one informer.
type ScopeStatus struct {
	Scope    string `json:"scope"`
	Resource string `json:"resource"`
	// waiting, listing, announcing, live, blocked, relisting, draining, drained or retiring
	Phase          string     `json:"phase"`
	Health         string     `json:"health"`          // ok, failing, stale, forbidden or notserved
	Since          *time.Time `json:"since,omitempty"` // since when the health is not ok, if known
	Seen           *time.Time `json:"seen,omitempty"`  // the last event, bookmark or list
	SilenceSeconds float64    `json:"silenceSeconds"`  // time since the watch last received anything
	LagSeconds     float64    `json:"lagSeconds"`      // age of the oldest unacknowledged change
	Objects        int        `json:"objects"`
	Bytes          int        `json:"bytes"`
	Pending        int        `json:"pending"` // reads of a snapshot and inferred changes that are not on the bus yet
	Resumed        bool       `json:"resumed,omitempty"`
	Failures       int        `json:"failures,omitempty"` // consecutive
	Reason         string     `json:"reason,omitempty"`   // the class of the error
	// the watches have shown no bookmark for minutes: their silence shows nothing
	NoBookmarks bool   `json:"noBookmarks,omitempty"`
	Error       string `json:"error,omitempty"`
	Note        string `json:"note,omitempty"` // a peculiarity of the API server that is no failure
}

const (
	// defaultScopes limits the scopes of a response if the request sets no limit.
	defaultScopes = 1000
	// MaxScopes limits the scopes of a response.
	MaxScopes = 100_000
)

// showStatus serves /status.
func showStatus(w http.ResponseWriter, r *http.Request, look func() Status) {
	most := defaultScopes
	if text := r.FormValue("scopes"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > MaxScopes {
			http.Error(w, fmt.Sprintf("scopes: must be between 0 and %d, got %q", MaxScopes, text),
				http.StatusBadRequest)
			return
		}
		most = n
	}
	s := look()
	s.keepScopes(most)
	w.Header().Set("Cache-Control", "no-store")
	respond(w, http.StatusOK, &s)
}

// keepScopes removes all but the first n scopes.
func (s *Status) keepScopes(n int) {
	if more := len(s.Scopes) - n; more > 0 {
		s.Scopes, s.Omitted = s.Scopes[:n], more
	}
}

// AddScopes adds the scopes and their sums. Scopes with a problem come first.
func (s *Status) AddScopes(all []informer.Status) {
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
			Scope:          st.Scope,
			Resource:       st.Resource,
			Phase:          phase,
			Health:         health,
			SilenceSeconds: st.Silence.Seconds(),
			LagSeconds:     st.Lag.Seconds(),
			Objects:        st.Objects,
			Bytes:          st.Held,
			Pending:        st.Pending,
			Resumed:        st.Resumed,
			Failures:       st.Failures,
			Reason:         st.Reason,
			Error:          st.Error,
			NoBookmarks:    st.NoBookmarks,
			Note:           st.Note,
		}
		if st.NoBookmarks && !slices.Contains(s.Informers.NoBookmarks, st.Resource) {
			s.Informers.NoBookmarks = append(s.Informers.NoBookmarks, st.Resource)
		}
		if !st.LastSeen.IsZero() {
			out.Seen = &st.LastSeen
		}
		if !st.Since.IsZero() {
			out.Since = &st.Since
		}
	}
	slices.Sort(s.Informers.NoBookmarks)
}

// severity ranks the problem of a scope; 0 means none.
func severity(phase, health string) int {
	switch health {
	case informer.HealthStale.String():
		return 4
	case informer.HealthFailing.String(), informer.HealthForbidden.String():
		return 3
	case informer.HealthNotServed.String():
		return 2
	}
	switch phase {
	case informer.PhaseAnnouncing.String(), informer.PhaseBlocked.String(), informer.PhaseDraining.String(),
		informer.PhaseRetiring.String(), informer.PhaseDrained.String():
		return 1
	}
	return 0
}

// Severity ranks the problem of a scope; 0 means none.
func Severity(st *informer.Status) int { return severity(st.Phase.String(), st.Health.String()) }

// worseFirst compares two scopes, for sorting by descending severity.
func worseFirst(a, b informer.Status) int { return cmp.Compare(Severity(&b), Severity(&a)) }
