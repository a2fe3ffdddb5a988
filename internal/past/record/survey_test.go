package record_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// failing is a *testing.T or a *rapid.T.
type failing interface {
	Context() context.Context
	Fatal(args ...any)
}

func surveyOf(t failing, r *record.Record, s *record.Selection, since, until time.Time) []timeline.Part {
	parts, _, err := r.Survey(t.Context(), s, since, until, func(*consume.Event, []*timeline.Version) error {
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

// A part of a span that is exact has an exact answer about each of its moments, from a Kafka and
// from a JetStream, in the worlds of TestPartsOfPartitionsAreEnough.
func TestSurveyAgreesWithStates(t *testing.T) {
	selections := map[string]*record.Selection{
		"all": {}, "pods": {Resources: []record.Resource{{Plural: "pods"}}, ClusterUID: "c"}, "nodes": {
			Resources: []record.Resource{{Plural: "nodes"}},
		},
		"pods of shop": {Resources: []record.Resource{{Plural: "pods"}}, Namespace: "shop"},
	}
	exact := 0
	rapid.Check(t, func(t *rapid.T) {
		begin := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
		partitions := rapid.SampledFrom([]int{1, 3}).Draw(t, "partitions")
		k, end := drawTopic(t, begin, partitions)
		r := &record.Record{Source: k}
		if partitions == 1 {
			j := streamOf(k)
			if j.hasMixedSnapshots() {
				return
			}
			r = &record.Record{Source: j}
		}
		s := selections[rapid.SampledFrom(slices.Sorted(maps.Keys(selections))).Draw(t, "question")]
		seconds := int(end.Sub(begin).Seconds())
		second := func(least int, of string) int { return rapid.IntRange(least, seconds+600).Draw(t, of) }
		first := min(second(0, "since"), seconds)
		since := begin.Add(time.Duration(first) * time.Second)
		until := begin.Add(time.Duration(second(first+1, "until")) * time.Second)
		parts := surveyOf(t, r, s, since, until)
		for range 8 {
			p := rapid.SampledFrom(parts).Draw(t, "part")
			if certainty.Worst(p.Scopes) != certainty.Exact {
				continue
			}
			exact++
			at := p.Since.Add(time.Duration(rapid.Int64Range(0, int64(p.Until.Sub(p.Since))).Draw(t, "moment")))
			states, _, err := r.States(t.Context(), s, timeline.At(at))
			if err != nil {
				t.Fatal(err)
			}
			if worst := certainty.Worst(states[0].Scopes()); worst != certainty.Exact {
				t.Fatalf("from %s to %s: %+v is exact; at %s: %+v\n%s", since, until, p, at, states[0].Scopes(), k)
			}
		}
	})
	if exact == 0 && !testing.Short() { // a short run has few worlds
		t.Error("no part was exact")
	}
}

// An audit of an hour reads the same of a long record as of a short one.
func TestSurveyCostsItsSpan(t *testing.T) {
	t.Parallel()
	pods := &record.Selection{Resources: []record.Resource{{Plural: "pods"}}, ClusterUID: "c"}
	stream, kafka := map[int]int{}, map[int]int{}
	for _, days := range []int{3, 12} {
		k, begin := calmTopic(days)
		since := begin.Add(time.Duration(days-2)*24*time.Hour + 12*time.Hour)
		k.read = 0
		parts := surveyOf(t, &record.Record{Source: k}, pods, since, since.Add(time.Hour))
		kafka[days] = k.read
		if len(parts) != 1 || certainty.Worst(parts[0].Scopes) != certainty.Exact {
			t.Errorf("a Kafka of %d days: %+v", days, parts)
		}
		one := &kafkaTopic{partitions: []*topicPartition{{}}}
		for _, e := range k.all() {
			if e.Position.Log.Partition == 0 || e.Data != nil {
				one.put(0, e.Time, *e)
			}
		}
		j := streamOf(one)
		parts = surveyOf(t, &record.Record{Source: j}, pods, since, since.Add(time.Hour))
		if len(parts) != 1 || certainty.Worst(parts[0].Scopes) != certainty.Exact {
			t.Errorf("a JetStream of %d days: %+v", days, parts)
		}
		for kind, n := range j.read {
			stream[days] += n
			t.Logf("%d days: %d of %s", days, n, kind)
		}
	}
	if kafka[3] != kafka[12] || stream[3] != stream[12] || stream[3] == 0 {
		t.Errorf("of 3 days, %d and %d records are read; of 12 days, %d and %d", kafka[3], stream[3], kafka[12],
			stream[12])
	}
}
