package kafka_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/kafka"
)

// A user who may read one namespace's topic gets exact answers about that namespace. Answers
// about others, whose topics the brokers hide, are not exact.
func TestConfinedUserIsNotCertainOfOtherTopics(t *testing.T) {
	t.Parallel()
	c := kafka.Start(t, kafka.Options{Secure: true, Properties: map[string]string{
		"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":           "User:ANONYMOUS",
	}})
	binary := build.SharedAgent(t)
	for _, topic := range []string{"cdc.prod.shop", "cdc.prod.bank", "cdc.prod._"} {
		if err := c.CreateTopic(t.Context(), topic, 1, nil); err != nil {
			t.Fatal(err)
		}
		body := "" // a tombstone, which readers skip
		putAround(t, c, topic, 1, "prod/core/configmaps/shop/gone", []byte(body))
	}
	if err := c.AllowReads(t.Context(), "cdc.prod.shop"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	write1(t, password, c.Security().Password+"\n")
	config := func(name, brokers, sasl string) string {
		file := filepath.Join(dir, name)
		text := fmt.Sprintf(
			"apiVersion: kubecdc.dev/v1\ncluster: prod\nbus: {kafka: {brokers: [%q], topic: \"cdc.{cluster}.{namespace}\"%s}}\n",
			brokers, sasl)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	confined := config("confined.yaml", c.BrokersAt(kafka.SASL)[0],
		fmt.Sprintf(", sasl: {mechanism: PLAIN, user: %q, passwordFile: %q}", c.Security().User, password))
	whole := config("whole.yaml", c.Inside()[0], "")
	const exact, notExact = 0, 3
	for _, tc := range []struct {
		file string
		code int
		args []string
	}{
		{confined, exact, []string{"get", "cm", "-n", "shop", "--at"}},
		{confined, exact, []string{"get", "cm/settings", "-n", "shop", "--at"}},
		{confined, exact, []string{"history", "deploy/web", "-n", "shop", "--until"}},
		{confined, exact, []string{"diff", "2026-11-20T14:02:00Z", "-n", "shop"}},
		{confined, notExact, []string{"get", "cm", "-n", "bank", "--at"}},
		{confined, notExact, []string{"get", "cm", "-n", "none", "--at"}},
		{confined, notExact, []string{"get", "cm", "-A", "--at"}},
		{confined, notExact, []string{"get", "crd", "--at"}},
		{confined, notExact, []string{"history", "cm", "--until"}},
		{confined, notExact, []string{"diff", "2026-11-20T14:02:00Z", "-A"}},
		{whole, exact, []string{"get", "cm", "-A", "--at"}},
		{whole, exact, []string{"get", "cm", "-n", "none", "--at"}},
	} {
		args := append(tc.args, "2026-11-20T14:05:00Z", "--exact", "--config", tc.file)
		var said bytes.Buffer
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Stderr = &said
		began := time.Now()
		err := cmd.Run()
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%q took %s", args, took)
		}
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != tc.code {
			t.Errorf("%q: %v, want the exit code %d: %s", args, err, tc.code, &said)
		}
		const only = "the reader sees only the topics cdc.prod.shop"
		if isSaid := strings.Contains(said.String(), only); isSaid != (tc.code == notExact) {
			t.Errorf("%q: it says %s", args, &said)
		}
	}
}

// The topics of quiet namespaces get progress once an hour. An answer about another namespace does
// not wait for that. One about all namespaces does.
func TestAnswerAboutANamespaceNeedsItsTopicAlone(t *testing.T) {
	t.Parallel()
	c := kafka.Start(t, kafka.Options{})
	binary := build.SharedAgent(t)
	lines := recordLines(t)
	const early = 17 // the first progress
	for topic, lines := range map[string][][]byte{
		"cdc.prod.shop":  lines,
		"cdc.prod.quiet": lines[:early],
		"cdc.prod._":     lines[:early],
	} {
		if err := c.CreateTopic(t.Context(), topic, 2, nil); err != nil {
			t.Fatal(err)
		}
		putLines(t, c, topic, 2, "", nil, lines)
	}
	file := filepath.Join(t.TempDir(), "kubecdc.yaml")
	text := fmt.Sprintf(
		"apiVersion: kubecdc.dev/v1\nbus: {kafka: {brokers: [%q], topic: \"cdc.{cluster}.{namespace}\"}}\n",
		c.Inside()[0])
	write1(t, file, text)
	for _, tc := range []struct {
		certainty string
		args      []string
	}{
		{"exact", []string{"get", "cm", "-n", "shop", "--at"}},
		{"exact", []string{"get", "all", "-n", "shop", "--at"}},
		{"exact", []string{"get", "cm/settings", "-n", "shop", "--at"}},
		{"exact", []string{"history", "deploy/web", "-n", "shop", "--until"}},
		{"unknown", []string{"get", "cm", "-n", "quiet", "--at"}},
		{"unknown", []string{"get", "cm", "-n", "absent", "--at"}}, // All topics show what was observed.
		{"unknown", []string{"get", "cm", "-A", "--at"}},
	} {
		args := append(tc.args, "2026-11-20T14:05:00Z", "--config", file)
		var said bytes.Buffer
		cmd := exec.CommandContext(t.Context(), binary, args...)
		cmd.Stderr = &said
		if err := cmd.Run(); err != nil {
			t.Errorf("%q: %v: %s", args, err, &said)
		}
		if !strings.Contains(said.String(), "at 2026-11-20T14:05:00Z: "+tc.certainty+"\n") {
			t.Errorf("%q: want %s, it says %s", args, tc.certainty, &said)
		}
	}
}
