package record_test

import (
	"fmt"
	"testing"

	"github.com/kubecdc/kubecdc/test/bench/feed"
	"github.com/kubecdc/kubecdc/test/bench/record"
)

// The check keeps the benchmark honest, so it has to detect each kind of cheating.
func TestCheckNotices(t *testing.T) {
	const pods, updates = 10, 100
	h, err := feed.NewHistory(pods)
	if err != nil {
		t.Fatal(err)
	}
	honest := func(j int) string { return update(h, j, h.Previous(j), h.Version(j)) }
	for name, tc := range map[string]struct {
		record func(j int) []string
		want   func(record.Result) bool
	}{
		"honest": {
			func(j int) []string { return []string{honest(j)} },
			func(r record.Result) bool { return r.Complete() && r.Updates == updates && r.Sampled == 5 },
		},
		"lost": {
			func(j int) []string {
				if j == 50 {
					return nil
				}
				return []string{honest(j)}
			},
			func(r record.Result) bool { return !r.Complete() && r.Missing == 1 },
		},
		"twice": {
			func(j int) []string { return []string{honest(j), honest(j)} },
			func(r record.Result) bool { return !r.Complete() && r.Duplicates == updates },
		},
		"backwards": {
			func(j int) []string { return []string{honest(updates - 1 - j)} },
			func(r record.Result) bool { return !r.Complete() && r.Disordered == updates-pods },
		},
		"before is after": {
			func(j int) []string { return []string{update(h, j, h.Version(j), h.Version(j))} },
			func(r record.Result) bool { return !r.Complete() && r.Invalid == 5 },
		},
		"cut off": {
			func(j int) []string { return []string{honest(j)[:2000]} },
			func(r record.Result) bool { return !r.Complete() && r.Invalid == 5 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := record.NewCheck(h, updates)
			for j := range updates {
				for _, text := range tc.record(j) {
					c.Add(record.Subject("any", "pod"), []byte(text))
				}
			}
			if got := c.Result(); !tc.want(got) {
				t.Errorf("%+v", got)
			}
		})
	}
}

func update(h *feed.History, j int, before, after uint64) string {
	pod := h.Order(j)
	return fmt.Sprintf(`{"op":"u","name":%q,"resourceversion":"%d","data":{"before":%s,"after":%s}}`,
		h.Name(pod), h.Version(j), h.AppendObject(nil, pod, before), h.AppendObject(nil, pod, after))
}
