package consume

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// stateVersion is the version of a Tracker's JSON.
const stateVersion = 4

type trackerState struct {
	Version   int             `json:"version"`
	Clock     uint64          `json:"clock"`
	Resources []resourceState `json:"resources"`
	Writers   []writerState   `json:"writers,omitempty"`
}

type resourceState struct {
	Source   string       `json:"source"`
	Cluster  string       `json:"clusterUID,omitempty"`
	Resource string       `json:"resource"`
	Now      time.Time    `json:"now"`
	Pruned   time.Time    `json:"pruned"`
	Live     []liveState  `json:"live,omitempty"`
	Dead     []deadState  `json:"dead,omitempty"`
	Scopes   []scopeState `json:"scopes,omitempty"`
}

type pointState struct {
	History  uint32 `json:"history,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"`
}

type liveState struct {
	pointState
	UID       string `json:"uid"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Touched   uint64 `json:"touched,omitempty"`
	Part      string `json:"part,omitempty"`

	Left pointState `json:"left,omitzero"`
}

type deadState struct {
	pointState
	UID     string    `json:"uid"`
	At      time.Time `json:"at"`
	Deleted bool      `json:"deleted,omitempty"`
	Part    string    `json:"part,omitempty"`
}

type scopeState struct {
	Scope    string         `json:"scope"`
	Snapshot string         `json:"snapshot,omitempty"`
	Started  uint64         `json:"started,omitempty"`
	Version  pointState     `json:"version,omitzero"`
	Past     []string       `json:"past,omitempty"`
	Floor    pointState     `json:"floor,omitzero"`
	Gaps     []string       `json:"gaps,omitempty"`
	Turns    []string       `json:"turns,omitempty"`
	Reformed uint64         `json:"reformed,omitempty"`
	Progress *progressState `json:"progress,omitempty"`
}

type progressState struct {
	pointState
	Time            time.Time `json:"time"`
	To              time.Time `json:"to,omitzero"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	Writer          string    `json:"writer"`
	Run             string    `json:"run"`
	Ended           bool      `json:"ended,omitempty"`
}

type writerState struct {
	Source  string          `json:"source"`
	Cluster string          `json:"clusterUID,omitempty"`
	Writer  string          `json:"writer"`
	Run     string          `json:"run"`
	Number  int             `json:"number,omitempty"`
	Scopes  []observedState `json:"scopes,omitempty"`
}

// observedState is what the run of a writer has said last about a scope: that it has started, or
// ended, to observe it.
type observedState struct {
	Resource string    `json:"resource,omitempty"` // "" with ended
	Scope    string    `json:"scope"`
	Since    time.Time `json:"since,omitzero"`
	At       time.Time `json:"at"`
	Started  bool      `json:"started,omitempty"`
	Ended    bool      `json:"ended,omitempty"`
}

func (p point) state() pointState { return pointState{p.history, p.seq} }

func (s pointState) point() point { return point{s.History, s.Sequence} }

// MarshalJSON returns the Tracker's state. Save it together with the position in the stream, or
// earlier: records that are applied again are copies.
func (t Tracker) MarshalJSON() ([]byte, error) {
	st := trackerState{Version: stateVersion, Clock: t.clock, Resources: []resourceState{}}
	for key, r := range t.resources {
		rs := resourceState{
			Source:   key.cluster.Source,
			Cluster:  key.cluster.UID,
			Resource: key.resource,
			Now:      r.now,
			Pruned:   r.pruned,
		}
		for _, uid := range slices.Sorted(maps.Keys(r.live)) {
			o := r.live[uid]
			rs.Live = append(rs.Live, liveState{
				o.at.state(), uid, o.name.namespace, o.name.name, o.touched, o.part, o.left.state(),
			})
		}
		for _, uid := range slices.Sorted(maps.Keys(r.dead)) {
			d := r.dead[uid]
			rs.Dead = append(rs.Dead, deadState{d.at.state(), uid, d.when, d.deleted, d.part})
		}
		for _, name := range slices.Sorted(maps.Keys(r.scopes)) {
			s := r.scopes[name]
			saved := scopeState{
				name, s.snapshot, s.started, s.version.state(), s.past, s.floor.state(), s.gaps, s.turns, s.reformed,
				nil,
			}
			if p := s.progress; !p.Time.IsZero() {
				saved.Progress = &progressState{
					s.reached.state(), p.Time, p.To, p.ResourceVersion, p.Writer, p.Run, p.Ended,
				}
			}
			rs.Scopes = append(rs.Scopes, saved)
		}
		st.Resources = append(st.Resources, rs)
	}
	slices.SortFunc(st.Resources, func(a, b resourceState) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.Cluster, b.Cluster),
			strings.Compare(a.Resource, b.Resource))
	})
	for key, w := range t.writers {
		st.Writers = append(st.Writers, w.state(key.cluster))
	}
	slices.SortFunc(st.Writers, func(a, b writerState) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.Cluster, b.Cluster),
			strings.Compare(a.Writer, b.Writer))
	})
	return json.Marshal(&st)
}

