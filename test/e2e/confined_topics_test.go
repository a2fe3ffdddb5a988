package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/world"
)

// everyTopicGets is how often the agent of TestConfinedReaderOfTopics sends progress to all topics.
// It is an hour otherwise (docs/guides/kafka.md).
const everyTopicGets = 7 * time.Minute

// finalWithin is how long an answer about a moment may change if progress comes each minute, with
// what a question takes on a slow machine.
const finalWithin = 140 * time.Second

// brieflyQuiet builds an agent that sends progress to all topics each everyTopicGets.
func brieflyQuiet(t *testing.T) string {
	t.Helper()
	if os.Getenv("KUBECDC_E2E_AGENT") != "" {
		t.Skip("a given agent sends progress to all topics once an hour")
	}
	root, err := build.Repository()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(root, "internal", "bus", "kafka", "broadcast.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	const is = "reportAge = time.Hour\n"
	if strings.Count(string(text), is) != 1 {
		t.Fatalf("%s does not have %q once", source, is)
	}
	dir := t.TempDir()
	changed := filepath.Join(dir, "broadcast.go")
	brief := strings.Replace(string(text), is, fmt.Sprintf("reportAge = %d\n", everyTopicGets), 1)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{changed: []byte(brief), filepath.Join(dir, "overlay.json"): overlay} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path, err := build.AgentIn(t.Context(), dir,
		"GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+filepath.Join(dir, "overlay.json"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// confinedQuestion is a question about a moment, asked until the answer is exact.
type confinedQuestion struct {
	what, namespace string
	at              time.Time
	notBefore       time.Time // there is no progress about the moment earlier
	by              time.Time // when the answer has to be exact
}

// TestConfinedReaderOfTopics asks with a user who may read the topics of some namespaces, and finds
// how long it takes until answers are exact. Those about a namespace that changes are so after two
// minutes, as with one topic for all, although the topic of another one is quiet. Those about that
// one are so two minutes after its next event, or after the next progress that all topics get.
func TestConfinedReaderOfTopics(t *testing.T) {
	slow(t)
	onlyLong(t, "ten minutes")
	notRacing(t)
	t.Parallel()
	const busy, quiet, hidden = "confined-busy", "confined-quiet", "confined-hidden"
	k := world.StartKafka(t, kafka.Options{Secure: true, Properties: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS",
	}})
	k.Template = "cdc.{cluster}.{namespace}"
	p := world.BarePlane(t)
	for _, namespace := range []string{busy, quiet, hidden} {
		p.NewNamespace(t, namespace)
		p.MakeConfigMaps(t, namespace, "first", 3)
	}
	binary, launched := brieflyQuiet(t), time.Now()
	a := world.StartAgent(t, p, world.AgentConfig{
		Bus: k, Binary: binary,
		Watch: `  - {resources: [configmaps], namespaces: ["confined-*"]}`,
	})
	a.Ready(t)
	captured := time.Now()
	awaitTopics(t, k, busy, quiet, hidden)
	config := confinedTo(t, k, "cdc."+world.ClusterName+".", busy, quiet)

	writes := 0
	write := func(namespace string) {
		p.MakeConfigMaps(t, namespace, fmt.Sprint("more-", writes), 1)
		writes++
	}
	pass := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); {
			write(busy)
			world.Pass(t.Context(), 3*time.Second)
		}
	}
	awaitSnapshot(t, "configmaps", quiet, config) // its events have created the topic
	pass(finalWithin)                             // The progress that includes the snapshots is in all topics.
	first := time.Now()
	pass(40 * time.Second)
	inQuiet := ask(t, "configmaps", "-n", quiet, "--at", stamp(first), "--config", config)
	if inQuiet.Kubecdc.Certainty != "unknown" {
		t.Errorf("quiet, without progress: %s", inQuiet.Kubecdc.Certainty)
	}
	changed := time.Now()
	write(quiet)
	pass(80 * time.Second) // The progress that includes the change is in the topic.
	rest := time.Now()
	questions := []*confinedQuestion{
		{what: "busy", namespace: busy, at: first, by: first.Add(finalWithin)},
		{what: "quiet, before its next event", namespace: quiet, at: first, by: changed.Add(finalWithin)},
		{what: "busy, later", namespace: busy, at: rest, by: rest.Add(finalWithin)},
		{
			what: "quiet, after its last event", namespace: quiet, at: rest,
			notBefore: launched.Add(everyTopicGets), by: captured.Add(everyTopicGets + finalWithin + time.Minute),
		},
	}
	for len(questions) > 0 {
		var open []*confinedQuestion
		for _, q := range questions {
			if !q.isExact(t, config) {
				open = append(open, q)
			}
		}
		questions = open
		pass(3 * time.Second)
	}
	inHidden := ask(t, "configmaps", "-n", hidden, "--at", stamp(first), "--config", config)
	if inHidden.Kubecdc.Certainty == exactly {
		t.Error("the answer about a namespace whose topic is hidden is exact")
	}
}

// isExact asks, and reports whether the question needs to be asked no more.
func (q *confinedQuestion) isExact(t *testing.T, config string) bool {
	t.Helper()
	got := ask(t, "configmaps", "-n", q.namespace, "--at", stamp(q.at), "--config", config)
	took := time.Since(q.at).Round(time.Second)
	switch is := got.Kubecdc.Certainty == exactly; {
	case is && time.Now().Before(q.notBefore):
		t.Errorf("%s: exact after %s, without progress", q.what, took)
	case is:
		t.Logf("%s: exact at most %s after the moment", q.what, took)
	case time.Now().After(q.by):
		t.Errorf("%s: %s after %s", q.what, got.Kubecdc.Certainty, took)
	default:
		return false
	}
	return true
}

// confinedTo writes the file of a user who may read the topics of some namespaces alone.
func confinedTo(t *testing.T, k *world.Kafka, topics string, namespaces ...string) (file string) {
	t.Helper()
	var names []string
	for _, namespace := range namespaces {
		names = append(names, topics+namespace)
	}
	if err := k.AllowReads(t.Context(), names...); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	file = filepath.Join(dir, "kubecdc.yaml")
	text := fmt.Sprintf(
		"apiVersion: kubecdc.dev/v1\ncluster: %s\nbus: {kafka: {brokers: [%q], topic: %q, sasl: {mechanism: PLAIN, user: %q, passwordFile: %q}}}\n",
		world.ClusterName, k.BrokersAt(kafka.SASL)[0], k.Template, k.Security().User, password)
	for path, content := range map[string]string{password: k.Security().Password + "\n", file: text} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return file
}
