package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

const (
	replayFrom = "2026-11-20T14:03:00Z"
	replayTo   = "2026-11-20T14:10:30Z"
)

// ids returns the ids of the events of a source, in their order.
func ids(t *testing.T, s consume.Source) []string {
	t.Helper()
	r, err := s.Read(t.Context(), consume.Query{Start: consume.Beginning(), StopAtEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var out []string
	for {
		e, err := r.Next(t.Context())
		if err != nil {
			return out
		}
		out = append(out, e.ID)
	}
}

func TestReplayFromAndToJetStream(t *testing.T) {
	t.Parallel()
	file, lines := recorded(t)
	from, to := recordedBus(t, t.TempDir(), -1, lines), startServer(t, t.TempDir(), -1).ClientURL()
	drill := startServer(t, t.TempDir(), -1).ClientURL()
	copied := filepath.Join(t.TempDir(), "copy.jsonl")
	for _, args := range [][]string{
		{"--bus", "file:" + file, "--target", "file:" + copied},
		{"--bus", from, "--target", to},
		{"--bus", from, "--target", drill, "--target-stream", "DRILL", "--cluster", "drill"},
	} {
		got := answerOf(t, append([]string{"replay", "--from", replayFrom, "--to", replayTo}, args...)...)
		if got.Code != exitOK || got.Out != "" {
			t.Fatalf("%v: %+v", args, got)
		}
	}
	want := ids(t, &fromfile.File{Path: copied})
	if len(want) < 30 {
		t.Fatalf("%d events: too few", len(want))
	}
	sorted := gocmp.Transformer("sorted", func(s []string) map[string]bool {
		m := map[string]bool{}
		for _, id := range s {
			m[id] = true
		}
		return m
	})
	if diff := gocmp.Diff(want, ids(t, &fromnats.JetStream{URL: to}), sorted); diff != "" {
		t.Errorf("in JetStream (-file +stream):\n%s", diff)
	}
	if diff := gocmp.Diff(want, ids(t, &fromnats.JetStream{URL: drill, Stream: "DRILL"}), sorted); diff != "" {
		t.Errorf("in a stream of another name (-file +stream):\n%s", diff)
	}
	for at := range 6 { // the past of the copy is that of the record
		moment := fmt.Sprintf("2026-11-20T14:%02d:30Z", at+4)
		want := answerOf(t, "get", "all", "-o", "json", "--at", moment, "--bus", from)
		got := answerOf(t, "get", "all", "-o", "json", "--at", moment, "--bus", to)
		if diff := gocmp.Diff(want.Out, got.Out); diff != "" {
			t.Errorf("get --at %s (-record +replay):\n%s", moment, diff)
		}
	}
}

func TestReplayIntoItsSourceIsRefused(t *testing.T) {
	t.Parallel()
	_, lines := recorded(t)
	url := recordedBus(t, t.TempDir(), -1, lines)
	other := strings.Replace(url, "127.0.0.1", "localhost", 1)
	for _, args := range [][]string{{"--target", url}, {"--target", other}, {"--target", other, "--cluster", "drill"}} {
		got := answerOf(t, append([]string{"replay", "--from", replayFrom, "--bus", url}, args...)...)
		if got.Code != exitUsage || !strings.Contains(got.Err, "--target is a log of the record itself") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if n := len(ids(t, &fromnats.JetStream{URL: url})); n != len(lines) {
		t.Errorf("the stream has %d events, and had %d", n, len(lines))
	}
}

func TestReplayWithoutPermissionAtTheTarget(t *testing.T) {
	t.Parallel()
	file, _ := recorded(t)
	for name, streams := range map[string][]jetstream.StreamConfig{
		"to create the stream": nil,
		"to publish":           {{Name: "KUBECDC", Subjects: []string{"kubecdc.>"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := "nats://" + startJetStream(t, &server.Options{Users: []*server.User{
				{Username: "admin", Password: "admin"},
				{Username: "reader", Password: "hunter2", Permissions: &server.Permissions{
					Publish: &server.SubjectPermission{Deny: []string{"kubecdc.>", "$JS.API.STREAM.CREATE.>"}},
				}},
			}})
			js := connect(t, url, nats.UserInfo("admin", "admin"))
			defer js.Conn().Close()
			for _, stream := range streams {
				if _, err := js.CreateStream(t.Context(), stream); err != nil {
					t.Fatal(err)
				}
			}
			dir := t.TempDir()
			password, cfg := filepath.Join(dir, "password"), filepath.Join(dir, "target.yaml")
			if err := os.WriteFile(password, []byte("hunter2"), 0o600); err != nil {
				t.Fatal(err)
			}
			text := fmt.Sprintf(
				"apiVersion: kubecdc.dev/v1\nbus:\n  nats:\n    url: %s\n    auth: {user: reader, passwordFile: %s, insecure: true}\n",
				url, password)
			if err := os.WriteFile(cfg, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			got := answerOf(t, "replay", "--from", replayFrom, "--bus", "file:"+file, "--target-config", cfg)
			if got.Code != exitFailed || !strings.Contains(got.Err, "ermission") ||
				strings.Contains(got.Err, "hunter2") || time.Since(began) > time.Minute {
				t.Errorf("after %s: %+v", time.Since(began), got)
			}
		})
	}
}

// The commands that the guide shows with their output print it.
func TestGuideOfReplay(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guides/audit-and-replay.md")
	if err != nil {
		t.Fatal(err)
	}
	record, err := filepath.Abs("testdata/record.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("TZ", "UTC")
	t.Chdir(t.TempDir())
	timing := regexp.MustCompile(` in [0-9.µms]+, [0-9,]+ a second`)
	commands := 0
	for _, block := range regexp.MustCompile("(?s)```console\n\\$ kubecdc (.*?)\n(.*?)```").
		FindAllStringSubmatch(string(guide), -1) {
		args := strings.Fields(block[1])
		if !strings.Contains(block[1], "--bus") {
			args = append(args, "--bus", "file:"+record)
		}
		got := answerOf(t, args...)
		if diff := gocmp.Diff(timing.ReplaceAllString(block[2], ""),
			timing.ReplaceAllString(got.Out+got.Err, "")); diff != "" {
			t.Errorf("kubecdc %s (-guide +printed):\n%s", block[1], diff)
		}
		commands++
	}
	if commands < 2 {
		t.Errorf("%d commands: the test shows nothing", commands)
	}
}
