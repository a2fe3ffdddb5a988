package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/internal/past/certainty"
	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromkafka"
	"github.com/kubecdc/kubecdc/test/kafka"
)

// days is the record of an agent with one scope: a change and a progress a minute, a snapshot every
// six hours.
type days struct {
	begin    time.Time
	messages [][]kafkago.Message // by partition
	rv       int
	objects  map[string]int // resourceVersion
}

func (d *days) put(partition int, key, value string, at time.Time) {
	d.messages[partition] = append(d.messages[partition], kafkago.Message{
		Key: []byte(key), Value: []byte(value), Time: at,
		Headers: []kafkago.Header{{Key: "content-type", Value: []byte("application/cloudevents+json; charset=UTF-8")}},
	})
}

func (d *days) object(op consume.Op, verb, name string, rv int, at time.Time, more string) {
	key := "prod/core/configmaps/shop/" + name
	all := make([]int, len(d.messages))
	for i := range all {
		all[i] = i
	}
	p := kafkago.Murmur2Balancer{}.Balance(kafkago.Message{Key: []byte(key)}, all...)
	d.put(p, key,
		fmt.Sprintf(
			`{"specversion":"1.0","source":"/kubernetes/prod","type":"dev.kubecdc.object.%s","id":"configmaps/%s/%d%s","cluster":"prod","clusteruid":"c",`+
				`"apiversion":"v1","kind":"ConfigMap","resource":"configmaps","namespace":"shop","name":%[2]q,"uid":%[2]q,"op":%[5]q,"time":%q,"resourceversion":"%[3]d",`+
				`"sequence":"%020[3]d","data":{"op":%[5]q,"resourceVersion":"%[3]d","after":{"metadata":{"name":%[2]q}}%[7]s}}`,
			verb, name, rv, "/"+string(op), op, at.Format(time.RFC3339Nano), more), at)
}

func (d *days) stream(typ, id, data string, at time.Time) {
	for p := range d.messages {
		d.put(p, fmt.Sprint("prod/configmaps/", p),
			fmt.Sprintf(
				`{"specversion":"1.0","source":"/kubernetes/prod","type":"dev.kubecdc.%s","id":"configmaps/%s",`+
					`"cluster":"prod","clusteruid":"c","apiversion":"v1","kind":"ConfigMap","resource":"configmaps","scope":"configmaps","time":%q,"resourceversion":"%d","sequence":"%020[4]d",`+
					`"data":{"resourceVersion":"%[4]d","writer":"w","run":"0-%d"%s}}`, typ, id,
				at.Format(time.RFC3339Nano),
				d.rv, d.begin.UnixMilli(), data), at)
	}
}

func (d *days) progress(number int, began, at time.Time) {
	since := at.Add(-10 * time.Minute)
	if since.Before(d.begin) {
		since = d.begin
	}
	for p := range d.messages {
		d.put(p, fmt.Sprint("prod/progress/w/", p),
			fmt.Sprintf(
				`{"specversion":"1.0","source":"/kubernetes/prod","type":"dev.kubecdc.progress","id":"progress/w/%d",`+
					`"cluster":"prod","clusteruid":"c","time":%q,"data":{"writer":"w","run":"0-%d","number":%[1]d,"since":%[4]q,"to":%q,"snapshotBegan":%q,`+
					`"scopes":[{"resource":"configmaps","resourceVersion":"%d"}]}}`, number,
				at.Format(time.RFC3339Nano),
				d.begin.UnixMilli(),
				since.Format(time.RFC3339Nano), at.Add(-time.Second).Format(time.RFC3339Nano),
				began.Format(time.RFC3339Nano), d.rv), at)
	}
}

// makeDays makes the record of n days.
func makeDays(n, partitions int) *days {
	const objects = 30
	d := &days{
		begin:    time.Now().Add(-time.Duration(n) * 24 * time.Hour).UTC().Truncate(time.Minute),
		messages: make([][]kafkago.Message, partitions),
		rv:       1000,
		objects:  map[string]int{},
	}
	d.stream("scope.started", "started", `,"initial":true`, d.begin)
	var began time.Time
	for m := range n * 24 * 60 {
		at := d.begin.Add(time.Duration(m) * time.Minute)
		if m%360 == 0 {
			began = at.Add(time.Second)
			id := fmt.Sprint("s", m)
			d.stream("snapshot.started", id+"/started", fmt.Sprintf(`,"snapshot":%q`, id), began)
			for i := range objects {
				if name := fmt.Sprint("o", i); d.objects[name] > 0 {
					d.object(consume.Read, "read", name, d.objects[name], began.Add(time.Second),
						fmt.Sprintf(`,"snapshot":%q`, id))
				}
			}
			d.stream("snapshot.completed", id+"/completed", fmt.Sprintf(`,"snapshot":%q`, id), began.Add(2*time.Second))
		}
		d.rv++
		name := fmt.Sprint("o", m*7%objects)
		verb, op := "updated", consume.Updated
		if d.objects[name] == 0 {
			verb, op = "created", consume.Created
		}
		d.objects[name] = d.rv
		d.object(op, verb, name, d.rv, at.Add(10*time.Second), "")
		d.progress(m+1, began, at.Add(30*time.Second))
	}
	return d
}

// write writes the record to a topic.
func (d *days) write(t *testing.T, c *kafka.Cluster, topic string) {
	t.Helper()
	for p, all := range d.messages {
		for part := range slices.Chunk(all, 2000) {
			putMessages(t, c, topic, p, part...)
		}
	}
}

