package sink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Run serves on a free port of 127.0.0.1, with its files in dir, until ctx ends. ready gets the
// URL.
func Run(ctx context.Context, dir string, ready func(url string) error) error {
	s, err := server.NewServer(&server.Options{
		ServerName: "bench",
		Host:       "127.0.0.1",
		Port:       server.RANDOM_PORT,
		JetStream:  true,
		StoreDir:   dir,
		NoSigs:     true,
	})
	if err != nil {
		return fmt.Errorf("start the sink: %w", err)
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(30 * time.Second) {
		return errors.New("start the sink: not ready after 30 s")
	}
	if err := ready(s.ClientURL()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