func (w *writer) state(of ClusterKey) writerState {
	out := writerState{
		Source:  of.Source,
		Cluster: of.UID,
		Writer:  w.name,
		Run:     w.run,
		Number:  w.number,
	}
	for resource, scopes := range w.observed {
		for name, o := range scopes {
			out.Scopes = append(out.Scopes, observedState{
				Resource: resource,
				Scope:    name,
				Since:    o.since,
				At:       o.at,
				Started:  o.started,
			})
		}
	}
	for name, at := range w.ended {
		out.Scopes = append(out.Scopes, observedState{Scope: name, At: at, Ended: true})
	}
	slices.SortFunc(out.Scopes, func(a, b observedState) int { return strings.Compare(a.Scope, b.Scope) })
	return out
}

func (s *writerState) writer() *writer {
	w := &writer{
		name:     s.Writer,
		run:      s.Run,
		number:   s.Number,
		observed: map[string]map[string]observation{},
		ended:    map[string]time.Time{},
	}
	for _, o := range s.Scopes {
		if o.Ended {
			w.ended[o.Scope] = o.At
			continue
		}
		if w.observed[o.Resource] == nil {
			w.observed[o.Resource] = map[string]observation{}
		}
		w.observed[o.Resource][o.Scope] = observation{o.Since, o.At, o.Started}
	}
	return w
}

// UnmarshalJSON replaces the Tracker's state, except Forget, by one that MarshalJSON has written.
func (t *Tracker) UnmarshalJSON(saved []byte) error {
	var st trackerState
	if err := json.Unmarshal(saved, &st); err != nil {
		return fmt.Errorf("read the state of a tracker: %w", err)
	}
	if st.Version != stateVersion {
		return fmt.Errorf("read the state of a tracker: its version is %d, want %d: start over from a snapshot",
			st.Version, stateVersion)
	}
	resources := make(map[resourceKey]*resource, len(st.Resources))
	for _, rs := range st.Resources {
		r := newResource()
		r.now, r.pruned = rs.Now, rs.Pruned
		for _, o := range rs.Live {
			n := name{o.Namespace, o.Name}
			r.live[o.UID] = &liveObject{
				name:    n,
				at:      o.point(),
				touched: o.Touched,
				part:    o.Part,
				left:    o.Left.point(),
			}
			r.names[n] = o.UID
		}
		if len(r.names) != len(r.live) {
			return fmt.Errorf("read the state of a tracker: two objects of %s have one name", rs.Resource)
		}
		for _, d := range rs.Dead {
			r.dead[d.UID] = deadObject{
				at:      d.point(),
				when:    d.At,
				deleted: d.Deleted,
				part:    d.Part,
			}
		}
		for _, s := range rs.Scopes {
			known := &scope{
				snapshot: s.Snapshot,
				started:  s.Started,
				version:  s.Version.point(),
				past:     s.Past,
				floor:    s.Floor.point(),
				gaps:     s.Gaps,
				turns:    s.Turns,
				reformed: s.Reformed,
			}
			if p := s.Progress; p != nil {
				known.reached = p.point()
				known.progress = Reached{p.Time, p.To, p.ResourceVersion, p.History, p.Writer, p.Run, p.Ended}
			}
			r.scope(s.Scope, known)
		}
		resources[resourceKey{ClusterKey{rs.Source, rs.Cluster}, rs.Resource}] = r
	}
	writers := make(map[writerKey]*writer, len(st.Writers))
	for i := range st.Writers {
		w := &st.Writers[i]
		writers[writerKey{ClusterKey{w.Source, w.Cluster}, w.Writer}] = w.writer()
	}
	t.clock = st.Clock
	t.resources = resources
	t.writers = writers
	return nil
}
