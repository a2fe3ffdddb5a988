package driver

import (
	"context"
	"fmt"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// Readable is the Config of a bus that keeps records.
//
// SetAccess overrides settings with command-line flags. Its error names a flag that does not apply to the bus.
//
// Source returns the bus as a source of package consume. explain adds advice to an error of its Read.
//
// Logs returns the existing logs of the bus; none if the bus does not answer: another call reports that error.
//
// Relay returns the bus as the source of a relay.
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

// Access has the flags for reading a bus, all optional.
type Access struct {
	Creds       string // file with a user's credentials
	CAFile      string // file with certificates of authorities
	Stream      string
	InboxPrefix string
	Domain      string
}

// Reading is the input of a reader beside the settings.
type Reading struct {
	Key        string // of the settings, for errors; "": not from a file
	ConfigFile string // "": there is none
	Creds      string // Access.Creds
	Cluster    string // "": any
	DeadLetter string // as in Env; "": the default
}

// WithClusterAdvice adds advice to the error of a template that needs the unknown name of the cluster.
func WithClusterAdvice(err error, cluster string) error {
	if err == nil || cluster != "" {
		return err
	}
	return fmt.Errorf("%w: set cluster in the file, or --cluster (the agent's default is the uid of namespace kube-system)", err)
}
