package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/test/bench/feed"
	"github.com/kubecdc/kubecdc/test/bench/record"
	"github.com/kubecdc/kubecdc/test/process"
)

// stalled is how long the bus may receive nothing before a run fails.
const stalled = time.Minute

// arrangement has the settings that differ between rigs.
type arrangement struct {
	pods    int
	tls     bool
	traceGC bool // make the Go runtime collect often, and log the live heap of each collection
}

func (a arrangement) transport() string {
	if a.tls {
		return "TLS, HTTP/2"
	}
	return "HTTP"
}

// rig is a bus, an API server, and a contestant between them.
type rig struct {
	arrangement
	bench *bench
	name  string // of the contestant

	dir, kubeconfig, ca string
	sinkURL             string
	feed                feedAddress
	history             *feed.History // equal to the feed's, computed here

	sinkChild, feedChild, child *process.Child
	conn                        *nats.Conn
	js                          jetstream.JetStream
	stream                      jetstream.Stream
}

// assemble starts the bus and the API server. Close ends them, even if assemble fails.
func (b *bench) assemble(ctx context.Context, c contestant, a arrangement) (r *rig, err error) {
	r = &rig{arrangement: a, bench: b, name: c.name}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
			r = nil
		}
	}()
	r.dir, err = os.MkdirTemp(b.dir, "kubecdc-bench-*")
	if err != nil {
		return r, err
	}
	r.kubeconfig, r.ca = filepath.Join(r.dir, "kubeconfig"), filepath.Join(r.dir, "ca.pem")
	r.history, err = feed.NewHistory(a.pods)
	if err != nil {
		return r, err
	}
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()

	var address sinkAddress
	r.sinkChild, err = r.part(ready, &address, "sink", "--dir", filepath.Join(r.dir, "streams"))
	if err != nil {
		return r, err
	}
	r.sinkURL = address.URL
	r.feedChild, err = r.part(ready, &r.feed, "feed", "--pods", fmt.Sprint(a.pods), fmt.Sprintf("--tls=%t", a.tls),
		"--kubeconfig", r.kubeconfig, "--ca", r.ca)
	if err != nil {
		return r, err
	}
	r.conn, err = nats.Connect(r.sinkURL, nats.MaxReconnects(-1))
	if err != nil {
		return r, err
	}
	r.js, err = jetstream.New(r.conn)
	if err != nil {
		return r, err
	}
	r.stream, err = r.js.CreateStream(ready, jetstream.StreamConfig{
		Name:       record.Stream,
		Subjects:   []string{record.Subjects},
		Storage:    jetstream.FileStorage,
		Replicas:   1,
		Duplicates: 2 * time.Minute,
		Discard:    jetstream.DiscardNew,
	})
	return r, err
}

// part starts a sub-command of this program and reads its address.
func (r *rig) part(ctx context.Context, address any, args ...string) (*process.Child, error) {
	child, err := process.Start(process.Spec{
		Name:      args[0],
		Argv:      append([]string{r.bench.self}, args...),
		Log:       r.log(args[0]),
		Announces: true,
	})
	if err != nil {
		return nil, err
	}
	line, err := child.Ready(ctx)
	if err == nil {
		err = json.Unmarshal(line, address)
	}
	return child, err
}

func (r *rig) log(name string) string { return filepath.Join(r.dir, name+".log") }

// launch starts the contestant.
func (r *rig) launch(c contestant) error {
	argv, err := c.argv(r)
	if err != nil {
		return err
	}
	spec := process.Spec{Name: c.name, Argv: argv, Log: r.log("contestant")}
	if r.traceGC {
		spec.Env = []string{"GODEBUG=gctrace=1", "GOGC=10"}
	}
	r.child, err = process.Start(spec)
	return err
}

// order makes the feed release n updates, at rate per second, or all at once if rate is 0.
func (r *rig) order(ctx context.Context, n int, rate float64) error {
	url := fmt.Sprintf("%s/start?updates=%d&rate=%g", r.feed.Control, n, rate)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusNoContent {
		err = fmt.Errorf("start the updates: %s", response.Status)
	}
	return errors.Join(err, response.Body.Close())
}

