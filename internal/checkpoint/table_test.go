package checkpoint_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

// printed returns what Write prints, with single spaces between columns.
func printed(d *checkpoint.Document, now time.Time) string {
	var out bytes.Buffer
	d.Write(&out, "checkpoint file /data/checkpoint.json", now)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for k, line := range lines {
		lines[k] = strings.Join(strings.Fields(line), " ")
	}
	return strings.Join(lines, "\n")
}

func TestTable(t *testing.T) {
	d := document()
	now := d.Saved.Add(90 * time.Second)
	saved := d.Saved.Local().Format(time.DateTime)
	retired := d.Scopes["pods"]
	retired.Retiring = &checkpoint.Retiring{Since: now.Add(-3 * time.Hour)}
	d.Scopes["pods/old"] = retired
	begun := d.Scopes["pods"]
	begun.Snapshot = &checkpoint.Snapshot{ID: "02K", Objects: 7}
	d.Scopes["pods/shop"] = begun
	want := `kept in checkpoint file /data/checkpoint.json
cluster prod-eu-1 (uid 11e0-uid)
bus nats://nats:4222 stream KUBECDC
saved ` + saved + ` (90s ago)

SCOPE RESOURCEVERSION HISTORY SNAPSHOT LAST SEEN
deployments.apps/shop*?labels=tier!=web,a<b 47000 1 01J: up to apps/deployments/shop/web, of 300 objects 90s ago
pods 48211 0 - 91s ago
pods/old 48211 0 retiring for 3h 91s ago
pods/shop 48211 0 02K: none of 7 objects yet 91s ago
widgets.example.com 5 0 - -`
	if diff := cmp.Diff(want, printed(d, now)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	d.Scopes = nil
	d.Cluster = d.ClusterUID // it has no name
	want = `kept in checkpoint file /data/checkpoint.json
cluster 11e0-uid
bus nats://nats:4222 stream KUBECDC
saved ` + saved + ` (90s ago)

It holds no scope yet.`
	if diff := cmp.Diff(want, printed(d, now)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	want = "checkpoint file /data/checkpoint.json: no checkpoint yet. The next start begins from scratch."
	if diff := cmp.Diff(want, printed(nil, now)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestAges(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for ago, want := range map[time.Duration]string{
		-time.Hour:               "0s", // another machine has another clock
		1500 * time.Millisecond:  "1s",
		2*time.Minute - 1:        "119s",
		2 * time.Minute:          "2m",
		2*time.Hour - 1:          "119m",
		2 * time.Hour:            "2h",
		48*time.Hour - 1:         "47h",
		48 * time.Hour:           "2d",
		(30*24 + 23) * time.Hour: "30d",
	} {
		d := &checkpoint.Document{Saved: now.Add(-ago)}
		if got := printed(d, now); !strings.Contains(got, fmt.Sprintf("(%s ago)", want)) {
			t.Errorf("%s is not %s in\n%s", ago, want, got)
		}
	}
}
