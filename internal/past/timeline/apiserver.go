package timeline

import (
	"strings"
	"time"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// serverVersion is the version of the API server at the moment. The first progress of a run states
// it. The latest progress up to the moment that states it counts. If there is none, the first
// progress of a run after the moment counts.
type serverVersion struct {
	time          time.Time // of the progress
	version       string    // "v1.37.1"; "": none states it
	isAfterMoment bool      // the progress is after the moment
}

func (v *serverVersion) noteProgress(e *consume.Event, isIncluded bool) {
	p := e.Progress
	if p.APIServerVersion == "" || !isIncluded && (v.version != "" || p.Number != 1) {
		return
	}
	if v.version == "" || v.isAfterMoment || !e.Time.Before(v.time) {
		*v = serverVersion{e.Time, strings.Clone(p.APIServerVersion), !isIncluded}
	}
}

// APIServerVersion returns the version of the API server at the moment ("v1.37.1"), "" if no added
// progress states it.
func (f *Fold) APIServerVersion() string { return f.server.version }
