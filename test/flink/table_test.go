package flink_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

const (
	names        = 30 // of ConfigMaps in each namespace
	namesTopic   = "flink.names"
	counterTopic = "flink.per_namespace"
	// tableLimit is how long Flink may need until its tables are those of the cluster, on a loaded
	// machine.
	tableLimit = 5 * time.Minute
)

var namespaces = []string{"flink-a", "flink-b"}

// TestFlinkTable changes ConfigMaps for the time in FLINK, while the agent and the relay are
// killed, objects are changed and deleted meanwhile, and etcd's history or the checkpoint is lost.
// Flink reads the rows all the time, with the SQL of the guide. Every now and then its table must
// be what the API server lists, and its aggregates must agree.
func TestFlinkTable(t *testing.T) {
	lasts, err := time.ParseDuration(cmp.Or(os.Getenv("FLINK"), "0s"))
	if err != nil {
		t.Fatal(err)
	}
	if lasts == 0 {
		t.Skip("FLINK is not set: it says for how long objects change, such as 3m")
	}
	l := begin(t, classPath(t))
	faults := []func(*life, *testing.T){
		(*life).killAgent, (*life).loseHistory, (*life).killRelay, (*life).loseCheckpoint, (*life).killBoth,
		(*life).undisturbed,
	}
	deadline := time.Now().Add(lasts)
	for round := 0; time.Now().Before(deadline) || round < len(faults); round++ {
		l.change(t, 40)
		faults[round%len(faults)](l, t)
		l.change(t, 40)
		l.compare(t)
	}
	log, err := os.ReadFile(l.relayLog.Name())
	if err != nil {
		t.Fatal(err)
	}
	sweeps := strings.Count(string(log), "deleting rows of objects that no longer exist")
	t.Logf("%d snapshots have deleted rows", sweeps)
	if sweeps == 0 {
		t.Error("no snapshot has deleted a row: objects were to be deleted while history was lost")
	}
}

// life is a cluster whose ConfigMaps change, with all that brings them to Flink.
type life struct {
	plane *world.Plane
	agent *world.Agent
	kafka *world.Kafka
	flink *world.Process

	relay      *world.Process
	relayArgs  []string
	relayLog   *os.File
	checkpoint string
	flinkLog   string
	rng        *rand.Rand
	number     int
}