// wholeState returns the state at a moment from all records of a topic.
func wholeState(t *testing.T, source *fromkafka.Kafka, at timeline.Moment) *timeline.State {
	t.Helper()
	s := timeline.NewState(at, timeline.Options{})
	r := readKafka(t, source, consume.Query{Start: consume.Beginning(), StopAtEnd: true})
	for {
		e, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Add(e)
	}
}

func versionsOf(s *timeline.State) (out []string) {
	for _, v := range s.Objects() {
		out = append(out, v.Name+"@"+v.ResourceVersion)
	}
	return out
}

// The state at a moment costs the same number of records, whatever the length of the record: those
// since the last snapshot, and a few in one more partition. It is the state from all records.
func TestStateCostsTheSameOfALongRecord(t *testing.T) {
	t.Parallel()
	const partitions = 3
	c := lasting.get(t)
	maps := &record.Selection{Resources: []record.Resource{{Plural: "configmaps"}}, ClusterUID: "c"}
	cost := map[int]int64{}
	for _, n := range []int{2, 12} {
		topic := fmt.Sprintf("days-%d-%d", n, time.Now().UnixNano())
		if err := c.CreateTopic(t.Context(), topic, partitions, map[string]string{"retention.ms": "-1"}); err != nil {
			t.Fatal(err)
		}
		d := makeDays(n, partitions)
		d.write(t, c, topic)
		source := &fromkafka.Kafka{Brokers: c.Inside(), Topics: []string{topic}}
		// three hours after a snapshot
		at := timeline.At(d.begin.Add(time.Duration(n-1)*24*time.Hour + 15*time.Hour + 20*time.Second))
		r := &record.Record{Source: source}
		states, _, err := r.States(t.Context(), maps, at)
		if err != nil {
			t.Fatal(err)
		}
		whole := wholeState(t, source, at)
		if diff := cmp.Diff(versionsOf(whole), versionsOf(states[0])); diff != "" || len(versionsOf(whole)) != 30 {
			t.Errorf("%d days: -from all records +got\n%s", n, diff)
		}
		if got, want := certainty.Worst(states[0].Scopes()), certainty.Worst(whole.Scopes()); got != certainty.Exact ||
			want != got {
			t.Errorf("%d days: the state is %v, and %v from all records", n, got, want)
		}
		cost[n] = r.Events()
		now := &record.Record{Source: source}
		if _, _, err := now.States(t.Context(), maps, timeline.Now(time.Now())); err != nil {
			t.Fatal(err)
		}
		// Six hours of changes, and of progress in four partitions: one is read twice.
		if most := int64(6 * 60 * (1 + 1 + 4)); cost[n] > most || now.Events() > most {
			t.Errorf("%d days: %d records are read of a moment, and %d of now, want at most %d", n, cost[n],
				now.Events(), most)
		}
	}
	t.Logf("records read of a moment, by days: %v", cost)
	if least, most := slices.Min([]int64{cost[2], cost[12]}), slices.Max([]int64{cost[2], cost[12]}); most-least >
		least/50 {
		t.Errorf("%v records are read, by days", cost)
	}
}

// A topic whose records have the times at which the broker stored them: all of them are of today,
// and no time finds the last snapshot. The answer is right all the same.
func TestStateOfATopicWithAppendTimes(t *testing.T) {
	t.Parallel()
	c := lasting.get(t)
	topic := fmt.Sprint("append-", time.Now().UnixNano())
	config := map[string]string{"retention.ms": "-1", "message.timestamp.type": "LogAppendTime"}
	if err := c.CreateTopic(t.Context(), topic, 2, config); err != nil {
		t.Fatal(err)
	}
	d := makeDays(2, 2)
	d.write(t, c, topic)
	source := &fromkafka.Kafka{Brokers: c.Inside(), Topics: []string{topic}}
	for _, hours := range []int{15, 40} {
		at := timeline.At(d.begin.Add(time.Duration(hours)*time.Hour + 20*time.Second))
		r := &record.Record{Source: source}
		states, _, err := r.States(t.Context(), &record.Selection{Resources: []record.Resource{{
			Plural: "configmaps",
		}}, ClusterUID: "c"}, at)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(versionsOf(wholeState(t, source, at)), versionsOf(states[0])); diff != "" {
			t.Errorf("-from all records +got\n%s", diff)
		}
		if got := certainty.Worst(states[0].Scopes()); got != certainty.Exact {
			t.Errorf("the state is %v", got)
		}
	}
}

// The history of several objects does not go back in time from one partition to another.
func TestHistoryIsInTheOrderOfTime(t *testing.T) {
	t.Parallel()
	const partitions = 8
	c := lasting.get(t)
	topic := newTopic(t, c, "order", partitions)
	d := makeDays(1, partitions)
	d.write(t, c, topic)
	r := &record.Record{Source: &fromkafka.Kafka{Brokers: c.Inside(), Topics: []string{topic}}}
	r.Since = d.begin.Add(12 * time.Hour)
	since := timeline.At(r.Since)
	var last time.Time
	n := 0
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	scopes, _, err := r.Versions(ctx, &record.Selection{}, &since, timeline.Moment{},
		func(v *timeline.Version, e *consume.Event) error {
			if v == nil || since.Includes(e) || e.Op == consume.Read {
				return nil
			}
			n++
			if e.Time.Before(last) {
				t.Errorf("%s at %s follows one at %s", v.Name, e.Time, last)
			}
			last = e.Time
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if n != 12*60 || certainty.Worst(scopes) != certainty.Exact {
		t.Errorf("%d versions, %v, want %d", n, certainty.Worst(scopes), 12*60)
	}
	if most := int64(13 * 60 * (1 + partitions)); r.Events() > most {
		t.Errorf("%d records are read, want at most %d", r.Events(), most)
	}
}
