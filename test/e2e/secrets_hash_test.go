package e2e_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestRedactionHash: a hash tells that a value is the same, also behind a restart, or is not. In two objects the same value has
// two hashes, unless it is asked for. Behind a change of the key it is another one, and a stream event says so first.
func TestRedactionHash(t *testing.T) {
	slow(t)
	t.Parallel()
	p := sharedPlane(t)
	for _, across := range []bool{false, true} {
		t.Run(fmt.Sprint("acrossObjects ", across), func(t *testing.T) {
			t.Parallel()
			namespace := fmt.Sprint("hash-", across)
			p.newNamespace(t, namespace)
			key := filepath.Join(t.TempDir(), "key")
			write := func() {
				if err := os.WriteFile(key, []byte(rand.Text()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write()
			h := &hashes{plane: p, all: collection("secrets", namespace), values: make(map[string]string)}
			b := startBus(t)
			a := startAgent(t, p, agentConfig{
				Bus: b, Watch: "  - {resources: [secrets], namespaces: [" + namespace + "]}",
				Extra: fmt.Sprintf("redaction: {mode: hash, keyFile: %q, acrossObjects: %t}", key, across),
			})
			r := p.reader()
			r.Content = h.content
			h.stream = readStream(t, b, r)
			h.stream.completed(t, "secrets")

			password := secretValue()
			one, two := h.put(t, "one", password, "1"), h.put(t, "two", password, "1")
			if (one == two) != across {
				t.Errorf("hashes of one value in two objects: %s and %s", one, two)
			}
			if again := h.put(t, "one", password, "2"); again != one {
				t.Errorf("the hash of a value that has not changed is %s, and was %s", again, one)
			}
			other := h.put(t, "one", secretValue(), "2")
			if other == one {
				t.Errorf("the hash of another value is %s again", other)
			}
			if back := h.put(t, "one", password, "3"); back != one {
				t.Errorf("the hash of the value that there was before is %s, and was %s", back, one)
			}
			// The same key.
			if err := a.stop(time.Minute); err != nil {
				t.Error(err)
			}
			n := len(h.stream.all())
			a.again(t)
			if again := h.put(t, "one", password, "4"); again != one {
				t.Errorf("behind a restart, the hash of the value is %s, and was %s", again, one)
			}
			for _, rec := range h.stream.all()[n:] {
				if rec.Stream == gap {
					t.Errorf("%s (%s), where nothing has changed", rec.ID, rec.Reason)
				}
			}
			// Another.
			if err := a.stop(time.Minute); err != nil {
				t.Error(err)
			}
			n = len(h.stream.all())
			write()
			a.again(t)
			now := h.put(t, "one", password, "5")
			if now == one || keyID(now) == keyID(one) {
				t.Errorf("under another key, the hash of the value is %s, and was %s", now, one)
			}
			records := h.stream.all()[n:]
			change := slices.IndexFunc(records, func(rec record) bool { return rec.Stream == gap && rec.Reason == contentChanged })
			first := slices.IndexFunc(records, func(rec record) bool { return rec.Op != "" })
			if change < 0 || first < change {
				t.Errorf("the change of the key is record %d behind the restart, the first object's is %d", change, first)
			}
			for _, rec := range h.stream.all() {
				for _, problem := range rec.Problems {
					t.Errorf("%s: %s", rec.ID, problem)
				}
				if rec.Stream == gap && rec.Reason != contentChanged {
					t.Errorf("%s (%s)", rec.ID, rec.Reason)
				}
			}
		})
	}
}

// hashes takes from Secrets' events what stands for their password.
type hashes struct {
	*plane
	stream *stream
	all    string

	mu     sync.Mutex
	values map[string]string // By name and resourceVersion.
}

// hashed is how a value is written that was replaced.
var hashed = regexp.MustCompile(`^hmac-sha256:([0-9a-f]{8}):[A-Za-z0-9_-]{22}$`)

func keyID(value string) string { return hashed.FindStringSubmatch(value)[1] }

func (h *hashes) content(_ objectKey, object map[string]any) (digest, []string) {
	var wrong []string
	data, _ := object["data"].(tree)
	for name, value := range data {
		if text, ok := value.(string); !ok || !hashed.MatchString(text) {
			wrong = append(wrong, fmt.Sprintf("has data.%s %.40v, which is no hash", name, value))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.values[text(object, "metadata", "name")+" "+text(object, "metadata", "resourceVersion")] = text(object, "data", "password")
	return exact(object), wrong
}

// put writes a Secret and returns what the event has in place of its password.
func (h *hashes) put(t *testing.T, name, password, label string) string {
	t.Helper()
	secret := obj{
		"apiVersion": "v1", "kind": "Secret", "metadata": meta(name, "labels", obj{"step": label}), "stringData": obj{"password": password},
	}
	raw, err := h.api.apply(t.Context(), h.all+"/"+name, "hash", secret)
	if err != nil {
		t.Fatal(err)
	}
	v, err := readVersion("secrets", 0, raw)
	if err != nil {
		t.Fatal(err)
	}
	var value string
	eventually(t, time.Minute, func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		value = h.values[name+" "+formatRev(v.Rev)]
		if value == "" {
			return fmt.Errorf("no record of %s at %d", v.Key, v.Rev)
		}
		return nil
	})
	if !hashed.MatchString(value) {
		t.Fatalf("%s has the password %.40q", name, value)
	}
	return value
}
