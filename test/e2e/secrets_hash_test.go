package e2e_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/oracle/selection"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestRedactionHash checks that a value keeps its hash, also after a restart, and that another
// value has another hash. In two objects the same value has two hashes, unless acrossObjects is
// set. A new key gives a new hash, after a stream event that reports the change.
func TestRedactionHash(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.SharedPlane(t)
	for _, across := range []bool{false, true} {
		t.Run(fmt.Sprint("acrossObjects ", across), func(t *testing.T) {
			t.Parallel()
			namespace := fmt.Sprint("hash-", across)
			p.NewNamespace(t, namespace)
			key := filepath.Join(t.TempDir(), "key")
			write := func() {
				if err := os.WriteFile(key, []byte(rand.Text()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write()
			h := &hashes{Plane: p, all: world.Collection("secrets", namespace), values: make(map[string]string)}
			b := world.StartBus(t)
			a := world.StartAgent(t, p, world.AgentConfig{
				Bus: b, Watch: "  - {resources: [secrets], namespaces: [" + namespace + "]}",
				Extra: fmt.Sprintf("redaction: {mode: hash, keyFile: %q, acrossObjects: %t}", key, across),
			})
			r := p.Reader()
			r.Content = h.content
			h.stream = world.ReadStream(t, b, r)
			h.stream.Completed(t, "secrets")

			password := world.SecretValue()
			one, two := h.put(t, "one", password, "1"), h.put(t, "two", password, "1")
			if (one == two) != across {
				oracle.Fail(t, "hashes of one value in two objects: %s and %s", one, two)
			}
			if again := h.put(t, "one", password, "2"); again != one {
				oracle.Fail(t, "the hash of a value that has not changed is %s, and was %s", again, one)
			}
			other := h.put(t, "one", world.SecretValue(), "2")
			if other == one {
				oracle.Fail(t, "the hash of another value is %s again", other)
			}
			if back := h.put(t, "one", password, "3"); back != one {
				oracle.Fail(t, "the hash of the value that there was before is %s, and was %s", back, one)
			}
			// The same key.
			if err := a.Stop(time.Minute); err != nil {
				t.Error(err)
			}
			n := len(h.stream.All())
			a.Again(t)
			if again := h.put(t, "one", password, "4"); again != one {
				oracle.Fail(t, "after a restart, the hash of the value is %s, and was %s", again, one)
			}
			for _, rec := range h.stream.All()[n:] {
				if rec.Stream == oracle.Gap {
					oracle.Fail(t, "%s (%s), where nothing has changed", rec.ID, rec.Reason)
				}
			}
			// Another key.
			if err := a.Stop(time.Minute); err != nil {
				t.Error(err)
			}
			n = len(h.stream.All())
			write()
			a.Again(t)
			now := h.put(t, "one", password, "5")
			if now == one || keyID(now) == keyID(one) {
				oracle.Fail(t, "under another key, the hash of the value is %s, and was %s", now, one)
			}
			change, first := -1, -1
			wait.Eventually(t, time.Minute, func() error { // The value is known before its record is added.
				records := h.stream.All()[n:]
				change = slices.IndexFunc(records, func(rec oracle.Record) bool {
					return rec.Stream == oracle.Gap && rec.Reason == oracle.ContentChanged
				})
				first = slices.IndexFunc(records, func(rec oracle.Record) bool { return rec.Op != "" })
				if first < 0 {
					return errors.New("no record of an object since the restart")
				}
				return nil
			})
			if change < 0 || first < change {
				oracle.Fail(t, "the change of the key is record %d after the restart, the first object's is %d", change,
					first)
			}
			for _, rec := range h.stream.All() {
				for _, problem := range rec.Problems {
					oracle.Fail(t, "%s: %s", rec.ID, problem)
				}
				if rec.Stream == oracle.Gap && rec.Reason != oracle.ContentChanged {
					oracle.Fail(t, "%s (%s)", rec.ID, rec.Reason)
				}
			}
		})
	}
}

// hashes extracts the hashes of passwords from the events of Secrets.
type hashes struct {
	*world.Plane
	stream *world.Stream
	all    string

	mu     sync.Mutex
	values map[string]string // By name and resourceVersion.
}

// hashed matches a hash in place of a value.
var hashed = regexp.MustCompile(`^hmac-sha256:([0-9a-f]{8}):[A-Za-z0-9_-]{22}$`)

func keyID(value string) string { return hashed.FindStringSubmatch(value)[1] }

func (h *hashes) content(_ oracle.ObjectKey, object map[string]any) (oracle.Digest, []string) {
	var wrong []string
	data, _ := object["data"].(selection.Tree)
	for name, value := range data {
		if text, ok := value.(string); !ok || !hashed.MatchString(text) {
			wrong = append(wrong, fmt.Sprintf("has data.%s %.40v, which is no hash", name, value))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.values[selection.Text(object, "metadata", "name")+" "+
		selection.Text(object, "metadata", "resourceVersion")] = selection.Text(object, "data", "password")
	return selection.Exact(object), wrong
}

// put writes a Secret and returns the hash of its password in the event.
func (h *hashes) put(t *testing.T, name, password, label string) string {
	t.Helper()
	secret := obj{
		"apiVersion": "v1", "kind": "Secret", "metadata": world.Meta(name, "labels", obj{
			"step": label,
		}), "stringData": obj{"password": password},
	}
	raw, err := h.API.Apply(t.Context(), h.all+"/"+name, "hash", secret)
	if err != nil {
		t.Fatal(err)
	}
	v, err := oracle.ReadVersion("secrets", 0, raw)
	if err != nil {
		t.Fatal(err)
	}
	var value string
	wait.Eventually(t, time.Minute, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		value = h.values[name+" "+oracle.FormatRev(v.Rev)]
		if value == "" {
			return fmt.Errorf("no record of %s at %d", v.Key, v.Rev)
		}
		return nil
	})
	if !hashed.MatchString(value) {
		oracle.Fail(t, "%s has the password %.40q", name, value)
		t.FailNow()
	}
	return value
}
