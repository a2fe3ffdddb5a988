package localbus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	host         = "127.0.0.1"
	syncInterval = 10 * time.Second
	firstPort    = 4222
	lastPort     = 4321
	readyTimeout = 30 * time.Second
	watchEvery   = time.Second

	// maxStore bounds what records may take of a disk that has more than enough room. Where it has not, the server takes
	// three quarters of what is free. Full, it refuses records, and the agent waits.
	maxStore = 20 << 30
	// minFree is what has to be free at the start. A store without room is disabled by the server as soon as it notices.
	minFree = 256 << 20
	// maxMemory is for streams in memory, which others may make.
	maxMemory = 256 << 20
)

// Options say what a bus is for.
type Options struct {
	Dir       string // made if it does not exist
	Cluster   string // uid
	APIServer string // URL, for people; without credentials
	Agent     string // URL of the agent's own HTTP server, for commands that look for it
	Log       *slog.Logger

	FirstPort int    // tried first. 0: 4222, which every NATS client tries by default
	LastPort  int    // tried last. 0: 4321
	MinFree   uint64 // bytes that must be free on Dir's file system. 0: 256 MiB
}

// Bus is a running server.
type Bus struct {
	dir    *directory
	log    *logger // the server's
	server *server.Server
	url    string
}

// Start takes the directory and starts a server on 127.0.0.1:4222 or the next port that is free. Its errors name
// the directory and say what can be done: it is another cluster's, another agent uses it, it is damaged, of a newer
// kubecdc, cannot be written to, or its disk is full.
func Start(ctx context.Context, o Options) (_ *Bus, err error) {
	o.FirstPort, o.LastPort = cmp.Or(o.FirstPort, firstPort), cmp.Or(o.LastPort, lastPort)
	dir, err := openDirectory(ctx, &o)
	if err != nil {
		return nil, err
	}
	b := &Bus{dir: dir}
	defer func() {
		if err != nil {
			_ = dir.close() // err says more
		}
	}()
	for port := o.FirstPort; port <= o.LastPort; port++ {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !free(ctx, port) {
			continue
		}
		b.log = &logger{log: o.Log}
		b.server, err = serve(dir.path, port, b.log)
		if err != nil {
			if !free(ctx, port) { // someone was faster
				continue
			}
			return nil, err
		}
		b.url = "nats://" + net.JoinHostPort(host, strconv.Itoa(port))
		if err := dir.announce(b.url); err != nil {
			b.stop()
			return nil, err
		}
		return b, nil
	}
	return nil, fmt.Errorf("no free port for the embedded JetStream: all of %s:%d to %d are taken; "+
		"end what uses them, or name a bus with --bus", host, o.FirstPort, o.LastPort)
}

// URL is where clients connect to.
func (b *Bus) URL() string { return b.url }

// Dir is the absolute path of the directory.
func (b *Bus) Dir() string { return b.dir.path }

// Wait waits until ctx ends, and then returns nil. It returns an error should the server give up its store, or a part of
// it, before: it does when a write fails, for want of room above all, and nothing but a new start helps then.
func (b *Bus) Wait(ctx context.Context) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			why := b.log.firstLost()
			if why == "" && !b.server.JetStreamEnabled() {
				why = "its store is disabled"
			}
			if why != "" {
				return fmt.Errorf("the embedded JetStream cannot write to %s any more (%s): "+
					"see that the disk has room and works, and start again; what was acknowledged is there", b.dir.path, why)
			}
		}
	}
}

// Close ends the server, waits for its end, and lets go of the directory. Clients are cut off, so publishers come first.
func (b *Bus) Close() error {
	b.stop()
	return b.dir.close()
}

func (b *Bus) stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

// serve starts a server and waits until it takes connections.
func serve(dir string, port int, log *logger) (*server.Server, error) {
	opts := &server.Options{
		ServerName: "kubecdc",
		Host:       host, Port: port,
		JetStream: true, StoreDir: dir, SyncInterval: syncInterval,
		JetStreamMaxMemory: maxMemory,
		NoSigs:             true, DisableJetStreamBanner: true,
	}
	if room, err := available(dir); err == nil && room/4*3 > maxStore {
		opts.JetStreamMaxStore = maxStore
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded JetStream: %w", err)
	}
	s.SetLoggerV2(log, false, false, false)
	s.Start() // when it returns, it listens or has said why it cannot
	fatal := log.firstFatal()
	if fatal == "" && s.ReadyForConnections(readyTimeout) {
		return s, nil
	}
	s.Shutdown()
	s.WaitForShutdown()
	return nil, fmt.Errorf("embedded JetStream in %s: %s", dir, cmp.Or(fatal, "not ready after "+readyTimeout.String()))
}

// free tells if a port can be had. Asking comes first: on some systems one can listen on 127.0.0.1 beside a server that
// listens on all addresses, and would take its clients.
func free(ctx context.Context, port int) bool {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err == nil {
		conn.Close()
		return false
	}
	if netErr := net.Error(nil); errors.As(err, &netErr) && netErr.Timeout() {
		return false // somebody listens and does not accept
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return false
	}
	l.Close()
	return true
}
