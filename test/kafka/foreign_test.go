package kafka_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	kafkabus "github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
)

// seen is a record as printed by a foreign program.
type seen struct {
	Key, Value string
	Headers    []string // name, the program's separator, value
}

// events are the published events: their names spread over the partitions, and their values are
// unsuitable for terminals.
func events(t testing.TB, mode encode.Mode) []*encode.Event {
	t.Helper()
	pods := &object.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	var all []*encode.Event
	for i := range 20 {
		name := fmt.Sprintf("%s-%d", mode, i)
		ref := object.NewRef(pods, "shop", name, "uid-of-"+name)
		doc := object.New(ref, 7, 0, nil, fmt.Appendf(nil,
			`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"resourceVersion":"7"},"spec":{"text":"Zürich 😀 \u2028 \\ \" <&>","long":%q}}`,
			name, strings.Repeat("x", i*100)))
		d := &object.Delta{
			Op:              object.Created,
			Ref:             ref,
			After:           doc,
			ResourceVersion: 7,
			Observed:        time.Now().UnixNano(),
		}
		ev := new(encode.Event)
		if err := encode.New(encode.Options{Cluster: "c", Mode: mode}).Encode(ev, d); err != nil {
			t.Fatal(err)
		}
		all = append(all, ev)
	}
	return all
}

// expected returns the result of the binding for events: the CloudEvents Kafka binding 1.0,
// sections 3.2 and 3.3.
func expected(events []*encode.Event, separator string) []seen {
	var all []seen
	for _, ev := range events {
		s := seen{Key: string(ev.PartitionKey), Value: string(ev.Body), Headers: []string{
			"content-type" + separator + ev.ContentType,
		}}
		for _, a := range ev.Attributes {
			if a.Name != "datacontenttype" {
				s.Headers = append(s.Headers, "ce_"+a.Name+separator+string(a.Value))
			}
		}
		all = append(all, s)
	}
	return sorted(all)
}

// sorted removes the order of headers, and of keys, which are in several partitions.
func sorted(all []seen) []seen {
	for _, s := range all {
		slices.Sort(s.Headers)
	}
	slices.SortFunc(all, func(a, b seen) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// parse reads lines of headers, key and value with tabs between them.
func parse(t testing.TB, out []byte) []seen {
	t.Helper()
	var all []seen
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 3 {
			t.Fatalf("line of %d fields: %q", len(fields), line)
		}
		all = append(all, seen{Headers: strings.Split(fields[0], ","), Key: fields[1], Value: fields[2]})
	}
	return sorted(all)
}

// TestForeignConsumers lets Java's console consumer and kcat read the publisher's records, in every
// compression and in both content modes.
func TestForeignConsumers(t *testing.T) {
	t.Parallel()
	const topic = "foreign"
	c, brokers := lasting.get(t), lasting.get(t).Inside()
	modes := []encode.Mode{encode.Structured, encode.Binary}
	var all []*encode.Event
	for _, mode := range modes {
		all = append(all, events(t, mode)...)
	}
	compressions := []string{"zstd", "lz4", "snappy", "gzip", "none"}
	for _, compression := range compressions {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		name := topic + "-" + compression
		if err := c.CreateTopic(ctx, name, 3, nil); err != nil {
			t.Fatal(err)
		}
		publishAll(ctx, t,
			kafkabus.Config{Brokers: brokers, Topic: name, Compression: kafkaconfig.Compression(compression)}, all)
		cancel()
	}
	t.Run("java", func(t *testing.T) {
		out, err := c.Java(t.Context(), nil, "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server",
			brokers[0],
			"--include", topic+"-.*", "--from-beginning", "--max-messages", fmt.Sprint(len(all)*len(compressions)),
			"--timeout-ms", "60000",
			"--formatter-property", "print.key=true", "--formatter-property", "print.headers=true")
		if err != nil {
			t.Fatal(err)
		}
		var want []seen
		for range compressions {
			want = append(want, expected(all, ":")...)
		}
		if diff := cmp.Diff(sorted(want), parse(t, out)); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
	})
	for _, compression := range compressions {
		t.Run("kcat/"+compression, func(t *testing.T) {
			path, err := exec.LookPath("kcat")
			if err != nil {
				t.Skip("no kcat")
			}
			out, err := exec.CommandContext(t.Context(), path, "-b", brokers[0], "-C", "-t", topic+"-"+compression,
				"-e", "-q", "-f", "%h\t%k\t%s\n").Output()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(expected(all, "="), parse(t, out)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
		})
	}
}

// publishAll runs a publisher until the broker has all events.
func publishAll(ctx context.Context, t *testing.T, cfg kafkabus.Config, events []*encode.Event) {
	t.Helper()
	a := runAgent(t, cfg)
	for _, ev := range events {
		if err := a.await(ctx, ev); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPartitioner checks that a record of Java's producer is in the same partition as our record
// with that key.
func TestPartitioner(t *testing.T) {
	t.Parallel()
	const topic = "partitioned"
	c := lasting.get(t)
	if err := c.CreateTopic(t.Context(), topic, 7, nil); err != nil { // No power of two, so that the sign matters.
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a := runAgent(t, kafkabus.Config{Brokers: c.Inside(), Topic: topic})
	for i := range 60 {
		// Keys of all lengths modulo four, because murmur2 reads four bytes at a time; not all are
		// ASCII.
		if err := a.publish(ctx, strings.Repeat("é", i%7)+strings.Repeat("n", i%5)+fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	ours := map[string]int{}
	var keys bytes.Buffer
	records, err := c.Records(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	for partition, of := range records {
		if len(of) == 0 {
			t.Errorf("partition %d has no record: the test shows too little", partition)
		}
		for _, r := range of {
			ours[string(r.Key)] = partition
			fmt.Fprintf(&keys, "%s\n", r.Key)
		}
	}
	if len(ours) != 60 {
		t.Fatalf("%d keys, want 60", len(ours))
	}
	out, err := c.Java(ctx, &keys, "testdata/Produce.java", c.Inside()[0], topic)
	if err != nil {
		t.Fatal(err)
	}
	javas := map[string]int{}
	for line := range strings.Lines(string(out)) {
		var partition int
		number, key, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if _, err := fmt.Sscan(number, &partition); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		javas[key] = partition
	}
	if diff := cmp.Diff(javas, ours); diff != "" {
		t.Errorf("partitions by key (-java +ours):\n%s", diff)
	}
}
