package main

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/scope"
)

// statuses is what GET /status answers: how the agent is, for people, for 'kubecdc status' and for programs. It holds no secret.
type statuses struct {
	Version    string           `json:"version"`
	Mode       string           `json:"mode"` // cluster, node or companion
	Cluster    string           `json:"cluster,omitempty"`
	ClusterUID string           `json:"clusterUID,omitempty"` // "": not read from the API server yet
	APIServer  string           `json:"apiServer"`
	Started    time.Time        `json:"started"`
	Now        time.Time        `json:"now"`
	Socket     string           `json:"socket,omitempty"` // path on the agent's machine at which it accepts commands; "": nowhere
	Ready      bool             `json:"ready"`
	Standby    bool             `json:"standby"` // another agent leads; of what follows there are only the checks, the leader and the configuration
	Checks     []check          `json:"checks"`  // as in /readyz
	Leader     *leaderStatus    `json:"leader,omitempty"`
	Config     *configStatus    `json:"config,omitempty"` // there is none without a file
	Bus        busStatus        `json:"bus"`
	Queue      queueStatus      `json:"queue"`
	Checkpoint *keptStatus      `json:"checkpoint,omitempty"`
	Published  publishedStatus  `json:"published"`
	Informers  informersSummary `json:"informers"`
	Scopes     []scopeStatus    `json:"scopes"`        // those with a problem first
	Omitted    int              `json:"scopesOmitted"` // how many there are beyond these: ?scopes=N takes more
}

// leaderStatus is there with leader election.
type leaderStatus struct {
	Leading bool   `json:"leading"`
	Paused  bool   `json:"paused,omitempty"` // the Lease could not be renewed in time: nothing is published
	Holder  string `json:"holder,omitempty"`
	Epoch   uint64 `json:"epoch"`
}

// configStatus is the configuration file, a standby's too.
type configStatus struct {
	File     string     `json:"file"`
	SHA256   string     `json:"sha256"`             // of the content that is in force
	Since    time.Time  `json:"since"`              // it has been in force
	Taking   *time.Time `json:"taking,omitempty"`   // since when a changed file is being taken
	Problems []string   `json:"problems,omitempty"` // why the file, as it is now, is not in force
	Refused  *time.Time `json:"refused,omitempty"`  // when that was found
}

type busStatus struct {
	Name      string     `json:"name"`
	Connected bool       `json:"connected"`
	Since     time.Time  `json:"since"` // it has been so
	Problem   string     `json:"problem,omitempty"`
	Log       *logStatus `json:"log,omitempty"` // there is none with HTTP and standard output
}

// logStatus is the stream, or the topics.
type logStatus struct {
	Logs    int    `json:"logs"`    // how many are known
	Unknown int    `json:"unknown"` // of these: whose identity could not be read, so that a replacement may not be detected
	Problem string `json:"problem,omitempty"`
}

type queueStatus struct {
	Events         int     `json:"events"` // waiting, or sent and not acknowledged
	MaxEvents      int     `json:"maxEvents"`
	Bytes          int64   `json:"bytes"`
	MaxBytes       int64   `json:"maxBytes"`
	InFlight       int     `json:"inFlight"`       // of the events, on their way to the bus
	Waiting        int     `json:"waiting"`        // informers that wait for room
	OldestSeconds  float64 `json:"oldestSeconds"`  // for how long the oldest is known
	BlockedSeconds float64 `json:"blockedSeconds"` // that informers have waited so far, summed
}

type keptStatus struct {
	Place          string     `json:"place"`
	Saved          *time.Time `json:"saved,omitempty"`
	UnsavedSeconds float64    `json:"unsavedSeconds"` // for how long there has been something to save
	Problem        string     `json:"problem,omitempty"`
}

// publishedStatus counts since the agent began.
type publishedStatus struct {
	Events      uint64 `json:"events"` // that the bus has acknowledged
	Bytes       uint64 `json:"bytes"`
	Retries     uint64 `json:"retries"`    // attempts that failed and were made again
	Duplicates  uint64 `json:"duplicates"` // acknowledged as copies of what the bus has
	Shortened   uint64 `json:"shortened"`  // were too large for the bus
	DeadLetters uint64 `json:"deadLetters"`
}

type informersSummary struct {
	Scopes   int            `json:"scopes"`
	Phases   map[string]int `json:"phases"`
	Health   map[string]int `json:"health"` // scopes by health
	Objects  int            `json:"objects"`
	Bytes    int64          `json:"bytes"`    // of the last-known objects, compressed
	Pending  int            `json:"pending"`  // as in a scope, summed
	Problems int            `json:"problems"` // scopes whose health is not ok, and those that wait for the bus: announcing, blocked, draining, drained or retiring
}

// scopeStatus is how one informer is.
type scopeStatus struct {
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
	// defaultScopes is how many scopes are answered unless the question says how many.
	defaultScopes = 1000
	// maxScopes bounds what is asked for.
	maxScopes = 100_000
)

// showStatus answers /status.
func showStatus(w http.ResponseWriter, r *http.Request, look func() statuses) {
	most := defaultScopes
	if text := r.FormValue("scopes"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > maxScopes {
			http.Error(w, fmt.Sprintf("scopes: must be between 0 and %d, got %q", maxScopes, text), http.StatusBadRequest)
			return
		}
		most = n
	}
	s := look()
	s.keep(most)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = printJSON(w, &s) // whoever is gone hears nothing
}

// keep leaves the first n scopes.
func (s *statuses) keep(n int) {
	if more := len(s.Scopes) - n; more > 0 {
		s.Scopes, s.Omitted = s.Scopes[:n], more
	}
}

// addScopes sums all up, and has those with a problem first.
func (s *statuses) addScopes(all []scope.Status) {
	slices.SortStableFunc(all, worseFirst)
	s.Informers = informersSummary{Scopes: len(all), Phases: map[string]int{}, Health: map[string]int{}}
	s.Scopes = make([]scopeStatus, len(all))
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
		*out = scopeStatus{
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

// severity is how much a scope asks for a person; 0: not at all.
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

func severityOf(st *scope.Status) int { return severity(st.Phase.String(), st.Health.String()) }

// worseFirst orders by severity, as a comparison.
func worseFirst(a, b scope.Status) int { return cmp.Compare(severityOf(&b), severityOf(&a)) }
