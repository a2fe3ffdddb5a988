package fromnats

import (
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// BeatEvery sets the interval of a reader's heartbeats at rest. It takes effect with its next
// consumers.
func BeatEvery(r consume.Reader, d time.Duration) {
	reader := r.(*jetStreamReader)
	reader.beat = d
	reader.drop()
}

// LiveFor sets the time for which the server keeps a reader's requests. It takes effect with its
// next consumers.
func LiveFor(r consume.Reader, d time.Duration) { r.(*jetStreamReader).lives = d }

// LagAfter sets the time after which a server that looks no further is replaced.
func LagAfter(r consume.Reader, d time.Duration) { r.(*jetStreamReader).patience = d }

// Consumer is the consumer of a reader on the server, when it was created.
type Consumer struct {
	Server  string
	Pending uint64
}

// Consumers returns those that a reader has now.
func Consumers(r consume.Reader) []Consumer {
	var out []Consumer
	if m := r.(*jetStreamReader).merge; m != nil {
		for _, p := range m.pulls {
			out = append(out, Consumer{p.server(), p.consumer.NumPending})
		}
	}
	return out
}

// End returns the sequence up to which a reader reads.
func End(r consume.Reader) uint64 { return r.(*jetStreamReader).at.end }

// ErrTaken reports that another reader has taken a consumer with a fixed name.
var ErrTaken = errTaken

// These are the functions of the package.
var (
	WidestFilter  = widestFilter
	MatchesFilter = matchesFilter
)
