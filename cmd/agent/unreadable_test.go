package main

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// unreadableBodies are records that cannot be read.
var unreadableBodies = map[string][]byte{
	"garbage":              {0xff, 0x00, '{', 0x1b},
	"empty":                {},
	"JSON of another form": []byte(`[{"specversion":"1.0"}]`),
	"no CloudEvent":        []byte(`{"kind":"Pod","metadata":{"name":"web"}}`),
	"data of another form": []byte(
		`{"specversion":"1.0","source":"/kubernetes/prod","id":"1","type":"dev.kubecdc.object.updated",` +
			`"apiversion":"v1","resource":"configmaps","namespace":"shop","name":"settings","uid":"u","op":"u","data":{"op":7,"before":[]}}`),
	"huge": bytes.Repeat([]byte(`[{"a":`), 150_000),
}

// fillAround publishes the record of the tests with another one in the middle.
func fillAround(t *testing.T, js jetstream.JetStream, subject string, body []byte) {
	t.Helper()
	_, lines := recorded(t)
	fillBus(t, js, lines[:19])
	m := &nats.Msg{Subject: subject, Header: nats.Header{"content-type": {"application/cloudevents+json"}}, Data: body}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	fillBus(t, js, lines[19:])
}

// unreadableQuestions are questions about one object or several.
var unreadableQuestions = map[string][]string{
	"settings": {"cm/settings", "-n", "shop"},
	"old":      {"cm/old", "-n", "shop"},
	"shop":     {"cm", "-n", "shop"},
	"bank":     {"cm", "-n", "bank"},
	"web":      {"deploy/web", "-n", "shop"},
	"all":      {"all", "-A"},
}

// A record that cannot be read lowers the answers about what its subject names, and no others.
func TestUnreadableRecordLowersTheAnswersOfItsSubject(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, subject string
		lowered       string // the questions, separated by spaces
	}{
		{"an object", "kubecdc.prod.object.core.configmaps.shop.settings", "settings shop all"},
		{"another object", "kubecdc.prod.object.core.configmaps.shop.other", "shop all"},
		{"another namespace", "kubecdc.prod.object.core.configmaps.bank.settings", "bank all"},
		{"another resource", "kubecdc.prod.object.apps.deployments.shop.web", "web all"},
		{"a resource that nobody asks for", "kubecdc.prod.object.batch.jobs.shop.web", "all"},
		{"a shortened name", "kubecdc.prod.object.core.configmaps.shop.sett~5f", "shop all"},
		{"the scopes of a resource", "kubecdc.prod.stream.core.configmaps", "settings old shop bank all"},
		{"an agent", "kubecdc.prod.progress.a1b2", ""},
		{"no form of the agent's", "kubecdc.prod.elsewhere", "settings old shop bank web all"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bodies := unreadableBodies
			if c.name != "an object" {
				bodies = map[string][]byte{"garbage": unreadableBodies["garbage"]}
			}
			for kind, body := range bodies {
				s := startServer(t, t.TempDir(), -1)
				fillAround(t, connect(t, s.ClientURL()), c.subject, body)
				for name, question := range unreadableQuestions {
					isLowered := strings.Contains(" "+c.lowered+" ", " "+name+" ")
					commands := [][]string{
						{"get", "--at", withinRecord},
						{"history", "--until", withinRecord},
						{"diff", "2026-11-20T14:02:00Z", withinRecord},
					}
					if c.name != "an object" && name != "bank" {
						commands = commands[:1]
					}
					for _, command := range commands {
						args := append(append(command, question...), "--exact", "--bus", s.ClientURL())
						got := answerOf(t, args...)
						saysSo := strings.Contains(got.Err,
							"records that cannot be read, and may belong to the answer: 1")
						if isLowered != (got.Code == exitNotExact || got.Code == exitFailed && saysSo) ||
							isLowered != saysSo {
							t.Errorf("%s: %v: lowered is %v: %+v", kind, args, isLowered, got)
						}
					}
				}
			}
		})
	}
}

// An answer names the scopes that a record lowers which cannot be read. serve warns of these alone.
func TestUnreadableRecordIsSaid(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), -1)
	fillAround(t, connect(t, s.ClientURL()), "kubecdc.prod.object.core.configmaps.shop.settings",
		unreadableBodies["garbage"])
	got := answerOf(t, "get", "all", "-A", "--at", withinRecord, "-o", "name", "--bus", s.ClientURL())
	want := "at " + withinRecord + ": uncertain\n" +
		"  configmaps: uncertain: records that cannot be read, and may belong to the answer: 1 ('kubecdc tail' shows them)\n" +
		"  secrets: with redacted values: 1\n"
	if got.Err != want || got.Code != exitOK {
		t.Errorf("got %+v", got)
	}
	got = answerOf(t, "blame", "cm/settings", "-n", "shop", "--at", withinRecord, "--exact", "--bus", s.ClientURL())
	if got.Code != exitNotExact {
		t.Errorf("blame: got %+v", got)
	}
	config, err := clientcmd.BuildConfigFromFlags("", served(t, "--at", withinRecord, "--bus", s.ClientURL()))
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for path, isLowered := range map[string]bool{"/api/v1/configmaps": true, "/apis/apps/v1/deployments": false} {
		r, err := client.Get(config.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		warnings := strings.Join(r.Header.Values("Warning"), "\n")
		if r.StatusCode != http.StatusOK || strings.Contains(warnings, "records that cannot be read") != isLowered {
			t.Errorf("%s: warnings %q", path, warnings)
		}
	}
}

// A question for many objects reads one wildcard. A record of another object that matches the
// wildcard, and that cannot be read, lowers nothing.
func TestUnreadableRecordOfAWiderWildcard(t *testing.T) {
	t.Parallel()
	s := startServer(t, t.TempDir(), -1)
	fillAround(t, connect(t, s.ClientURL()), "kubecdc.prod.object.core.configmaps.shop.other",
		unreadableBodies["garbage"])
	for asked, want := range map[string]int{"another": exitOK, "other": exitNotExact} {
		args := []string{"get", "cm", "settings", asked}
		for n := range 70 {
			args = append(args, fmt.Sprint("none-", n))
		}
		got := answerOf(t, append(args, "-n", "shop", "--at", withinRecord, "--exact", "--bus", s.ClientURL())...)
		if got.Code != want || !strings.Contains(got.Out, "settings") {
			t.Errorf("asked for %s: %+v", asked, got)
		}
	}
}
