package fromnats_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/nats/natsversion/natschild"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

// cluster is three servers in this process, or of another version if the environment names one.
// Each can be stopped and started again.
type cluster struct {
	tb      testing.TB
	options [3]*server.Options
	servers [3]anyServer
}

// anyServer is a server in this process, or one of another version.
type anyServer interface {
	Shutdown()
	WaitForShutdown()
}

// startCluster starts the servers. prepare changes their options; nil: they are near each other.
func startCluster(tb testing.TB, prepare func(*cluster)) *cluster {
	tb.Helper()
	c := &cluster{tb: tb}
	var routes []*url.URL
	for i := range c.options {
		route := unusedPort(tb)
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprint("127.0.0.1:", route)})
		c.options[i] = &server.Options{
			ServerName:          fmt.Sprint("n", i),
			Host:                "127.0.0.1",
			Port:                unusedPort(tb),
			JetStream:           true,
			StoreDir:            tb.TempDir(),
			NoSigs:              true,
			NoLog:               true,
			Cluster:             server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: route},
			JetStreamMaxCatchup: 64 << 10, // a server that was away lags for seconds
		}
	}
	if prepare != nil {
		prepare(c)
	}
	for i := range c.options {
		if prepare == nil {
			c.options[i].Routes = routes
		}
		c.start(i)
		tb.Cleanup(func() { c.stop(i) })
	}
	if natschild.IsWanted() {
		natschild.AwaitCluster(tb, c.url(-1), len(c.servers))
		return c
	}
	until(tb, "the cluster has a leader", func() bool {
		for _, s := range c.servers {
			s := s.(*server.Server)
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(c.servers) {
				return true
			}
		}
		return false
	})
	return c
}

func (c *cluster) start(i int) {
	c.tb.Helper()
	if natschild.IsWanted() {
		c.servers[i] = natschild.Start(c.tb, childOptions(c.options[i]))
		return
	}
	s, err := server.NewServer(c.options[i].Clone())
	if err != nil {
		c.tb.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		c.tb.Fatal("a server does not come up")
	}
	c.servers[i] = s
}

// childOptions returns the options of a server of another version.
func childOptions(o *server.Options) natschild.Options {
	child := natschild.Options{
		Name:       o.ServerName,
		Dir:        o.StoreDir,
		Port:       o.Port,
		Cluster:    o.Cluster.Port,
		MaxCatchup: int(o.JetStreamMaxCatchup),
	}
	for _, route := range o.Routes {
		port, _ := strconv.Atoi(route.Port()) // of unusedPort
		child.Routes = append(child.Routes, port)
	}
	return child
}

func (c *cluster) stop(i int) {
	c.servers[i].Shutdown()
	c.servers[i].WaitForShutdown()
}

// url has the addresses of the servers, except for the one that a test stops: what is in flight to
// that one is lost.
func (c *cluster) url(except int) string {
	var all []string
	for i, o := range c.options {
		if i != except {
			all = append(all, fmt.Sprintf("nats://127.0.0.1:%d", o.Port))
		}
	}
	return strings.Join(all, ",")
}

// fill creates a stream with three replicas, and adds n records while server away is stopped.
func (c *cluster) fill(js jetstream.JetStream, away, n int) {
	c.tb.Helper()
	until(c.tb, "the stream is created", func() bool {
		_, err := js.CreateOrUpdateStream(c.tb.Context(), jetstream.StreamConfig{
			Name: fromnats.DefaultStream, Subjects: []string{"kubecdc.>"}, Replicas: 3, Storage: jetstream.FileStorage,
		})
		return err == nil
	})
	put(c.tb, js, 1, 10)
	c.stop(away)
	for from := 11; from <= n; {
		var last jetstream.PubAckFuture
		for range min(2000, n-from+1) {
			f, err := js.PublishMsgAsync(&nats.Msg{
				Subject: fmt.Sprintf("kubecdc.x.object.core.pods.shop.web-%d", from%3), Data: pod(from),
				Header: nats.Header{"content-type": {"application/cloudevents+json"}, "Nats-Msg-Id": {
					fmt.Sprint(from),
				}},
			}, jetstream.WithStallWait(time.Minute))
			if err != nil {
				c.tb.Fatal(err)
			}
			last = f
			from++
		}
		select {
		case <-last.Ok():
		case err := <-last.Err():
			c.tb.Fatal(err)
		case <-time.After(5 * time.Minute):
			c.tb.Fatal("the cluster does not acknowledge the records")
		}
	}
	<-js.PublishAsyncComplete()
}

// A reader's consumer is on a server that lags, and that says that nothing is pending. The reader
// reads all records up to the end that the stream's leader has, or returns an error. Reads of the
// last records of each subject do so as well.
func TestLaggingServerEndsNoRead(t *testing.T) {
	if testing.Short() {
		t.Skip("half a minute: part of make test")
	}
	t.Parallel()
	const records, wanted, away, reads, eachOf = 150_000, 1_000, 2, 1_000, 40
	c := startCluster(t, nil)
	nc, err := nats.Connect(c.url(away), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000))
	if err != nil {
		t.Fatal(err)
	}
	c.fill(js, away, records)

	type result struct{ lagging, complete, failed atomic.Int64 }
	var ofEnd, ofEach result
	read := func(last bool) {
		q := consume.Query{Start: after(records - wanted), StopAtEnd: true}
		want, count := wanted, &ofEnd
		if last {
			q = consume.Query{Start: consume.Beginning(), StopAtEnd: true, LastOfEach: true}
			want, count = 3, &ofEach
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		s := fromnats.JetStream{Conn: nc, Subjects: []string{"kubecdc.x.object.core.pods.shop.*"}}
		r, err := s.Read(ctx, q)
		if err != nil {
			t.Log(err)
			count.failed.Add(1)
			return
		}
		defer r.Close()
		for _, at := range fromnats.Consumers(r) {
			if at.Server == c.options[away].ServerName && (last || at.Pending == 0) {
				count.lagging.Add(1)
			}
		}
		newest := map[int]int{} // by subject
		n := 0
		for err == nil {
			var e *consume.Event
			e, err = r.Next(ctx)
			if err == nil {
				n++
				newest[int(number(e.Sequence))%3] = int(number(e.Sequence))
			}
		}
		isComplete := n == want
		if last {
			isComplete = newest[0] == records && newest[1] == records-2 && newest[2] == records-1
		}
		switch {
		case !errors.Is(err, io.EOF):
			t.Log(err)
			count.failed.Add(1)
		case !isComplete:
			t.Errorf("a read returned %d records, the newest of each subject are %v, and no error", n, newest)
		default:
			count.complete.Add(1)
		}
	}
	var next atomic.Int64
	var readers sync.WaitGroup
	c.start(away)
	for range 20 {
		readers.Go(func() {
			for n := next.Add(1); n <= reads; n = next.Add(1) {
				read(n%eachOf == 0)
			}
		})
	}
	readers.Wait()
	for name, count := range map[string]*result{"of the last records": &ofEnd, "of the last of each subject": &ofEach} {
		t.Logf("reads %s: %d complete, %d with an error; %d consumers on the server that lags", name,
			count.complete.Load(), count.failed.Load(), count.lagging.Load())
	}
	for _, count := range []*result{&ofEnd, &ofEach} {
		if count.lagging.Load() == 0 {
			t.Error("no consumer was on the server that lags")
		}
	}
	if ofEnd.complete.Load() < reads*8/10 || ofEach.complete.Load() < reads/eachOf*8/10 {
		t.Error("many reads were not complete")
	}
}
