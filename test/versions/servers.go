package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/kubecdc/kubecdc/internal/versions"
)

// truth are the tests of the record against etcd's history, of resuming, and of answers about the
// past.
const truth = `^Test(Truth|Restart|CompactedWhileDown|GetIsTheListOfItsRevision)$`

// kubernetes returns the control planes of test/cluster/versions, by their minors.
func kubernetes() kind {
	return kind{
		name:     "kubernetes",
		title:    "Kubernetes",
		versions: []string{"1.33.13", "1.34.4", "1.35.4", "1.36.3"},
		table:    table{head: []string{"Kubernetes", "etcd", "run on"}},
		test: func(ctx context.Context, r *runner, version string) ([]string, error) {
			minor := version[:strings.LastIndexByte(version, '.')]
			etcd, err := r.pinned("test/cluster/versions/v"+minor+".mod", `go.etcd.io/etcd/server/v3 v(\S+)`)
			if err != nil {
				return nil, err
			}
			if err := r.buildControlPlane(ctx, minor); err != nil {
				return nil, err
			}
			for _, gate := range []string{"WatchList=true", "WatchList=false"} {
				err = errors.Join(err, r.all(ctx, step{
					name:    "Kubernetes " + version + ", " + gate,
					module:  "test",
					pkg:     "./e2e",
					tests:   truth,
					timeout: "30m",
					env:     []string{"KUBECDC_KUBERNETES=" + minor, "KUBECDC_KUBERNETES_GATES=" + gate},
				}))
			}
			err = errors.Join(err, r.all(ctx, step{
				name:    "Kubernetes " + version + ", columns",
				module:  "test",
				pkg:     "./e2e",
				tests:   "^TestColumns$",
				timeout: "30m",
				env:     []string{"KUBECDC_KUBERNETES=" + minor},
			}))
			return []string{etcd}, err
		},
	}
}

const (
	// onNATS are the tests of the bus that hold for any server: those that start one with
	// bustest.StartAnyServer or startCluster.
	onNATS = `^Test(Record|SecondCopy|Order|Lost|TheEnd|FullStreamHolds|ServerThat|StreamThat|Another|EventLarger|Duplicate|MessageID|` +
		`Isolated|Heard|Newest|LastProgress|FirstRecord|LargestEvent|DeadLetter|StreamIs|StartedScopes|ObjectStore|ClusterWhose|StreamOf).*$`
	fullRuns   = 3
	fullLength = "1m"
)

// natsServer returns the versions of nats-server.
func natsServer() kind {
	return kind{
		name:     "nats",
		title:    "nats-server",
		versions: []string{"2.10.27", "2.11.17", "2.12.15", "2.14.10", "2.15.3"},
		table: table{head: []string{
			"nats-server", "a full stream with three replicas, `max_bytes` raised", "run on",
		}},
		test: func(ctx context.Context, r *runner, version string) ([]string, error) {
			server, err := r.install(ctx, "github.com/nats-io/nats-server/v2", version, false)
			if err != nil {
				return nil, err
			}
			env := []string{"KUBECDC_NATS_SERVER=" + server}
			name := "nats-server " + version + ": "
			err = r.all(ctx,
				step{
					name:    name + "bus",
					pkg:     "./internal/bus/nats",
					tests:   onNATS,
					timeout: "15m",
					env:     env,
				},
				step{
					name:    name + "a reader on a replica that lags",
					pkg:     "./pkg/consume/fromnats",
					tests:   "^TestLaggingServerEndsNoRead$",
					timeout: "15m",
					env:     env,
				},
				step{
					name:    name + "agent",
					module:  "test",
					pkg:     "./e2e",
					tests:   `^Test(Restart|GetIsTheListOfItsRevision)$`,
					timeout: "30m",
					env:     env,
				},
			)
			lost, failure := r.fillStream(ctx, version, env)
			return []string{lost}, errors.Join(err, failure)
		},
	}
}

