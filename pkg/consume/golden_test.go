package consume_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/pkg/consume"
)

// goldenDir holds one event of each kind as the agent encodes it, in both content modes.
const goldenDir = "../../internal/encode/testdata/golden"

// goldenRecord is a golden event as a message of NATS.
type goldenRecord struct {
	name   string
	header map[string][]string
	body   []byte
}

// goldens are the records of one content mode.
func goldens(tb testing.TB, mode string) []goldenRecord {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(goldenDir, "*."+mode+".txt"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no golden events: %v", err)
	}
	var out []goldenRecord
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		head, doc, ok := bytes.Cut(raw, []byte("\n\n"))
		if !ok {
			tb.Fatalf("%s: no empty line", f)
		}
		r := goldenRecord{name: strings.TrimSuffix(filepath.Base(f), "."+mode+".txt"), header: map[string][]string{}}
		for line := range strings.SplitSeq(string(head), "\n") {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "content type":
				r.header["content-type"] = []string{value}
			case "key":
			default:
				r.header["ce-"+name] = []string{percentEncode(value)}
			}
		}
		var b bytes.Buffer
		if err := json.Compact(&b, doc); err != nil {
			tb.Fatal(err)
		}
		r.body = b.Bytes()
		out = append(out, r)
	}
	return out
}

// percentEncode is what the CloudEvents NATS binding 1.0.3 asks of values of headers (section 3.1.3.2).
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

func parse(tb testing.TB, record string) *consume.Event {
	tb.Helper()
	e, err := consume.Parse([]byte(record))
	if err != nil {
		tb.Fatalf("%v in %s", err, record)
	}
	return e
}
