package localbus

import (
	"cmp"
	"context"
	"crypto/rand"
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

	// maxStore limits the store on a disk with ample room. On a smaller disk the server's default
	// applies: three quarters of the free space. A full store rejects records, and the agent waits.
	maxStore = 20 << 30
	// minFree is the free space required at the start. The server disables a store as soon as it
	// detects a full disk.
	minFree = 256 << 20
	// maxMemory limits streams in memory, which other clients may create.
	maxMemory = 256 << 20
)

// Options configures a bus.
type Options struct {
	Dir       string // created if it does not exist
	Cluster   string // uid
	APIServer string // URL, for people; without credentials
	Agent     string // URL of the agent's own HTTP server, for commands that look it up
	Log       *slog.Logger

	FirstPort int    // tried first; 0 means 4222, which every NATS client tries by default
	LastPort  int    // tried last; 0 means 4321
	MinFree   uint64 // bytes that must be free on Dir's file system; 0 means 256 MiB
}

// Bus is a running server.
type Bus struct {
	dir    *directory
	log    *logger // the server's
	server *server.Server
	url    string
	token  string
}

// Start locks the directory and starts a server on 127.0.0.1:4222 or the next free port. An error
// about the directory names it and a remedy. The directory may belong to another cluster or a newer
// kubecdc, be in use, damaged or not writable, or be on a full disk.
func Start(ctx context.Context, o Options) (_ *Bus, err error) {
	o.FirstPort, o.LastPort = cmp.Or(o.FirstPort, firstPort), cmp.Or(o.LastPort, lastPort)
	dir, err := openDirectory(ctx, &o)
	if err != nil {
		return nil, err
	}
	b := &Bus{dir: dir, token: rand.Text()}
	defer func() {
		if err != nil {
			_ = dir.close() // err is more informative
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
		b.server, err = serve(dir.path, port, b.token, b.log)
		if err != nil {
			if !free(ctx, port) { // another process took the port
				continue
			}
			return nil, err
		}
		b.url = "nats://" + net.JoinHostPort(host, strconv.Itoa(port))
		if err := dir.announce(b.url, b.token); err != nil {
			b.stop()
			return nil, err
		}
		return b, nil
	}
	return nil, fmt.Errorf("no free port for the embedded JetStream: all of %s:%d to %d are taken; "+
		"stop the programs that use them, or give a bus with --bus", host, o.FirstPort, o.LastPort)
}

// URL returns the address that clients connect to.
func (b *Bus) URL() string { return b.url }

// Token returns the token that clients must send. It is a secret.
func (b *Bus) Token() string { return b.token }

// Dir returns the absolute path of the directory.
func (b *Bus) Dir() string { return b.dir.path }

// Wait returns nil when ctx ends. It returns an error earlier if the server gives up its store or a
// part of it. That happens when a write fails, mostly because the disk is full; only a restart
// helps then.
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
				return fmt.Errorf("the embedded JetStream can no longer write to %s (%s): "+
					"check the disk and its free space, and start again; acknowledged records are kept", b.dir.path,
					why)
			}
		}
	}
}

// Close stops the server, waits for its end, and unlocks the directory. It disconnects clients, so
// publishers must close first.
func (b *Bus) Close() error {
	b.stop()
	return b.dir.close()
}

func (b *Bus) stop() {
	b.server.Shutdown()
	b.server.WaitForShutdown()
}

// serve starts a server and waits until it accepts connections.
func serve(dir string, port int, token string, log *logger) (*server.Server, error) {
	opts := &server.Options{
		ServerName:             "kubecdc",
		Host:                   host,
		Port:                   port,
		Authorization:          token,
		JetStream:              true,
		StoreDir:               dir,
		SyncInterval:           syncInterval,
		JetStreamMaxMemory:     maxMemory,
		NoSigs:                 true,
		DisableJetStreamBanner: true,
	}
	if room, err := available(dir); err == nil && room/4*3 > maxStore {
		opts.JetStreamMaxStore = maxStore
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("embedded JetStream: %w", err)
	}
	s.SetLoggerV2(log, false, false, false)
	s.Start() // Start returns when the server listens or has logged why it cannot
	fatal := log.firstFatal()
	if fatal == "" && s.ReadyForConnections(readyTimeout) {
		return s, nil
	}
	s.Shutdown()
	s.WaitForShutdown()
	return nil, fmt.Errorf("embedded JetStream in %s: %s", dir, cmp.Or(fatal, "not ready after "+readyTimeout.String()))
}

// free reports whether a port is free. It tries to connect first: on some systems a process can
// listen on 127.0.0.1 beside a server that listens on all addresses, and would receive its clients.
func free(ctx context.Context, port int) bool {
	address := net.JoinHostPort(host, strconv.Itoa(port))
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err == nil {
		conn.Close()
		return false
	}
	if netErr := net.Error(nil); errors.As(err, &netErr) && netErr.Timeout() {
		return false // a process listens but does not accept
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return false
	}
	l.Close()
	return true
}
