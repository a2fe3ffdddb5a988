package checkpoint_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubecdc/kubecdc/internal/checkpoint"
)

var update = flag.Bool("update", false, "write the golden files anew")

var us = checkpoint.Identity{ClusterUID: "11e0-uid", Cluster: "prod-eu-1", Bus: "nats://nats:4222 stream KUBECDC"}

func document() *checkpoint.Document {
	at := time.Date(2026, 11, 21, 21, 30, 0, 0, time.UTC)
	return &checkpoint.Document{
		FormatVersion: checkpoint.FormatVersion, Identity: us, Writer: "WRITER", Save: 12, Saved: at,
		Scopes: map[string]checkpoint.Scope{
			"pods": {
				Version:         "v1",
				Resource:        "pods",
				Kind:            "Pod",
				Namespaced:      true,
				ResourceVersion: 48211,
				State:           1<<63 + 5,
				LastSeen:        at.Add(-time.Second),
				SnapshotBegan:   at.Add(-time.Hour),
			},
			"deployments.apps/shop*?labels=tier!=web,a<b": {
				Group:           "apps",
				Version:         "v1",
				Resource:        "deployments",
				Kind:            "Deployment",
				Namespaced:      true,
				Namespaces:      []string{"shop*"},
				LabelSelector:   "tier!=web,a<b",
				ResourceVersion: 47000,
				History:         1,
				LastSeen:        at,
				Snapshot: &checkpoint.Snapshot{
					ID:              "01J",
					ResourceVersion: 46999,
					Objects:         300,
					Cursor:          "apps/deployments/shop/web",
				},
			},
			"widgets.example.com": {
				Group:           "example.com",
				Version:         "v1beta1",
				Resource:        "widgets",
				Kind:            "Widget",
				FieldSelector:   "metadata.name=x",
				ResourceVersion: 5,
				State:           9,
			},
		},
	}
}

func encode(t testing.TB, d *checkpoint.Document) []byte {
	t.Helper()
	data, err := d.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestFormat(t *testing.T) {
	golden := filepath.Join("testdata", "checkpoint.json")
	got := encode(t, document())
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	d, err := checkpoint.Decode(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(document(), d); diff != "" {
		t.Errorf("decoded (-want +got):\n%s", diff)
	}
}

func TestDamageIsReported(t *testing.T) {
	whole := encode(t, document())
	damaged := func(data []byte, what string) {
		t.Helper()
		if _, err := checkpoint.Decode(data); !errors.Is(err, checkpoint.ErrDamaged) {
			t.Errorf("%s: %v, want ErrDamaged", what, err)
		}
	}
	for n := range whole {
		damaged(whole[:n], fmt.Sprintf("cut to %d bytes", n))
	}
	for i := range whole {
		for _, bit := range []byte{1, 1 << 5, 1 << 7} {
			flipped := bytes.Clone(whole)
			flipped[i] ^= bit
			damaged(flipped, fmt.Sprintf("byte %d flipped by %#x", i, bit))
		}
	}
	damaged(append(bytes.Clone(whole), '\n'), "a line more")
	damaged(append([]byte("\ufeff"), whole...), "a byte order mark")
	damaged(bytes.Replace(whole, []byte(`"48211"`), []byte(`"48210"`), 1), "edited by hand")
	damaged(bytes.ReplaceAll(whole, []byte("\n"), []byte("\r\n")), "line ends of windows")
	damaged(make([]byte, len(whole)), "zeroes, as after a power failure")
}

func TestOtherFormats(t *testing.T) {
	for _, v := range []int{0, 2, 99} {
		d := document()
		d.FormatVersion = v
		_, err := checkpoint.Decode(encode(t, d))
		want := fmt.Sprintf("it has format %d, this kubecdc reads 1: use the kubecdc that wrote it, or start over", v)
		if !errors.Is(err, checkpoint.ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("format %d: %v, want %q", v, err, want)
		}
	}
}

// For any input, with a seal or without, the decoder returns an error of its own kind or a document
// that is equal after it is encoded again.
func FuzzDecode(f *testing.F) {
	whole := encode(f, document())
	f.Add(whole)
	f.Add(whole[:100])
	f.Add(whole[:bytes.LastIndexByte(whole, ',')])
	f.Add([]byte(`{"formatVersion": 1, "scopes": {"a": {"snapshot": {}}}`))
	f.Add([]byte(`{"formatVersion": 1, "scopes": {"a": {"resourceVersion": "-1"}}`))
	f.Add([]byte(`{"formatVersion": 1, "scopes": []`))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, data := range [][]byte{
			data, fmt.Appendf(bytes.Clone(data), ",\n  \"sha256\": \"%x\"\n}\n", sha256.Sum256(data)),
		} {
			d, err := checkpoint.Decode(data)
			if err != nil {
				if !errors.Is(err, checkpoint.ErrDamaged) && !errors.Is(err, checkpoint.ErrFormat) {
					t.Errorf("%v is no error of the package", err)
				}
				continue
			}
			again, err := checkpoint.Decode(encode(t, d))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(d, again, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// Callers distinguish errors by their kinds, and by their causes.
func TestErrorHasItsCause(t *testing.T) {
	alone := &checkpoint.Error{Kind: checkpoint.ErrDamaged}
	caused := &checkpoint.Error{Kind: checkpoint.ErrDamaged, Err: io.ErrUnexpectedEOF}
	if !errors.Is(alone, checkpoint.ErrDamaged) || len(alone.Unwrap()) != 1 {
		t.Errorf("without a cause: %v", alone.Unwrap())
	}
	if !errors.Is(caused, checkpoint.ErrDamaged) || !errors.Is(caused, io.ErrUnexpectedEOF) {
		t.Errorf("with a cause: %v", caused.Unwrap())
	}
}
