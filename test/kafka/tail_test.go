package kafka_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/kafka"
	"github.com/kubecdc/kubecdc/test/wait"
)

// kubecdc tail shows the events of Kafka like those of NATS.
func TestTailReadsKafka(t *testing.T) {
	t.Parallel()
	const partitions = 3
	c := kafka.Start(t, kafka.Options{})
	for _, topic := range []string{"kubecdc.prod", "kubecdc.prod.dead", "other"} {
		if err := c.CreateTopic(t.Context(), topic, partitions, nil); err != nil {
			t.Fatal(err)
		}
		putAt(t, c, topic, 1, topic, 1, 2)
	}
	a, b := objectIn(0, partitions), objectIn(2, partitions)
	now := time.Now()
	putMessages(t, c, "kubecdc.prod", 0, updates(a, 1, 4, now.Add(-time.Hour))...)
	putMessages(t, c, "kubecdc.prod", 0, updates(a, 4, 6, now)...)
	putMessages(t, c, "kubecdc.prod", 2, updates(b, 1, 3, now)...)
	binary := build.SharedAgent(t)
	file := filepath.Join(t.TempDir(), "kubecdc.yaml")
	text := fmt.Sprintf("apiVersion: kubecdc.dev/v1\ncluster: prod\nbus: {kafka: {brokers: [%q]}}\n", c.Inside()[0])
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := "kafka://" + c.Inside()[0]
	tail := func(args ...string) []string {
		t.Helper()
		var stderr bytes.Buffer
		cmd := exec.CommandContext(t.Context(), binary,
			append([]string{"tail", "--no-follow", "-o", "json"}, args...)...)
		cmd.Stderr = &stderr
		began := time.Now()
		out, err := cmd.Output()
		t.Logf("tail %q: %s", args, time.Since(began).Round(time.Millisecond))
		if err != nil || stderr.Len() > 0 {
			t.Fatalf("tail %q: %v %s", args, err, &stderr)
		}
		var ids []string
		for line := range bytes.Lines(out) {
			var e struct{ ID string }
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, e.ID)
		}
		slices.Sort(ids)
		return ids
	}
	all := slices.Concat(versions("kubecdc.prod", 1, 2), versions(a, 1, 6), versions(b, 1, 3))
	slices.Sort(all)
	for _, tc := range []struct {
		args []string
		want []string
	}{
		{[]string{"--bus", address + "/kubecdc.prod"}, all},
		{[]string{"--bus", address}, all}, // any cluster's topic, and no dead letters
		{[]string{"--config", file}, all},
		{[]string{"--bus", address + "/kubecdc.prod", "cm/" + a}, versions(a, 1, 6)},
		{[]string{"--config", file, "-n", "shop", "cm/" + a, "--since", "30m"}, versions(a, 4, 6)},
		{[]string{"--config", file, "-n", "shop", "cm/" + b}, versions(b, 1, 3)},
		{[]string{"--bus", address + "/other"}, versions("other", 1, 2)},
	} {
		if diff := cmp.Diff(tc.want, tail(tc.args...)); diff != "" {
			t.Errorf("tail %q: -want +got\n%s", tc.args, diff)
		}
	}

	out, err := exec.CommandContext(t.Context(), binary, "tail", "--bus", address+"/none").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "none of the topics to read is at "+c.Inside()[0]) {
		t.Errorf("a topic that does not exist: %v, %s", err, out)
	}
	out, err = exec.CommandContext(t.Context(), binary, "tail", "--bus", "kafka://127.0.0.1:1/x").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "127.0.0.1:1") {
		t.Errorf("no Kafka: %v, %s", err, out)
	}

	live := exec.CommandContext(t.Context(), binary, "tail", "--bus", address, "cm")
	shown := &relayLog{}
	live.Stdout = shown
	if err := live.Start(); err != nil {
		t.Fatal(err)
	}
	n := 10
	wait.Eventually(t, time.Minute, func() error {
		putAt(t, c, "kubecdc.prod", 1, "live", n, n+1) // until it reads
		n++
		if text := shown.String(); !strings.Contains(text, "shop/live") || strings.Contains(text, a) {
			return fmt.Errorf("it shows %q", text)
		}
		return nil
	})
	if err := live.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := live.Wait(); err != nil {
		t.Error(err)
	}
}
