package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/internal/bus/nats/natsversion/natschild"
	"github.com/kubecdc/kubecdc/test/wait"
)

// StartBusCluster runs a JetStream cluster of three servers in this process, with three replicas of
// the agent's stream. The environment may name servers of another version (natschild.Env).
func StartBusCluster(t testing.TB) *Bus {
	t.Helper()
	if natschild.IsWanted() {
		return startChildren(t)
	}
	const n = 3
	var routes []*url.URL
	var ports []int
	for range n {
		port := FreePort(t)
		ports = append(ports, port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: "127.0.0.1:" + strconv.Itoa(port)})
	}
	var servers []*server.Server
	var urls []string
	for i := range n {
		o := BusOptions(server.RANDOM_PORT, t.TempDir())
		o.ServerName = fmt.Sprint("bus", i)
		o.Cluster = server.ClusterOpts{Name: "e2e", Host: "127.0.0.1", Port: ports[i]}
		o.Routes = routes
		s := StartServer(t, o)
		servers = append(servers, s)
		urls = append(urls, s.ClientURL())
	}
	wait.Eventually(t, time.Minute, func() error {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == n {
				return nil
			}
		}
		return errors.New("the cluster has no leader")
	})
	return &Bus{URL: strings.Join(urls, ","), replicas: n}
}

// startChildren is StartBusCluster with servers of another version.
func startChildren(t testing.TB) *Bus {
	t.Helper()
	const n = 3
	var routes []int
	for range n {
		routes = append(routes, FreePort(t))
	}
	var urls []string
	for i := range n {
		o := natschild.Options{
			Name:    fmt.Sprint("bus", i),
			Dir:     t.TempDir(),
			Port:    FreePort(t),
			Cluster: routes[i],
			Routes:  routes,
		}
		urls = append(urls, natschild.Start(t, o).ClientURL())
	}
	url := strings.Join(urls, ",")
	natschild.AwaitCluster(t, url, n)
	return &Bus{URL: url, replicas: n}
}

// StepDown makes the leader of the stream step down, again and again until ctx ends, and counts the
// successes.
func StepDown(ctx context.Context, conn *nats.Conn, every time.Duration, count *atomic.Int64) error {
	for ctx.Err() == nil {
		Pass(ctx, every)
		msg, err := conn.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+StreamName, nil)
		if err != nil {
			continue // There is no leader, or the agent has not created the stream yet.
		}
		var answer struct {
			Success bool `json:"success"`
		}
		if err := json.Unmarshal(msg.Data, &answer); err != nil {
			return err
		}
		if answer.Success {
			count.Add(1)
		}
	}
	return nil
}
