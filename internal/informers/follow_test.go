package informers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/informer"
	"github.com/kubecdc/kubecdc/internal/informers/store"

	"github.com/kubecdc/kubecdc/internal/informers"
	"github.com/kubecdc/kubecdc/internal/object"
)

// frameOf returns a watch frame of ConfigMap cm in the given version, with one manager more than
// the version before. Its uid is uid-1.
func frameOf(rv int) string {
	var managers []string
	for n := 101; n <= rv; n++ {
		managers = append(managers,
			fmt.Sprintf(
				`{"manager":"m-%d","operation":"Update","apiVersion":"v1","time":"2026-11-20T15:%02d:%02dZ","fieldsType":"FieldsV1"}`,
				n, n/60%60, n%60))
	}
	typ := "MODIFIED"
	if rv == 101 {
		typ = "ADDED"
	}
	return fmt.Sprintf(
		`{"type":%q,"object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"cm","namespace":"shop","uid":"uid-1",`+
			`"resourceVersion":"%d","managedFields":[%s]},"data":{"value":"%d"}}}`, typ, rv,
		strings.Join(managers, ","),
		rv)
}

// framesOf returns the frames of all versions in a range.
func framesOf(from, to int) (all []string) {
	for rv := from; rv <= to; rv++ {
		all = append(all, frameOf(rv))
	}
	return all
}

// wantOf returns the deltas that are expected for all versions up to to.
func wantOf(to int) []string {
	want := []string{"snapshot.started 0", "snapshot.completed 0", "c cm uid-1 -→101"}
	for rv := 102; rv <= to; rv++ {
		want = append(want, fmt.Sprintf("u cm uid-1 %d→%d", rv-1, rv))
	}
	return want
}

// send writes frames to a watch at once.
func send(w http.ResponseWriter, frames ...string) {
	fmt.Fprintln(w, strings.Join(frames, "\n"))
	w.(http.Flusher).Flush()
}

// Frames that arrive at once, fewer or more than a batch, are applied in order. Each is compared
// with the one right before it, even if the store has not taken that one yet.
func TestFramesThatComeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		s.onWatch(func(number int, w http.ResponseWriter, r *http.Request) bool {
			if number == 1 {
				send(w, framesOf(101, 120)...)
				<-time.After(time.Second)
				send(w, framesOf(121, 400)...)
			}
			<-r.Context().Done()
			return true
		})
		_, rec, _ := start(t, s, nil)
		pass(2 * time.Second)
		rec.wait(t, wantOf(400)...)
		rec.mu.Lock()
		defer rec.mu.Unlock()
		for _, d := range rec.deltas {
			var by []struct{ Manager string }
			if d.Stream != nil {
				continue
			}
			if err := json.Unmarshal(d.ChangedBy, &by); err != nil || len(by) != 1 ||
				by[0].Manager != fmt.Sprintf("m-%d", d.ResourceVersion) {
				t.Fatalf("version %d: changedBy %s (%v)", d.ResourceVersion, d.ChangedBy, err)
			}
		}
	})
}

// A frame that arrives alone, or with half of the next one, is delivered without waiting for more.
func TestHalfAFrameHoldsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		s.onWatch(func(number int, w http.ResponseWriter, r *http.Request) bool {
			if number == 1 {
				<-time.After(time.Millisecond) // until the snapshot is complete
				send(w, frameOf(101))
				<-time.After(time.Second)
				next := frameOf(103)
				fmt.Fprint(w, frameOf(102)+"\n"+next[:len(next)/2])
				w.(http.Flusher).Flush()
				<-time.After(time.Second)
				send(w, next[len(next)/2:])
			}
			<-r.Context().Done()
			return true
		})
		_, rec, _ := start(t, s, nil)
		pass(time.Millisecond)
		rec.wait(t, wantOf(101)...)
		pass(time.Second + 10*time.Millisecond)
		rec.wait(t, wantOf(102)...)
		pass(time.Second)
		rec.wait(t, wantOf(103)...)
	})
}

