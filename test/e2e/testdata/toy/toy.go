// Package toy is a bus that exists only in a test: a line of JSON for each event over one TCP
// connection, and a byte back for each line.
package toy

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/publish"
)

// Config is the settings below bus.toy.
type Config struct {
	Address string `yaml:"address"` // host:port
}

// Driver is the bus "toy" of the configuration.
func Driver() *driver.Driver {
	return &driver.Driver{
		Name:    "toy",
		Schemes: []string{"toy"},
		URL:     "toy://host:port",
		Default: func() driver.Config { return new(Config) },
	}
}

// SetURL implements driver.Config.
func (c *Config) SetURL(url string) error {
	c.Address = strings.TrimPrefix(url, "toy://")
	return nil
}

// Validate implements driver.Config.
func (c *Config) Validate(path *field.Path, _ *driver.Facts) field.ErrorList {
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		return field.ErrorList{field.Invalid(path.Child("address"), c.Address, "must be host:port")}
	}
	return nil
}

// Summary implements driver.Config.
func (c *Config) Summary() driver.Summary {
	return driver.Summary{
		Kind:     "toy",
		URL:      "toy://" + c.Address,
		Text:     "the toy at " + c.Address,
		Log:      "toy " + c.Address,
		Servers:  []string{c.Address},
		Identity: "toy",
	}
}

// Open implements driver.Config.
func (c *Config) Open(*driver.Env) (publish.Bus, error) {
	return &bus{address: c.Address, events: make(chan *publish.Event, publish.InFlight)}, nil
}

// bus has at most publish.InFlight events: the channel takes all of them.
type bus struct {
	address string
	events  chan *publish.Event

	mu        sync.Mutex
	connected bool
	closed    bool
}

func (b *bus) Publish(e *publish.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		e.Done(publish.ErrClosed)
		return
	}
	b.events <- e
}

func (b *bus) Ready() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.connected {
		return errors.New("not connected to the toy")
	}
	return nil
}

func (b *bus) Run(ctx context.Context) error {
	defer b.shutdown()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", b.address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	b.mu.Lock()
	b.connected = true
	b.mu.Unlock()
	var acknowledged [1]byte
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-b.events:
			_, err := conn.Write(append(bytes.ReplaceAll(e.Body, []byte("\n"), nil), '\n'))
			if err == nil {
				_, err = conn.Read(acknowledged[:])
			}
			if err != nil {
				e.Done(publish.ErrClosed)
				return err
			}
			e.Done(nil)
		}
	}
}

func (b *bus) shutdown() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.connected = true, false
	for {
		select {
		case e := <-b.events:
			e.Done(publish.ErrClosed)
		default:
			return
		}
	}
}
