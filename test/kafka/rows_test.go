package kafka_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	kafkago "github.com/segmentio/kafka-go"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/wait"
)

// TestRelayOfRows relays the record of the commands' tests with --format debezium. The rows that
// remain must be the objects that package consume says exist. Readers of records must reject the
// rows, and the topic of the stream.
func TestRelayOfRows(t *testing.T) {
	t.Parallel()
	const record, rows, partitions = "rows.record", "rows.table", 3
	c := lasting.get(t)
	for topic, config := range map[string]map[string]string{record: nil, rows: {
		"cleanup.policy": "compact",
	}, rows + ".stream": nil} {
		if err := c.CreateTopic(t.Context(), topic, partitions, config); err != nil {
			t.Fatal(err)
		}
	}
	lines := recordLines(t)
	want, streamed := map[string]string{}, map[string]bool{}
	var tracker consume.Tracker
	for i, line := range lines {
		e, err := consume.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		key, _ := keyOf(e) // the record has no partitionkey, unlike those of agents
		lines[i] = bytes.Replace(line, []byte(`{`), fmt.Appendf(nil, `{"partitionkey":%q,`, key), 1)
		e, err = consume.Parse(lines[i])
		if err != nil {
			t.Fatal(err)
		}
		v := tracker.Apply(e)
		for _, gone := range v.Gone {
			maps.DeleteFunc(want, func(_, uid string) bool { return uid == gone.UID })
		}
		switch {
		case e.Data == nil:
			streamed[e.ID] = true
		case e.Op == consume.Deleted, e.Op == consume.Left:
			delete(want, e.PartitionKey)
		case v.News:
			want[e.PartitionKey] = e.UID
		}
	}
	putLines(t, c, record, partitions, "", nil, lines)
	binary, broker := build.SharedAgent(t), c.Inside()[0]
	startRelay(t, binary, "--bus", "kafka://"+broker+"/"+record, "--to", "kafka://"+broker+"/"+rows,
		"--name", "rows", "--start", "beginning", "--format", "debezium", "--cluster", "prod")
	wait.Eventually(t, time.Minute, func() error {
		got, err := tableOf(c.Records(t.Context(), rows))
		if err != nil {
			return err
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			return fmt.Errorf("the table differs from the rules (-rules +table):\n%s", diff)
		}
		about, err := c.Records(t.Context(), rows+".stream")
		if err != nil {
			return err
		}
		ids := map[string]bool{}
		for _, r := range slices.Concat(about...) {
			var row struct{ ID string }
			if err := json.Unmarshal(r.Value, &row); err != nil {
				return err
			}
			ids[row.ID] = true
		}
		if diff := gocmp.Diff(streamed, ids); diff != "" {
			return fmt.Errorf("stream events (-record +topic):\n%s", diff)
		}
		return nil
	})
	for _, topic := range []string{rows, rows + ".stream"} {
		bus := "kafka://" + broker + "/" + topic
		out, err := exec.CommandContext(t.Context(), binary, "get", "deployments.apps", "-A", "--at", "now", "--bus",
			bus).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "the record has no events of kubecdc") {
			t.Errorf("get from topic %s: %v\n%s", topic, err, out)
		}
	}
}

// tableOf applies Debezium's rules to the records of a topic. It returns the uids of the rows that
// remain, by key.
func tableOf(records [][]kafkago.Message, err error) (map[string]string, error) {
	rows := map[string]string{}
	for _, r := range slices.Concat(records...) {
		if len(r.Value) == 0 {
			if _, ok := rows[string(r.Key)]; ok {
				return nil, fmt.Errorf("a tombstone for %s without a delete", r.Key)
			}
			continue
		}
		var row struct {
			Op     string
			Before json.RawMessage
			After  *struct{ Metadata struct{ UID string } }
		}
		if err := json.Unmarshal(r.Value, &row); err != nil {
			return nil, err
		}
		if row.Op == "d" {
			delete(rows, string(r.Key))
			continue
		}
		rows[string(r.Key)] = row.After.Metadata.UID
	}
	return rows, err
}