// slowLane delays each delta of an object.
type slowLane struct {
	store.Lane
	takes time.Duration
}

func (l slowLane) Put(ctx context.Context, key string, bytes int, d *object.Delta) error {
	if d.Stream == nil {
		select {
		case <-time.After(l.takes):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return l.Lane.Put(ctx, key, bytes, d)
}

// A queue that makes progress, however slowly, ends no watch. The limit is for the wait of one
// event, not of a batch.
func TestSlowQueueDoesNotEndTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		s.onWatch(func(number int, w http.ResponseWriter, r *http.Request) bool {
			if number == 1 {
				send(w, framesOf(101, 300)...)
			}
			<-r.Context().Done()
			return true
		})
		set, rec, reg := start(t, s, func(o *informers.Options) {
			lane := o.Lane
			o.Lane = func(name string) store.Lane { return slowLane{lane(name), 200 * time.Millisecond} }
		})
		for range 40 {
			pass(time.Second)
			if st := set.Status()[0]; st.Phase != informer.PhaseLive || st.Health != informer.HealthOK {
				t.Fatalf("%+v", st)
			}
		}
		pass(2 * time.Second)
		rec.wait(t, wantOf(300)...)
		if _, watches, _ := s.counts(); watches != 0 { // counted when they end
			t.Errorf("%d watches have ended", watches)
		}
		if n := labelled(t, reg, "kubecdc_informer_watches_total", "blocked"); n != 0 {
			t.Errorf("%v watches were blocked", n)
		}
	})
}

// The limit for unread watches counts from the event of a batch that the queue does not take. Each
// event read is delivered once.
func TestBlockedInsideABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newLinkedServer(t, false)
		s.onWatch(func(number int, w http.ResponseWriter, r *http.Request) bool {
			from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
			send(w, framesOf(from+1, 110)...)
			if number == 1 {
				<-time.After(time.Millisecond)
			}
			send(w, framesOf(max(from+1, 111), 120)...)
			<-r.Context().Done()
			return true
		})
		set, rec, reg := start(t, s, func(o *informers.Options) {
			lane := o.Lane
			o.Lane = func(name string) store.Lane { return slowLane{lane(name), 20 * time.Millisecond} }
		})
		taken := func(n int) {
			if err := rec.until(t.Context(), func() bool { return len(rec.deltas) >= n }); err != nil {
				t.Fatal(err)
			}
		}
		taken(2)
		rec.setRoom(3) // of the first batch
		taken(5)
		pass(248 * time.Millisecond)
		if st := set.Status()[0]; st.Phase != informer.PhaseLive || st.Health != informer.HealthOK {
			t.Errorf("before the limit: %+v", st)
		}
		pass(4 * time.Millisecond)
		if st := set.Status()[0]; st.Phase != informer.PhaseBlocked || st.Health != informer.HealthOK {
			t.Errorf("after the limit: %+v", st)
		}
		rec.setRoom(unbounded)
		pass(time.Second)
		rec.wait(t, wantOf(120)...)
		if n := labelled(t, reg, "kubecdc_informer_watches_total", "blocked"); n != 1 {
			t.Errorf("%v watches were blocked, want 1", n)
		}
	})
}

// A refused question does not change the status of a scope whose watch continues, because nothing
// is retried.
func TestRefusedQuestionIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newAPIServer(t)
		s.put("a", "1", map[string]string{"in": "0"})
		s.put("b", "1", map[string]string{"in": "1"})
		l := live(t, s, newMemory(), takes(rule(selected("in=1", ""))))
		l.awaitCaptured(t)
		s.do(func() {
			s.fault = func(w http.ResponseWriter, r *http.Request) bool {
				if !isList(r) {
					return false
				}
				fail(w, http.StatusNotFound, "NotFound")
				return true
			}
		})
		s.put("b", "2", map[string]string{"in": "0"}) // the agent asks whether it was deleted or has left
		eventually(t, "the deletion", func() bool { return l.has("~l b uid-2 1→-") })
		l.awaitPhases(t, "configmaps?labelSelector=in=1 live")
	})
}
