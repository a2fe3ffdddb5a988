package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// network is the network of a Pod: a namespace with a loopback interface and forwarded routes.
type network struct {
	namespace *os.File
	listeners []net.Listener

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
}

// newNetwork creates the namespace and forwards each route, in goroutines of g that end with close.
func newNetwork(ctx context.Context, g *errgroup.Group, routes map[string]string) (_ *network, err error) {
	n := &network{conns: map[net.Conn]struct{}{}}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		var err error
		n.namespace, err = os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		var hosts []string
		for inside := range routes {
			host, _, err := net.SplitHostPort(inside)
			if err != nil {
				return err
			}
			if !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
		return loopback(hosts)
	})
	if err != nil {
		return nil, err
	}
	for inside, outside := range routes {
		var l net.Listener
		err = onThread(func() error {
			if err := n.enter(); err != nil {
				return err
			}
			var err error
			l, err = new(net.ListenConfig).Listen(ctx, "tcp", inside)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("route %s: %w", inside, err)
		}
		n.listeners = append(n.listeners, l)
		g.Go(func() error {
			for {
				conn, err := l.Accept()
				if err != nil {
					return nil // closed
				}
				g.Go(func() error {
					n.forward(ctx, conn, outside)
					return nil
				})
			}
		})
	}
	return n, nil
}

// loopback sets the interface up, with addresses in addition to 127.0.0.0/8.
func loopback(addresses []string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_LOOPBACK | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	for i, address := range addresses {
		ip := net.ParseIP(address).To4()
		if ip == nil {
			return fmt.Errorf("%s: not an IPv4 address", address)
		}
		if ip.IsLoopback() {
			continue
		}
		r, err := unix.NewIfreq(fmt.Sprintf("lo:%d", i+1))
		if err != nil {
			return err
		}
		if err := r.SetInet4Addr(ip); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, r); err != nil {
			return fmt.Errorf("address %s: %w", address, err)
		}
	}
	return nil
}

// enter moves this thread into the namespace.
func (n *network) enter() error {
	if err := unix.Setns(int(n.namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the Pod's network: %w", err)
	}
	return nil
}

// dial connects from inside the namespace.
func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	var conn net.Conn
	err := onThread(func() error {
		if err := n.enter(); err != nil {
			return err
		}
		var err error
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", address)
		return err
	})
	return conn, err
}

// forward copies in both directions until both have ended.
func (n *network) forward(ctx context.Context, in net.Conn, outside string) {
	defer in.Close()
	if !n.keep(in) {
		return
	}
	defer n.drop(in)
	out, err := new(net.Dialer).DialContext(ctx, "tcp", outside)
	if err != nil {
		return // like a Service without an endpoint: the connection ends
	}
	defer out.Close()
	if !n.keep(out) {
		return
	}
	defer n.drop(out)
	var g errgroup.Group
	for _, ends := range [][2]net.Conn{{in, out}, {out, in}} {
		g.Go(func() error {
			_, _ = io.Copy(ends[0], ends[1]) // ends when either side does
			if tcp, ok := ends[0].(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
			return nil
		})
	}
	_ = g.Wait()
}

func (n *network) keep(c net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.conns[c] = struct{}{}
	return true
}

func (n *network) drop(c net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.conns, c)
}

// close ends the forwarding. The namespace ends with the last process in it.
func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.closed = true
	var errs []error
	for _, l := range n.listeners {
		errs = append(errs, l.Close())
	}
	for c := range n.conns {
		errs = append(errs, c.Close())
	}
	if n.namespace != nil {
		errs = append(errs, n.namespace.Close())
	}
	_ = errors.Join(errs...) // nothing is written to a disk
}
