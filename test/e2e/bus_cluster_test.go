package e2e_test

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
)

// startBusCluster runs three servers in this process that are one JetStream, with three copies of the agent's stream.
func startBusCluster(t testing.TB) *bus {
	t.Helper()
	const n = 3
	var routes []*url.URL
	var ports []int
	for range n {
		port := freePort(t)
		ports = append(ports, port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: "127.0.0.1:" + strconv.Itoa(port)})
	}
	var servers []*server.Server
	var urls []string
	for i := range n {
		o := busOptions(server.RANDOM_PORT, t.TempDir())
		o.ServerName = fmt.Sprint("bus", i)
		o.Cluster = server.ClusterOpts{Name: "e2e", Host: "127.0.0.1", Port: ports[i]}
		o.Routes = routes
		s := startServer(t, o)
		servers = append(servers, s)
		urls = append(urls, s.ClientURL())
	}
	eventually(t, time.Minute, func() error {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == n {
				return nil
			}
		}
		return errors.New("the cluster has no leader")
	})
	return &bus{URL: strings.Join(urls, ","), replicas: n}
}

// stepDown makes the leader of the stream give up, again and again until ctx ends, and counts how often one did.
func stepDown(ctx context.Context, conn *nats.Conn, every time.Duration, count *atomic.Int64) error {
	for ctx.Err() == nil {
		pass(ctx, every)
		msg, err := conn.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+streamName, nil)
		if err != nil {
			continue // Between two leaders nobody answers, and before the agent there is no stream.
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
