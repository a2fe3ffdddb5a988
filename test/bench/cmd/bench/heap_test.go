package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHeapKept(t *testing.T) {
	const before = "gc 1 @0.1s 3%: 0.1+1.2+0.1 ms clock, 0.2+0.1/1/0+0.2 ms cpu, 4->4->2 MB, 5 MB goal, 0 MB stacks, 0 MB globals, 2 P\n" +
		"{\"msg\":\"synced\"}\n" +
		"gc 2 @0.2s 3%: 0.1+1.2+0.1 ms clock, 0.2+0.1/1/0+0.2 ms cpu, 40->41->20 MB, 41 MB goal, 0 MB stacks, 0 MB globals, 2 P\n"
	const since = "gc 3 @0.3s 3%: 0.1+1.2+0.1 ms clock, 0.2+0.1/1/0+0.2 ms cpu, 60->61->50 MB, 60 MB goal, 0 MB stacks, 0 MB globals, 2 P\n" +
		"gc 4 @0.4s 3%: 0.1+1.2+0.1 ms clock, 0.2+0.1/1/0+0.2 ms cpu, 60->61->45 MB, 60 MB goal, 0 MB stacks, 0 MB globals, 2 P\n" +
		"gc 5 @0.5s 3%: 0.1+1.2+0.1 ms clock, 0.2+0.1/1/0+0.2 ms cpu, 60->61->48 MB, 60 MB goal, 0 MB stacks, 0 MB globals, 2 P\n"
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte(before+since), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := heapKept(log, int64(len(before))); err != nil || got != 45<<20 {
		t.Errorf("heapKept = %d, %v; want 45 MiB", got, err)
	}
	if _, err := heapKept(log, int64(len(before+since))); err == nil {
		t.Error("nothing traced since: no error")
	}
}
