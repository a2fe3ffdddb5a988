package nats_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsversion/natschild"
)

// startCluster starts a JetStream of three servers, of another version if the environment names
// one.
func startCluster(t *testing.T) []bustest.Server {
	t.Helper()
	if natschild.IsWanted() {
		return startChildren(t)
	}
	var servers []bustest.Server
	for _, s := range startEmbedded(t) {
		servers = append(servers, s)
	}
	return servers
}

// startChildren starts three servers as children.
func startChildren(t *testing.T) (servers []bustest.Server) {
	t.Helper()
	const size = 3
	var routes [size]int
	for i := range routes {
		routes[i] = natschild.FreePort(t)
	}
	var urls []string
	for i := range size {
		s := natschild.Start(t, natschild.Options{
			Name:    fmt.Sprintf("n%d", i),
			Dir:     t.TempDir(),
			Port:    natschild.FreePort(t),
			Cluster: routes[i],
			Routes:  routes[:],
		})
		servers = append(servers, s)
		urls = append(urls, s.ClientURL())
	}
	natschild.AwaitCluster(t, strings.Join(urls, ","), size)
	return servers
}

// startEmbedded starts three servers in this process.
func startEmbedded(t *testing.T) []*server.Server {
	t.Helper()
	const size = 3
	// Each has to know where the others are before they are there.
	var routes []*url.URL
	ports := make([]int, size)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
		routes = append(routes, &url.URL{Scheme: "nats", Host: l.Addr().String()})
		l.Close()
	}
	servers := make([]*server.Server, size)
	for i := range servers {
		opts := &server.Options{
			ServerName: fmt.Sprintf("n%d", i),
			Host:       "127.0.0.1",
			Port:       -1,
			JetStream:  true,
			StoreDir:   t.TempDir(),
			NoSigs:     true,
			NoLog:      true,
			Cluster:    server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: ports[i]},
			Routes:     routes,
		}
		s, err := server.NewServer(opts)
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		t.Cleanup(func() { bustest.StopServer(s) })
		servers[i] = s
	}
	for _, s := range servers {
		if !s.ReadyForConnections(20 * time.Second) {
			t.Fatal("a server does not come up")
		}
	}
	bustest.Wait(t, "the cluster to have a leader", func() bool {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == size {
				return true
			}
		}
		return false
	})
	return servers
}

// The stream's leader steps down again and again, and once its server goes away.
func TestClusterWhoseLeaderSteps(t *testing.T) {
	t.Parallel()
	const keys, versions = 32, 150
	steps := 10
	if testing.Short() {
		steps = 3
	}
	servers := startCluster(t)
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.ClientURL())
	}
	cfg := bustest.NATSConfig(strings.Join(urls, ","))
	cfg.Stream.Replicas = len(servers)
	cfg.AckTimeout = time.Second
	r := bustest.RunNATS(t, cfg)
	bustest.Wait(t, "the stream to be there", func() bool { return r.Ready() == nil })

	js := bustest.Admin(t, strings.Join(urls, ","))
	// A server does not answer between two leaders: ask again soon.
	describe := func() *jetstream.StreamInfo {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		s, err := js.Stream(ctx, natsconfig.DefaultStream)
		if err != nil || s.CachedInfo().Cluster == nil {
			return nil
		}
		return s.CachedInfo()
	}
	leader := func() string { // "" between two leaders
		if info := describe(); info != nil {
			return info.Cluster.Leader
		}
		return ""
	}
	bustest.Wait(t, "the stream to have a leader and a copy on each server", func() bool {
		info := describe()
		return info != nil && info.Cluster.Leader != "" && info.Config.Replicas == len(servers) &&
			len(info.Cluster.Replicas) == len(servers)-1
	})
	l := startLoad(t, r, keys, versions)
	for i := range steps {
		l.reach(t, i+1, steps+2)
		before := leader()
		bustest.Wait(t, "another leader", func() bool {
			_, err := js.Conn().
				Request("$JS.API.STREAM.LEADER.STEPDOWN."+natsconfig.DefaultStream, nil, 500*time.Millisecond)
			now := leader()
			return (err == nil || now != before) && now != ""
		})
	}
	l.reach(t, steps+1, steps+2)
	gone := leader()
	for _, s := range servers {
		if s.Name() == gone {
			bustest.StopServer(s)
		}
	}
	l.wg.Wait()
	bustest.Wait(t, "a leader that answers", func() bool { now := leader(); return now != "" && now != gone })
	l.check(t, strings.Join(urls, ","))
}
