package kafka_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/test/build"
)

// The Events beside versions are the same in a topic as in a file, also if the objects have not
// changed in the part of the topic that is read. The owners are then read from the snapshot before.
func TestEventsBesideVersionsInATopic(t *testing.T) {
	t.Parallel()
	const partitions = 3
	c := lasting.get(t)
	raw, err := os.ReadFile(filepath.Join("..", "..", "cmd", "agent", "testdata", "rollout.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	day := time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly) // Kafka removes records by their times.
	record := strings.ReplaceAll(string(raw), "2026-11-20", day)
	file := filepath.Join(t.TempDir(), "record.jsonl")
	if err := os.WriteFile(file, []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	topic := newTopic(t, c, "rollout", partitions)
	content := []kafkago.Header{{Key: "content-type", Value: []byte("application/cloudevents+json")}}
	batches := make([][]kafkago.Message, partitions)
	for line := range strings.Lines(record) {
		e, err := consume.Parse([]byte(strings.TrimSpace(line)))
		if err != nil {
			t.Fatal(err)
		}
		key, everywhere := keyOf(e)
		m := kafkago.Message{Key: []byte(key), Value: []byte(strings.TrimSpace(line)), Headers: content, Time: e.Time}
		of := (kafkago.Murmur2Balancer{}).Balance(m, 0, 1, 2)
		for p := range batches {
			if everywhere || p == of {
				batches[p] = append(batches[p], m)
			}
		}
	}
	for p, batch := range batches {
		putMessages(t, c, topic, p, batch...)
	}
	ask := func(bus string, args ...string) string {
		args = append([]string{"history", "--with-events", "-o", "table", "--exact", "--bus", bus}, args...)
		cmd := exec.CommandContext(t.Context(), build.SharedAgent(t), args...)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("kubecdc %q: %v: %s%s", args, err, out, &said)
		}
		return string(out)
	}
	at := func(clock string) string { return day + "T" + clock + "Z" }
	for _, args := range [][]string{
		{"deploy/web", "-n", "shop", "--since", at("14:03:00"), "--until", at("14:11:30")},
		{"deploy/web", "-n", "shop", "--since", at("14:10:00"), "--until", at("14:11:30")},
		{"deploy/web", "--since", at("14:03:00"), "--until", at("14:11:30")},
		{"deploy", "-l", "app=web", "--since", at("14:03:00"), "--until", at("14:11:30")},
		{"deploy/web", "-n", "shop", "--until", at("14:11:30")},
		{"deploy/web", "-n", "shop", "--until", at("14:11:30"), "--cluster", "prod"},
	} {
		want, got := ask("file:"+file, args...), ask("kafka://"+c.Inside()[0]+"/"+topic, args...)
		if !strings.Contains(want, "Readiness probe failed: HTTP") {
			t.Fatalf("%q: the file shows no Event about the old Pod:\n%s", args, want)
		}
		if diff := gocmp.Diff(sortedLines(want), sortedLines(got)); diff != "" {
			t.Errorf("%q: -file +topic\n%s", args, diff)
		}
	}
}

// sortedLines returns the lines of a text in order: partitions say nothing of the order within a
// second.
func sortedLines(text string) []string {
	lines := strings.Split(text, "\n")
	slices.Sort(lines)
	return lines
}
