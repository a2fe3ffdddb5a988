package kafka_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/kafka"
)

// putAround writes the record of the commands' tests to a topic, as an agent would, with another
// record in the middle of each partition that has its key. An empty key stands for all partitions.
func putAround(t *testing.T, c *kafka.Cluster, topic string, partitions int, key string, body []byte) {
	t.Helper()
	putLines(t, c, topic, partitions, key, body, recordLines(t))
}

// recordLines returns the record of the commands' tests.
func recordLines(t *testing.T) [][]byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "cmd", "agent", "testdata", "record.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
}

// putLines is putAround for a part of the record.
func putLines(t *testing.T, c *kafka.Cluster, topic string, partitions int, key string, body []byte, lines [][]byte) {
	t.Helper()
	all := make([]int, partitions)
	for i := range all {
		all[i] = i
	}
	content := []kafkago.Header{{Key: "content-type", Value: []byte("application/cloudevents+json")}}
	batches := make([][]kafkago.Message, partitions)
	put := func(key string, body []byte, everywhere bool) {
		m := kafkago.Message{Key: []byte(key), Value: body, Headers: content}
		of := (kafkago.Murmur2Balancer{}).Balance(m, all...)
		for p := range batches {
			if everywhere || p == of {
				batches[p] = append(batches[p], m)
			}
		}
	}
	for i, line := range lines {
		if i == 19 && body != nil {
			put(key, body, strings.Count(key, "/") < 4)
		}
		e, err := consume.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		key, everywhere := keyOf(e)
		put(key, line, everywhere)
	}
	for p, batch := range batches {
		putMessages(t, c, topic, p, batch...)
	}
}

// keyOf returns the key of an event, and whether it goes to all partitions.
func keyOf(e *consume.Event) (key string, everywhere bool) {
	if e.Data == nil {
		return "prod/" + e.Scope + "/0", true
	}
	group, namespace := cmp.Or(e.Group(), "core"), cmp.Or(e.Namespace, "_")
	return strings.Join([]string{"prod", group, e.Resource, namespace, e.Name}, "/"), false
}

// A record that cannot be read lowers the answers about what its key names, and no others, although
// whole partitions are read.
func TestUnreadableRecordLowersTheAnswersOfItsKey(t *testing.T) {
	t.Parallel()
	const partitions = 2
	c := lasting.get(t)
	binary := build.SharedAgent(t)
	for _, tc := range []struct {
		key, body string
		lowered   string // the questions
	}{
		{"prod/core/configmaps/shop/settings", "\xff{", "settings shop all"},
		{"prod/core/configmaps/shop/settings", `{"specversion":"1.0"}`, "settings shop all"},
		{"prod/core/configmaps/bank/settings", strings.Repeat("[", 900_000), "all"},
		{"prod/apps/deployments/shop/web", "null", "web all"},
		{"prod/configmaps/1", "{", "settings shop all"},
		{"prod/progress/a1b2/1", "{", ""},
		{"else", "{", "settings shop web all"},
		{"", "{", "settings shop web all"},
	} {
		topic := newTopic(t, c, "unreadable", partitions)
		putAround(t, c, topic, partitions, tc.key, []byte(tc.body))
		for name, question := range map[string][]string{
			"settings": {"cm/settings", "-n", "shop"}, "shop": {"cm", "-n", "shop"}, "web": {
				"deploy/web", "-n", "shop",
			}, "all": {"all", "-A"},
		} {
			commands := [][]string{{"get", "--at", "2026-11-20T14:05:00Z"}, {
				"history", "--until", "2026-11-20T14:05:00Z",
			}}
			if name != "settings" {
				commands = commands[:1]
			}
			for _, command := range commands {
				args := append(append(command, question...), "-o", "json", "--exact", "--bus",
					"kafka://"+c.Inside()[0]+"/"+topic)
				var out, said bytes.Buffer
				cmd := exec.CommandContext(t.Context(), binary, args...)
				cmd.Stdout, cmd.Stderr = &out, &said
				err := cmd.Run()
				var answer struct {
					Kubecdc struct{ Certainty string }
				}
				if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
					t.Fatalf("%q: %v: %s%s", args, err, &out, &said)
				}
				want := "exact"
				if strings.Contains(" "+tc.lowered+" ", " "+name+" ") {
					want = "uncertain"
				}
				exit := new(exec.ExitError)
				if got := answer.Kubecdc.Certainty; got != want || (got == "exact") == errors.As(err, &exit) {
					t.Errorf("a record with key %q: %q: %s, want %s: %v %s", tc.key, args, got, want, err, &said)
				}
			}
		}
	}
}
