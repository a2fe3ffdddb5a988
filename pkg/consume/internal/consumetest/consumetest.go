// Package consumetest has the records that the tests of pkg/consume and of its sources share.
package consumetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/internal/object"
	"github.com/kubecdc/kubecdc/pkg/consume"
)

// goldenDir holds one event of each kind as the agent encodes it, in both content modes.
const goldenDir = "internal/encode/testdata/golden"

// Golden is a golden event as a message of NATS.
type Golden struct {
	Name   string
	Header map[string][]string
	Body   []byte
}

// Goldens returns the golden records of one content mode.
func Goldens(tb testing.TB, mode string) []Golden {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(root(tb), goldenDir, "*."+mode+".txt"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no golden events: %v", err)
	}
	var out []Golden
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		head, doc, ok := bytes.Cut(raw, []byte("\n\n"))
		if !ok {
			tb.Fatalf("%s: no empty line", f)
		}
		r := Golden{Name: strings.TrimSuffix(filepath.Base(f), "."+mode+".txt"), Header: map[string][]string{}}
		for line := range strings.SplitSeq(string(head), "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "content type":
				r.Header["content-type"] = []string{value}
			case "key":
			default:
				r.Header["ce-"+name] = []string{percentEncode(value)}
			}
		}
		var b bytes.Buffer
		if err := json.Compact(&b, doc); err != nil {
			tb.Fatal(err)
		}
		r.Body = b.Bytes()
		out = append(out, r)
	}
	return out
}

// percentEncode is what the CloudEvents NATS binding 1.0.3 asks of values of headers (section
// 3.1.3.2).
func percentEncode(s string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '%' {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// root returns the directory of the module.
func root(tb testing.TB) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			tb.Fatalf("no go.mod: %v", err)
		}
		dir = filepath.Dir(dir)
	}
}

// Pod is the record of the n-th version of a pod.
func Pod(n int) []byte {
	return fmt.Appendf(nil,
		`{"specversion":"1.0","id":"pods/1/%d","source":"/kubernetes/x","type":"dev.kubecdc.object.updated",`+
			`"apiversion":"v1","kind":"Pod","resource":"pods","namespace":"shop","name":"web-%d","uid":"1","op":"u","sequence":"%020d",`+
			`"data":{"op":"u","resourceVersion":"%d","after":{}}}`, n, n%3, n, n)
}

// PodEvent returns the record of a pod with an op, for examples.
func PodEvent(op, name, uid string, rv int, snapshot string) string {
	id := fmt.Sprintf("pods/%s/%d", uid, rv)
	if op == "r" {
		id += "/r/" + snapshot
	}
	return fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/kubernetes/prod","type":"dev.kubecdc.object.%s",`+
		`"subject":"/api/v1/namespaces/shop/pods/%s","apiversion":"v1","kind":"Pod","resource":"pods","namespace":"shop","name":%q,`+
		`"uid":%q,"op":%q,"resourceversion":"%d","sequence":"%020d","data":{"op":%q,"resourceVersion":"%d","snapshot":%q,"after":{}}}`,
		id, consume.Op(op).Word(), name, name, uid, op, rv, rv, op, rv, snapshot)
}

// SnapshotMarker returns the record of the start or the end of a snapshot of pods, for examples.
func SnapshotMarker(what, snapshot string) string {
	rv := map[string]int{"S1": 100, "S2": 150}[snapshot]
	return fmt.Sprintf(
		`{"specversion":"1.0","id":"pods/%s/%s","source":"/kubernetes/prod","type":"dev.kubecdc.snapshot.%s",`+
			`"apiversion":"v1","kind":"Pod","resource":"pods","scope":"pods","resourceversion":"%d","sequence":"%020d",`+
			`"data":{"snapshot":%q,"resourceVersion":"%d","objects":1}}`, snapshot, what, what, rv, rv, snapshot, rv)
}

// RecordOf12KB returns an update of a pod of 5.5 KB, encoded as the agent does.
func RecordOf12KB(tb testing.TB) []byte {
	tb.Helper()
	res := &object.Resource{
		Version:    "v1",
		Name:       "pods",
		Kind:       "Pod",
		Namespaced: true,
	}
	ref := object.NewRef(res, "shop", "web-6d4cf56db6-x7k2p", "0b6f3f0e-5d7c-4a53-9a57-0d3a8f5f1a11")
	var docs [2][]byte
	var env strings.Builder
	for i := range 26 {
		fmt.Fprintf(&env, `{"name":"SETTING_%d","valueFrom":{"configMapKeyRef":{"name":"web","key":"%d"}}},`, i, i)
	}
	for i, f := range []string{"before", "after"} {
		raw, err := os.ReadFile(
			filepath.Join(root(tb), "internal/object/patch/testdata/objects/pod-unready."+f+".json"))
		if err != nil {
			tb.Fatal(err)
		}
		var b bytes.Buffer
		if err := json.Compact(&b, raw); err != nil {
			tb.Fatal(err)
		}
		docs[i] = []byte(strings.Replace(b.String(), `"env":[`, `"env":[`+env.String(), 1))
	}
	d := &object.Delta{
		Op:              object.Updated,
		Ref:             ref,
		ResourceVersion: 48390,
		Previous:        48211,
		Observed:        1795187000123456789,
		Before:          object.New(ref, 48211, 0, nil, docs[0]),
		After:           object.New(ref, 48390, 0, nil, docs[1]),
		ChangedBy:       []byte(`[{"manager":"kubelet","operation":"Update","time":"2026-11-20T15:07:12Z"}]`),
	}
	var ev encode.Event
	o := encode.Options{
		Cluster:    "prod-eu-1",
		ClusterUID: "11e0c3a4-7d0b-4c0e-9a53-3a1f5e0f6a77",
		Before:     true,
		Patch:      true,
	}
	if err := encode.New(o).Encode(&ev, d); err != nil {
		tb.Fatal(err)
	}
	return ev.Body
}
