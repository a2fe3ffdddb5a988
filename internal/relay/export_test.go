package relay

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// APITimeout is how long a relay tries to take its cursor before it begins anew.
const APITimeout = apiTimeout

// TakeCursor takes the cursor of a relay that begins at the beginning of a stream.
func TakeCursor(ctx context.Context, js jetstream.JetStream, name, stream string) error {
	_, err := takeCursor(ctx, js, name, position{Stream: stream, Created: time.Now().UTC().Format(time.RFC3339Nano)}, 1)
	return err
}
