package subjectfilter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/kubecdc/kubecdc/internal/bus/nats/searchtime"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

const (
	// checkTimeout limits Check on an empty stream. If Check fails, a reader reads all records.
	checkTimeout = 4 * time.Second
	// mostCounts is the maximum number of counts while new records arrive.
	mostCounts = 20
	// mostForeign is the largest number of records of other forms whose subjects find lists.
	mostForeign = 1000
	// mostFound limits the subjects of a filter without wildcards.
	mostFound = 64
	// The server removes a consumer that Check did not delete after this idle time.
	forgotten = 10 * time.Second
	// removeTimeout limits how long the deletion of a consumer may take.
	removeTimeout = time.Second
)

// errUnsettled reports that counts are not comparable.
var errUnsettled = errors.New(
	"records come too fast to count those that have other subjects than bus.nats.subject makes, or a server lags")

// errForeign reports that the stream has records under subjects that the template does not make.
var errForeign = errors.New("the stream has records of objects under other subjects than bus.nats.subject makes")

// Check returns nil if the filter omits no record of the stream that the reader wants. All subjects
// as long as the template's, or as those of stream events or progress, must have one of these
// forms. The oldest and the newest record of an object must have the subject that the template
// makes. Otherwise the error says why the reader must request all records.
//
// A query may end with the current records of the stream. Then the filter has no wildcards that
// these records do not need: it has the name of their cluster if there is only one, otherwise the
// subjects that exist. The server finds records by a few subjects without wildcards much faster.
func (f *Filter) Check(ctx context.Context, stream jetstream.Stream, q *consume.Query) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout+searchtime.For(&stream.CachedInfo().State))
	defer cancel()
	if q.StopAtEnd && f.checked != nil && f.checkAgain(ctx, stream) {
		f.wanted, f.alone = f.choose(q, f.checked.cluster), true
		return nil
	}
	cluster := ""
	for _, policy := range []jetstream.DeliverPolicy{jetstream.DeliverAllPolicy, jetstream.DeliverLastPolicy} {
		e, err := f.sample(ctx, stream, policy)
		if err != nil {
			return err
		}
		if e != nil {
			cluster = e.Cluster
		}
	}
	c, err := newCounter(ctx, stream, 0)
	if err != nil {
		return err
	}
	defer c.remove()
	if q.StopAtEnd && cluster != "" {
		all, err := f.covers(ctx, c, cluster)
		if err != nil {
			return err
		}
		if all {
			f.wanted, f.alone = f.choose(q, cluster), true
			f.checked = &checked{stream.CachedInfo().Created, c.end, cluster}
			return nil
		}
	}
	if err := f.count(ctx, c); err != nil || !q.StopAtEnd {
		return err
	}
	_ = f.find(ctx, stream, c) // on an error, the wildcards remain
	return nil
}

// checked is a part of a stream, from its beginning. Each of its records has a subject that the
// template makes for a cluster, or is a stream event or progress of that cluster.
type checked struct {
	created time.Time // of the stream
	end     uint64    // sequence of the last record
	cluster string
}

// checkAgain reports whether what was checked holds for the records that have come since, too. It
// looks at no others.
func (f *Filter) checkAgain(ctx context.Context, stream jetstream.Stream) bool {
	was, info := f.checked, stream.CachedInfo()
	switch {
	case !info.Created.Equal(was.created) || info.State.LastSeq < was.end || !isLed(info):
		return false
	case info.State.LastSeq == was.end:
		return true
	}
	if e, err := f.sample(ctx, stream, jetstream.DeliverLastPolicy); err != nil || e == nil ||
		e.Cluster != was.cluster {
		return false
	}
	c, err := newCounter(ctx, stream, was.end)
	if err != nil {
		return false
	}
	defer c.remove()
	all, err := f.covers(ctx, c, was.cluster)
	if err != nil || !all {
		return false
	}
	f.checked = &checked{was.created, c.end, was.cluster}
	return true
}

