package object_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubecdc/kubecdc/internal/object"
)

// samples are the objects in testdata, as an API server writes them.
var samples = []string{"pod", "deployment", "secret", "configmap", "crd", "event"}

const lastApplied = `metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`

func sample(tb testing.TB, name string) []byte {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		tb.Fatal(err)
	}
	return bytes.TrimSpace(raw)
}

func cutter(tb testing.TB, paths ...string) *object.Cutter {
	tb.Helper()
	c, err := object.NewCutter(paths)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// stripped cuts what is cut by default.
func stripped(tb testing.TB) *object.Cutter {
	return cutter(tb, "metadata.managedFields", lastApplied)
}

func stripSample(tb testing.TB, name string) []byte {
	tb.Helper()
	out, _, err := object.NewScanner(stripped(tb)).Scan(nil, sample(tb, name), "", "")
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func listPage(item []byte, n int) []byte {
	var page bytes.Buffer
	page.WriteString(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"48300"},"items":[`)
	for i := range n {
		if i > 0 {
			page.WriteByte(',')
		}
		page.Write(item)
	}
	page.WriteString("]}\n")
	return page.Bytes()
}
