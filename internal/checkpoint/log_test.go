package checkpoint_test

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// Logs are saved with the scopes, and a replacement is saved although no scope has moved.
func TestLogs(t *testing.T) {
	m := &memory{}
	logs := []checkpoint.Log{{Name: "KUBECDC", ID: "2026-11-20T15:00:00Z", Acked: []uint64{12}}}
	open := func() *checkpoint.Keeper {
		k := checkpoint.NewKeeper(m, checkpoint.Identity{ClusterUID: "11e0"}, slog.New(slog.DiscardHandler), nil)
		if err := k.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		return k
	}
	first := open()
	if got, last := first.Logs(); got != nil || last != 0 {
		t.Errorf("logs of no checkpoint: %v, %d", got, last)
	}
	first.TrackLogs(func() []checkpoint.Log { return logs })
	first.Track("pods", func() (checkpoint.Position, bool) {
		return checkpoint.Position{Scope: checkpoint.Scope{Resource: "pods", ResourceVersion: 7, Log: 3}}, true
	}, nil)
	if err := first.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	saves := m.saves
	logs = []checkpoint.Log{{Name: "KUBECDC", ID: "2026-11-21T15:00:00Z", Replaced: 2}}
	if err := first.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m.saves != saves+1 {
		t.Errorf("%d saves for another log, want 1", m.saves-saves)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := open()
	got, last := second.Logs()
	if diff := cmp.Diff(logs, got); diff != "" || last != 3 { // The number of the scope is the higher one.
		t.Errorf("the last replacement is %d, want 3; -want +got\n%s", last, diff)
	}
	// A run that has not looked at logs keeps them.
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, _ := open().Logs(); len(got) != 1 {
		t.Errorf("logs after a run that tracked none: %v", got)
	}
}

// A log whose identity has changed is saved although no scope has moved. Nothing else about a log
// causes a save: the agent would save every five seconds.
func TestChangedIdentityOfALogIsSaved(t *testing.T) {
	was := checkpoint.Log{
		Name:     "kubecdc",
		Cluster:  "oWh1",
		ID:       "2026-11-20T15:00:00Z",
		Acked:    []uint64{12},
		Replaced: 1,
	}
	for name, c := range map[string]struct {
		change func(*checkpoint.Log)
		saves  int
	}{
		"nothing":     {func(*checkpoint.Log) {}, 0},
		"position":    {func(l *checkpoint.Log) { l.Acked = []uint64{13} }, 0},
		"name":        {func(l *checkpoint.Log) { l.Name = "other" }, 1},
		"cluster":     {func(l *checkpoint.Log) { l.Cluster = "oWh2" }, 1},
		"id":          {func(l *checkpoint.Log) { l.ID = "2026-11-21T15:00:00Z" }, 1},
		"replacement": {func(l *checkpoint.Log) { l.Replaced = 2 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := new(memory)
				k := newKeeper(t, m)
				log := was
				k.TrackLogs(func() []checkpoint.Log { return []checkpoint.Log{log} })
				pods := informerAt(1, 1)
				k.Track("pods", pods.position, nil)
				if err := k.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				before, _ := m.counts()
				c.change(&log)
				if err := k.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				if after, _ := m.counts(); after-before != c.saves {
					t.Errorf("%d saves, want %d", after-before, c.saves)
				}
				if err := k.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