// fillStream runs TestFullStream with edits of max_bytes. It returns in how many runs records were
// lost. That is an error only for versions that are not known to lose records.
func (r *runner) fillStream(ctx context.Context, version string, env []string) (lost string, err error) {
	losses := 0
	detected := 0
	ran := 0
	env = append([]string{"FULL_STREAM=" + fullLength, "FULL_STREAM_REMEDIES=max_bytes"}, env...)
	for n := range fullRuns {
		out, failure := r.run(ctx, &step{
			name:    fmt.Sprintf("nats-server %s: full stream, run %d of %d", version, n+1, fullRuns),
			pkg:     "./internal/bus/nats",
			tests:   "^TestFullStream$",
			timeout: "20m",
			env:     env,
		})
		isLost := strings.Contains(string(out), "LOST: ")
		if failure == nil || isLost {
			ran++
		}
		switch {
		case isLost && versions.NATS().Loses(version):
			losses++
			if m := signs.FindSubmatch(out); m != nil && string(m[1])+string(m[2]) != "00" {
				detected++
			}
		case failure != nil:
			err = errors.Join(err, failure)
		}
	}
	if losses > 0 {
		return fmt.Sprintf("records lost in %d of %d runs; the agent detected it in %d", losses, ran, detected), err
	}
	return fmt.Sprintf("nothing lost in %d runs", ran), err
}

// signs matches the signs of a loss that the bus has detected.
var signs = regexp.MustCompile(`DETECTED: \d+ warnings of the version, (\d+) replaced logs, (\d+) false duplicates`)

// onKafka are the tests of brokers that hold for any version.
const onKafka = `^Test(LastProgress|PublisherLosesAnswers|PublisherSurvives.*|PublisherCompresses|ConsumeStarts|ConsumeOneObject|ConsumeATopic.*|` +
	`ConsumeWithAGroup|EventsBeside.*|StateOf.*|HistoryIs.*|TailReadsKafka|PausedNode.*|PathThatDies.*|ClusterKeeps.*|RelayGoesOn.*)$`

// kafka returns the versions of Apache Kafka.
func kafka() kind {
	return kind{
		name:     "kafka",
		title:    "Apache Kafka",
		versions: []string{"2.8.2", "3.3.2", "3.9.1", "4.0.2", "4.4.0"},
		table:    table{head: []string{"Apache Kafka", "mode", "run on"}},
		test: func(ctx context.Context, r *runner, version string) ([]string, error) {
			mode := "KRaft"
			if versions.IsBefore(version, "3.3") {
				mode = "ZooKeeper"
			}
			env := []string{"KUBECDC_KAFKA=require", "KUBECDC_KAFKA_VERSION=" + version}
			name := "Apache Kafka " + version + ": "
			return []string{mode}, r.all(ctx,
				step{
					name:    name + "bus",
					module:  "test",
					pkg:     "./kafka",
					tests:   onKafka,
					timeout: "30m",
					env:     env,
				},
				step{
					name:    name + "agent",
					module:  "test",
					pkg:     "./e2e",
					tests:   `^TestKafka(Truth|LostResponse|Faults)$`,
					timeout: "30m",
					env:     append([]string{"FAULTS=10"}, env...),
				},
			)
		},
	}
}

// kine returns the versions of kine, which stands in for etcd in k3s, with SQLite.
func kine() kind {
	return kind{
		name:     "kine",
		title:    "kine",
		versions: []string{"0.17.5"},
		table:    table{head: []string{"kine", "Kubernetes", "run on"}},
		test: func(ctx context.Context, r *runner, version string) ([]string, error) {
			server, err := r.pinned("test/cluster/go.mod", `k8s.io/kubernetes v(\S+)`)
			if err != nil {
				return nil, err
			}
			file, err := r.install(ctx, "github.com/k3s-io/kine", version, true)
			if err != nil {
				return nil, err
			}
			env := []string{"KUBECDC_KINE=" + file}
			return []string{server}, r.all(ctx,
				step{
					name:    "kine " + version,
					module:  "test",
					pkg:     "./e2e",
					tests:   truth,
					timeout: "30m",
					env:     env,
				},
				step{
					name:    "kine " + version + ", without watch caches",
					module:  "test",
					pkg:     "./e2e",
					tests:   `^Test(Truth|Restart)$`,
					timeout: "30m",
					env:     append([]string{"KUBECDC_KUBERNETES_UNCACHED=true"}, env...),
				},
			)
		},
	}
}

// pinned returns the version that a file of the repository pins: the first group of a pattern.
func (r *runner) pinned(file, pattern string) (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, file))
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(pattern).FindSubmatch(text)
	if m == nil {
		return "", fmt.Errorf("%s has no version: %s", file, pattern)
	}
	return string(m[1]), nil
}