// find replaces wildcards by the subjects of the stream that match them. It does so for wanted
// records if only the cluster is a wildcard, for progress, and for subjects of other forms if they
// have few records. The stream's end is known before, so later subjects do not matter.
func (f *Filter) find(ctx context.Context, stream jetstream.Stream, c *counter) error {
	var found []string
	for _, w := range f.wanted {
		wildcard := strings.Join(w, ".")
		if strings.Count(wildcard, "*") > 1 && !slices.Equal(w, progresses("")) {
			found = append(found, wildcard)
			continue
		}
		subjects, err := existing(ctx, stream, wildcard)
		if err != nil {
			return err
		}
		found = append(found, subjects...)
	}
	var foreign [][]string
	for _, wildcard := range f.foreign() {
		foreign = append(foreign, strings.Split(wildcard, "."))
	}
	few, err := c.count(ctx, foreign...)
	if err != nil {
		return err
	}
	f.alone = few == 0
	for _, wildcard := range f.foreign() {
		subjects := []string{wildcard}
		if few <= mostForeign {
			subjects, err = existing(ctx, stream, wildcard)
			if err != nil {
				return err
			}
		}
		found = append(found, subjects...)
	}
	if n := len(found); n > 0 && n <= mostFound { // without subjects, a consumer reads all
		f.found = found
	}
	return nil
}

// existing returns the subjects of the stream that match a wildcard, sorted.
func existing(ctx context.Context, stream jetstream.Stream, wildcard string) ([]string, error) {
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(wildcard))
	if err != nil {
		return nil, fmt.Errorf("list subjects: %w", err)
	}
	return slices.Sorted(maps.Keys(info.State.Subjects)), nil
}

// covers reports whether all records have subjects that the template makes for a cluster, or are
// stream events or progress of that cluster.
func (f *Filter) covers(ctx context.Context, c *counter, cluster string) (bool, error) {
	known, err := c.countAtRest(ctx, f.forms(cluster))
	switch {
	case errors.Is(err, errUnsettled):
		return false, nil // count returns the reason
	case err != nil:
		return false, err
	}
	return known[0] == c.all, nil
}

// count compares the number of records under subjects of all forms with that under subjects of
// the same lengths.
func (f *Filter) count(ctx context.Context, c *counter) error {
	var lengths [][]string
	for _, form := range f.forms("") {
		lengths = append(lengths, stars(form))
	}
	n, err := c.countAtRest(ctx, f.forms(""), lengths)
	if err == nil && n[0] != n[1] {
		return fmt.Errorf("%w: %d", errForeign, n[1]-n[0])
	}
	return err
}

func stars(tokens []string) []string {
	out := make([]string, len(tokens))
	for i := range out {
		out[i] = "*"
	}
	return out
}

// sample reads one record of an object and checks its subject. It returns nil if there is none.
func (f *Filter) sample(
	ctx context.Context, stream jetstream.Stream, policy jetstream.DeliverPolicy,
) (*consume.Event, error) {
	c, remove, err := consumer(ctx, stream, policy, [][]string{f.object})
	if err != nil {
		return nil, err
	}
	defer remove()
	if c.CachedInfo().NumPending == 0 {
		return nil, nil
	}
	m, err := c.Next(jetstream.FetchContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("read a record: %w", err)
	}
	e, err := consume.FromMessage(m.Headers(), m.Data())
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errForeign, m.Subject(), err)
	}
	if err := f.makes(m.Subject(), e); err != nil {
		return nil, fmt.Errorf("%w: %w", errForeign, err)
	}
	return e, nil
}

// consumer creates a consumer of the wildcards. remove deletes it.
func consumer(
	ctx context.Context, stream jetstream.Stream, policy jetstream.DeliverPolicy, wildcards [][]string,
) (_ jetstream.Consumer, remove func(), err error) {
	c := filterConfig("kubecdc-"+nuid.Next(), policy, wildcards)
	made, err := stream.CreateConsumer(ctx, c)
	if err != nil {
		return nil, nil, fmt.Errorf("count records: %w", err)
	}
	// on an error, the server removes it after the idle time
	return made, func() { _ = stream.DeleteConsumer(ctx, c.Name) }, nil
}
