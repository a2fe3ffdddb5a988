package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseBenchmarks(t *testing.T) {
	const text = `goos: linux
BenchmarkNoise/status-only/sent-2         	  100	      3000 ns/op	      10 B/op	       1 allocs/op
BenchmarkNoise/status-only/sent-2         	  100	      1000 ns/op	      30 B/op	       3 allocs/op
BenchmarkNoise/status-only/sent-2         	  100	      2000 ns/op	      20 B/op	       2 allocs/op
BenchmarkWhere/op                         	  100	      93.5 ns/op	       0 B/op	       0 allocs/op
BenchmarkEncodeDeep/flat-2                	  100	      7000 ns/op	  14.34 MB/s	      40 B/op	       4 allocs/op
PASS
`
	want := []Cost{{"Noise/status-only/sent", 2000, 20, 2}, {"Where/op", 93.5, 0, 0}, {"EncodeDeep/flat", 7000, 40, 4}}
	if diff := cmp.Diff(want, parseBenchmarks([]byte(text))); diff != "" {
		t.Error(diff)
	}
}
