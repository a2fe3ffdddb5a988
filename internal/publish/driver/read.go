package driver

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/kubecdc/kubecdc/internal/relay"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Readable is the Config of a bus that keeps records.
//
// SetAccess overrides settings by flags of the command line. Its error names a flag that does not apply to the bus.
//
// Source returns the bus as package consume reads it. explain adds advice to an error of its Read.
//
// Logs returns the logs of the bus that exist. A bus that cannot be asked has none: another call says what is wrong.
//
// Relay returns the bus as a relay reads it.
type Readable interface {
	Config
	SetAccess(a *Access) error
	Source(r *Reading) (source consume.Source, explain func(error) error, err error)
	Logs(ctx context.Context, r *Reading) ([]consume.Log, error)
	Relay(r *Relaying) (RelaySource, error)
}

// Partitioned is the Config of a bus with several logs. CopiesOf returns how many of the logs have a copy of an event about the stream.
type Partitioned interface {
	CopiesOf(logs []consume.Position, e *consume.Event) int
}

// Access is what flags say of how a bus is read, all of it optional.
type Access struct {
	Creds       string // file with credentials of a user
	CAFile      string // file with certificates of authorities
	Stream      string
	InboxPrefix string
	Domain      string
}

// Reading is what a reader says beside the settings.
type Reading struct {
	Key        string // of the settings, for errors; "": they are not from a file
	ConfigFile string // "": there is none
	Creds      string // Access.Creds
	Cluster    string // "": any
	DeadLetter string // as in Env; "": the default
}

// Relaying is what a relay says beside the settings.
type Relaying struct {
	Name       string // of the relay
	Cluster    string // "": any
	DeadLetter string // as in Env: not relayed
	Start      relay.Start
	Objects    []consume.Objects
	Events     consume.Events
	Log        *slog.Logger
}

// RelaySource is a relay's source whose cursor can be looked at. Status is used in place of Open.
type RelaySource interface {
	relay.Source
	Status(ctx context.Context) ([]relay.Position, error)
}

// WithClusterAdvice adds to an error what to do if a template needs the name of the cluster, which is not known.
func WithClusterAdvice(err error, cluster string) error {
	if err == nil || cluster != "" {
		return err
	}
	return fmt.Errorf("%w: set cluster in the file, or --cluster (where the agent has none, it is the uid of namespace kube-system)", err)
}