func begin(t *testing.T, classes string) *life {
	t.Helper()
	dir := t.TempDir()
	l := &life{
		rng:        world.Luck(),
		checkpoint: filepath.Join(dir, "checkpoint.json"),
		flinkLog:   filepath.Join(dir, "flink.log"),
	}
	l.kafka = world.StartKafka(t, kafka.Options{})
	l.plane = world.StartPlane(t, controlplane.Options{NoControllerManager: true})
	for _, namespace := range namespaces {
		l.plane.NewNamespace(t, namespace)
	}
	bus := world.StartBus(t)
	l.change(t, 40)
	watch := fmt.Sprintf("  - resources: [configmaps]\n    namespaces: [%s]", strings.Join(namespaces, ", "))
	l.agent = world.StartAgent(t, l.plane, world.AgentConfig{
		Bus:        bus,
		Watch:      watch,
		Checkpoint: fmt.Sprintf("{file: {path: %q}}", l.checkpoint),
	})
	l.agent.Ready(t)

	config := filepath.Join(dir, "relay.yaml")
	text := fmt.Sprintf(`apiVersion: kubecdc.dev/v1
cluster: %s
watch:
%s
bus:
  %s
relays:
  - name: tables
    format: debezium
    start: beginning
    to: {kafka: {brokers: [%q], topic: "tables.{resource}", create: {partitions: 3, replicationFactor: 1}}}
server: {address: "127.0.0.1:0"}
`, world.ClusterName, watch, bus.Config(), l.kafka.Brokers[0])
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	l.relayLog, err = os.Create(filepath.Join(dir, "relay.log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.relayLog.Close() })
	l.relayArgs = []string{build.SharedAgent(t), "relay", "--config", config}
	l.startRelay(t)
	t.Cleanup(func() { l.relay.Kill() })

	for _, topic := range []string{namesTopic, counterTopic} {
		if err := l.kafka.CreateTopic(t.Context(), topic, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	wait.Eventually(t, time.Minute, func() error {
		_, err := l.kafka.Partitions(t.Context(), "tables.configmaps")
		return err
	})
	l.startFlink(t, dir, classes)
	t.Cleanup(func() { l.logs(t) })
	return l
}

func (l *life) startRelay(t *testing.T) {
	t.Helper()
	cmd := exec.Command(l.relayArgs[0], l.relayArgs[1:]...)
	cmd.Stdout, cmd.Stderr = l.relayLog, l.relayLog
	var err error
	l.relay, err = world.StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
}

// startFlink runs the SQL of the guide.
func (l *life) startFlink(t *testing.T, dir, classes string) {
	t.Helper()
	guide, err := os.ReadFile("../../docs/guides/flink.md")
	if err != nil {
		t.Fatal(err)
	}
	_, sql, _ := strings.Cut(string(guide), "```sql\n")
	sql, _, _ = strings.Cut(sql, "```")
	file := filepath.Join(dir, "table.sql")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(sql, "kafka-0:9092", l.kafka.Brokers[0])),
		0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(l.flinkLog)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // The process has its own.
	argv := []string{"-Xmx1g", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.io.tmpdir=" + dir, "-cp", classes}
	for _, opened := range []string{ // as in Flink's own config.yaml
		"java.io", "java.lang", "java.lang.reflect", "java.net", "java.nio", "java.text", "java.time", "java.util",
		"java.util.concurrent",
		"java.util.concurrent.atomic",
	} {
		argv = append(argv, "--add-opens=java.base/"+opened+"=ALL-UNNAMED")
	}
	cmd := exec.Command("java", append(argv, "testdata/Run.java", file)...)
	cmd.Stdout, cmd.Stderr = log, log
	l.flink, err = world.StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.flink.Kill() })
}

// logs shows the ends of the logs if the test has failed.
func (l *life) logs(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, name := range []string{l.flinkLog, l.relayLog.Name()} {
		text, err := os.ReadFile(name)
		t.Logf("end of %s (%v):\n%s", name, err, text[max(0, len(text)-8000):])
	}
}

// change creates, updates and deletes ConfigMaps.
func (l *life) change(t *testing.T, steps int) {
	t.Helper()
	for range steps {
		l.number++
		namespace, name := namespaces[l.rng.IntN(len(namespaces))], fmt.Sprintf("c%d", l.rng.IntN(names))
		all := world.Collection("configmaps", namespace)
		data := map[string]any{"n": fmt.Sprint(l.number % 3)}
		var err error
		switch l.rng.IntN(4) {
		case 0:
			err = l.plane.API.Remove(t.Context(), all+"/"+name)
		case 1:
			// Another object of the same name.
			if err = l.plane.API.Remove(t.Context(), all+"/"+name); world.Tolerable(err) {
				err = l.create(t.Context(), all, name, data)
			}
		default:
			if _, err = l.plane.API.MergePatch(t.Context(), all+"/"+name, map[string]any{"data": data}); err != nil {
				err = l.create(t.Context(), all, name, data)
			}
		}
		if !world.Tolerable(err) {
			t.Fatal(err)
		}
	}
}

func (l *life) create(ctx context.Context, collection, name string, data map[string]any) error {
	_, err := l.plane.API.Create(ctx, collection, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": data,
	})
	return err
}

// killAgent kills the agent, and starts it after objects have changed.
func (l *life) killAgent(t *testing.T) {
	l.agent.Crash()
	l.change(t, 30)
	l.agent.Again(t)
	l.agent.Ready(t)
}

// loseHistory is killAgent, with a server that no longer has the history. A gap and a snapshot
// follow.
func (l *life) loseHistory(t *testing.T) {
	l.agent.Crash()
	l.change(t, 30)
	if err := l.plane.Compact(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := l.plane.RestartAPIServer(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	l.agent.Again(t)
	l.agent.Ready(t)
}

// loseCheckpoint is killAgent, with an agent that does not know its position.
func (l *life) loseCheckpoint(t *testing.T) {
	l.agent.Crash()
	l.change(t, 30)
	if err := os.Remove(l.checkpoint); err != nil {
		t.Fatal(err)
	}
	l.agent.Again(t)
	l.agent.Ready(t)
}

// killRelay kills the relay, which then sends again what it has sent since it last saved its
// cursor.
func (l *life) killRelay(t *testing.T) {
	l.relay.Kill()
	l.change(t, 30)
	l.startRelay(t)
}

// killBoth loses history, and kills the relay twice while it sends the snapshot.
func (l *life) killBoth(t *testing.T) {
	l.relay.Kill()
	l.loseHistory(t)
	for range 2 {
		l.startRelay(t)
		timer := time.NewTimer(time.Duration(200+l.rng.IntN(800)) * time.Millisecond)
		select {
		case <-timer.C:
		case <-t.Context().Done():
		}
		l.relay.Kill()
	}
	l.startRelay(t)
}

func (*life) undisturbed(*testing.T) {}

// compare waits until Flink's tables are what the API server lists.
func (l *life) compare(t *testing.T) {
	t.Helper()
	begin := time.Now()
	want, counts := l.listed(t)
	wait.Eventually(t, tableLimit, func() error {
		if l.flink.Ended() {
			return fmt.Errorf("Flink has ended: %w", l.flink.Err)
		}
		got, err := l.table(t.Context(), namesTopic, func(row map[string]any) (key, value string) {
			return fmt.Sprint(row["namespace"], "/", row["name"]), fmt.Sprint(row["uid"], " ", row["resource_version"])
		})
		if err != nil {
			return err
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			return fmt.Errorf("Flink's table differs from the list (-list +table):\n%s", diff)
		}
		got, err = l.table(t.Context(), counterTopic, func(row map[string]any) (key, value string) {
			return fmt.Sprint(row["namespace"]), fmt.Sprint(row["objects"], " ", row["updated"])
		})
		if err != nil {
			return err
		}
		if diff := gocmp.Diff(counts, got); diff != "" {
			return fmt.Errorf("Flink's aggregates differ from the list (-list +table):\n%s", diff)
		}
		return nil
	})
	t.Logf("%d changes: Flink has the %d ConfigMaps after %s", l.number, len(want),
		time.Since(begin).Round(100*time.Millisecond))
}

// listed returns the ConfigMaps that exist, with uid and version, and for each namespace their
// number, and that of those whose n is not 0.
func (l *life) listed(t *testing.T) (objects, counts map[string]string) {
	t.Helper()
	objects, counts = map[string]string{}, map[string]string{}
	for _, namespace := range namespaces {
		raw, err := l.plane.API.Get(t.Context(), world.Collection("configmaps", namespace))
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Items []struct {
				Metadata struct{ Name, UID, ResourceVersion string }
				Data     map[string]string
			}
		}
		if err := json.Unmarshal(raw, &list); err != nil {
			t.Fatal(err)
		}
		updated := 0
		for _, o := range list.Items {
			objects[namespace+"/"+o.Metadata.Name] = o.Metadata.UID + " " + o.Metadata.ResourceVersion
			if o.Data["n"] != "0" {
				updated++
			}
		}
		if len(list.Items) > 0 {
			counts[namespace] = fmt.Sprint(len(list.Items), " ", updated)
		}
	}
	return objects, counts
}

// table returns the last values of a topic's keys, as an upsert-kafka table has them.
func (l *life) table(
	ctx context.Context, topic string, of func(row map[string]any) (key, value string),
) (map[string]string, error) {
	records, err := l.kafka.Records(ctx, topic)
	if err != nil {
		return nil, err
	}
	last := map[string][]byte{}
	for _, partition := range records {
		for _, r := range partition {
			last[string(r.Key)] = r.Value
		}
	}
	rows := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(last)) {
		if len(last[key]) == 0 {
			continue // deleted
		}
		var row map[string]any
		if err := json.Unmarshal(last[key], &row); err != nil {
			return nil, err
		}
		name, value := of(row)
		rows[name] = value
	}
	return rows, nil
}