func (r *rig) feedStatus(ctx context.Context) (feed.Status, error) {
	var status feed.Status
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.feed.Control+"/status", nil)
	if err != nil {
		return status, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return status, err
	}
	defer response.Body.Close()
	return status, json.NewDecoder(response.Body).Decode(&status)
}

// await returns the stream's state as soon as it holds want messages. what is shown in the progress
// on stderr.
func (r *rig) await(ctx context.Context, want uint64, what string) (jetstream.StreamState, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var state jetstream.StreamState
	changed, told := time.Now(), time.Now()
	for {
		info, err := r.stream.Info(ctx)
		switch {
		case err == nil && info.State.Msgs >= want:
			return info.State, nil
		case err == nil && info.State.Msgs != state.Msgs:
			state, changed = info.State, time.Now()
		case time.Since(changed) > stalled:
			return state, r.child.Failed(fmt.Errorf("%s: %d of %d records, and none in %v (%w)",
				what, state.Msgs, want, stalled, errors.Join(err, errStalled)))
		}
		if time.Since(told) > 5*time.Second {
			r.bench.progress("%s, %s: %s, %s of %s records", r.name, r.transport(), what, grouped(state.Msgs),
				grouped(want))
			told = time.Now()
		}
		select {
		case <-tick.C:
		case <-r.child.Done():
			return state, r.child.Failed(errors.New("ended by itself"))
		case <-ctx.Done():
			return state, context.Cause(ctx)
		}
	}
}

// errStalled says that a contestant has lost records, or is too slow to wait for.
var errStalled = errors.New("stalled")

// settle returns the number of messages when it has not changed for a while, because the end of a
// first sync is not announced.
func (r *rig) settle(ctx context.Context) (uint64, error) {
	const calm = 500 * time.Millisecond
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last uint64
	for since := time.Now(); time.Since(since) < calm; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		info, err := r.stream.Info(ctx)
		if err != nil {
			return 0, err
		}
		status, err := r.feedStatus(ctx)
		if err != nil {
			return 0, err
		}
		if info.State.Msgs != last || status.Watches == 0 {
			last, since = info.State.Msgs, time.Now()
		}
	}
	return last, nil
}

// stop ends the contestant as an orchestrator would, and returns an error if it did not exit
// cleanly.
func (r *rig) stop() error {
	if r.child == nil {
		return nil
	}
	child := r.child
	r.child = nil
	return child.Stop(30 * time.Second)
}

// close ends everything and removes leftovers.
func (r *rig) close() error {
	if r.child != nil {
		r.child.Kill()
	}
	if r.conn != nil {
		r.conn.Close()
	}
	var errs []error
	for _, child := range []*process.Child{r.feedChild, r.sinkChild} {
		if child != nil {
			errs = append(errs, child.Stop(10*time.Second))
		}
	}
	if r.dir != "" && !r.bench.keep {
		errs = append(errs, os.RemoveAll(r.dir))
	}
	return errors.Join(errs...)
}

// verify reads the whole stream and checks that all updates are there. It waits a little for
// missing records, because the number of messages includes other events.
func (r *rig) verify(ctx context.Context, updates int) (record.Result, error) {
	check := record.NewCheck(r.history, updates)
	consumer, err := r.js.OrderedConsumer(ctx, record.Stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return check.Result(), err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return check.Result(), err
	}
	defer messages.Stop()
	told := time.Now()
	for {
		message, err := messages.Next(jetstream.NextMaxWait(2 * time.Second))
		switch {
		case errors.Is(err, nats.ErrTimeout):
			return check.Result(), nil
		case err != nil:
			return check.Result(), fmt.Errorf("read the records back: %w", err)
		}
		check.Add(message.Subject(), message.Data())
		meta, err := message.Metadata()
		if err != nil {
			return check.Result(), err
		}
		if meta.NumPending == 0 && check.Result().Missing == 0 {
			return check.Result(), nil
		}
		if time.Since(told) > 5*time.Second {
			r.bench.progress("%s, %s: reading back, %s to go", r.name, r.transport(), grouped(meta.NumPending))
			told = time.Now()
		}
		if err := context.Cause(ctx); err != nil {
			return check.Result(), err
		}
	}
}
