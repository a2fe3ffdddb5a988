package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// questions are commands about the past that have an answer in the record of the tests.
var questions = [][]string{
	{"get", "all", "--at", "rv:145", "-o", "json"},
	{"get", "cm", "-n", "shop", "--at", "2026-11-20T14:05:00Z"},
	{"diff", "rv:120", "rv:200", "cm", "-o", "json"},
	{"history", "cm", "-n", "shop", "-o", "json"},
	{"history", "deploy/web", "-n", "shop"},
	{"blame", "deploy/web", "-n", "shop"},
	{"replay", "--from", "rv:120", "--to", "rv:200", "--target", "stdout:"},
}

// stable returns the output without what differs between two runs, and between the words of two
// questions.
func (p printed) stable() string {
	out := regexp.MustCompile("replay-rv:[0-9]+-[0-9a-f]{8}").ReplaceAllString(p.Out, "replay-ID")
	out = regexp.MustCompile(`\b[0-9a-f]{16}\b`).ReplaceAllString(out, "WRITER")           // of a replay's progress
	return regexp.MustCompile(`"moment":"[^"]+"`).ReplaceAllString(out, `"moment":"TIME"`) // it may be now
}

// writeLines writes a record to a file of its own.
func writeLines(t *testing.T, lines []string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "record.jsonl")
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A cluster that is created again under the same name is another cluster, also if a backup has
// brought objects with their uids. No answer mixes the two, and --cluster-uid names one.
func TestTwoClustersOfOneNameAreNotMixed(t *testing.T) {
	t.Parallel()
	_, lines := recorded(t)
	var one, both []string
	for _, line := range lines {
		of := func(uid string) string {
			return strings.Replace(line, `"cluster":"prod"`, `"cluster":"prod","clusteruid":"`+uid+`"`, 1)
		}
		one = append(one, of("first-uid"))
		both = append(both, of("other-uid"), of("first-uid"))
	}
	file, mixed := writeLines(t, one), writeLines(t, both)
	for _, args := range questions {
		flag := "--cluster-uid"
		if args[0] == "replay" {
			flag = "--source-cluster-uid"
		}
		want := answerOf(t, append(args, "--bus", "file:"+file)...)
		got := answerOf(t, append(args, "--bus", "file:"+mixed, flag, "first")...)
		if diff := gocmp.Diff(want.stable(), got.stable()); diff != "" || want.Code != 0 {
			t.Errorf("%v: code %d, -record of one cluster +of two\n%s", args, want.Code, diff)
		}
		if args[0] == "history" {
			continue // it names the cluster of each line
		}
		got = answerOf(t, append(args, "--bus", "file:"+mixed)...)
		if got.Code != exitUsage || got.Out != "" || !strings.Contains(got.Err, flag) ||
			!strings.Contains(got.Err, "prod other-ui") {
			t.Errorf("%v: got %+v", args, got)
		}
	}

	got := answerOf(t, "history", "deploy/web", "-n", "shop", "--bus", "file:"+mixed)
	said := "(lines without a cluster: prod other-ui); --cluster and --cluster-uid selects one of: prod first-ui, prod other-ui"
	if !strings.Contains(got.Err, said) {
		t.Errorf("want %q, got\n%s", said, got.Err)
	}
	for k, line := range strings.Split(strings.TrimSpace(got.Out), "\n")[1:] {
		if strings.Contains(line, "deployments") && !strings.Contains(line, "cluster=prod ") {
			t.Errorf("line %d does not name its cluster: %s", k+2, line)
		}
	}
}

// An extension API server may serve projections of objects, with the uids of the originals: each
// has its own versions.
func TestObjectsOfOneUIDInTwoResources(t *testing.T) {
	t.Parallel()
	file, lines := recorded(t)
	var both []string
	projected := strings.NewReplacer(`"apiversion":"v1"`, `"apiversion":"projected.example.com/v1"`, `"id":"configmaps`,
		`"id":"configmaps.projected.example.com`,
		`"scope":"configmaps`, `"scope":"configmaps.projected.example.com`, `"deadLetter":"configmaps`,
		`"deadLetter":"configmaps.projected.example.com`)
	for _, line := range lines {
		if strings.Contains(line, `"resource":"configmaps"`) {
			both = append(both, projected.Replace(line))
		}
		both = append(both, line)
	}
	mixed := writeLines(t, both)
	for _, args := range questions {
		if args[1] == "all" || args[0] == "replay" {
			continue
		}
		want := answerOf(t, append(args, "--bus", "file:"+file)...)
		got := answerOf(t, append(args, "--bus", "file:"+mixed)...)
		if diff := gocmp.Diff(want.stable(), got.stable()); diff != "" {
			t.Errorf("%v: -without +with the projection\n%s", args, diff)
		}
	}
	names := func(resource string) string {
		got := answerOf(t, "get", resource, "--at", "2026-11-20T14:05:00Z", "--bus", "file:"+mixed, "-o",
			"jsonpath={range .items[*]}{.metadata.name} {end}")
		return got.Out
	}
	if all := names("all"); strings.Count(all, " ") < 2*strings.Count(names("cm"), " ") || names("cm") == "" {
		t.Errorf("want each of %q twice in %q", names("cm"), all)
	}
	count := func(out string) (n int) {
		for line := range strings.Lines(out) {
			if strings.Contains(line, `"resource":"configmaps"`) &&
				!strings.Contains(line, `"type":"dev.kubecdc.progress"`) {
				n++
			}
		}
		return n
	}
	want := answerOf(t, "replay", "--from", "rv:120", "--to", "rv:200", "--target", "stdout:", "--bus",
		"file:"+file).Out
	got := answerOf(t, "replay", "--from", "rv:120", "--to", "rv:200", "--target", "stdout:", "--bus",
		"file:"+mixed).Out
	if count(got) != 2*count(want) || count(want) == 0 {
		t.Errorf("a replay has %d events, want twice %d", count(got), count(want))
	}
}
