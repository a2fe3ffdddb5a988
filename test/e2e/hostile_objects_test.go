package e2e_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// hostile is an agent whose cluster and stream others may write to.
type hostile struct {
	*world.Plane
	*world.Agent
	conn      *nats.Conn
	received  *nats.Subscription // all records of objects
	namespace string             // of the attacker; the victim's has the suffix -victim
}

func startHostile(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{Plane: world.SharedPlane(t), namespace: "hostile-objects"}
	h.NewNamespace(t, h.namespace)
	h.NewNamespace(t, h.victim())
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(rand.Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	bus := world.StartBus(t)
	h.Agent = world.StartAgent(t, h.Plane, world.AgentConfig{
		Bus: bus,
		Watch: fmt.Sprintf("  - {resources: [secrets, configmaps, %s], namespaces: [%s, %s]}", oracle.Widgets,
			h.namespace, h.victim()),
		Extra: fmt.Sprintf("redaction: {mode: hash, keyFile: %q, acrossObjects: true}", key),
	})
	h.Ready(t)
	var err error
	h.conn, err = nats.Connect(bus.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.conn.Close)
	h.received, err = h.conn.SubscribeSync("kubecdc.*.object.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.received.SetPendingLimits(-1, -1); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *hostile) victim() string { return h.namespace + "-victim" }

// put writes an object, and returns its resourceVersion.
func (h *hostile) put(t *testing.T, resource, namespace, name string, o obj) string {
	t.Helper()
	o["metadata"] = world.Meta(name)
	raw, err := h.API.Apply(t.Context(), world.Collection(resource, namespace)+"/"+name, "hostile", o)
	if err != nil {
		t.Fatal(err)
	}
	var written struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &written); err != nil {
		t.Fatal(err)
	}
	return written.Metadata.ResourceVersion
}

// event returns the record of a version, and the object in it.
func (h *hostile) event(t *testing.T, name, rv string, limit time.Duration) (*nats.Msg, obj) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		m, err := h.received.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatalf("%s at %s is not on the bus after %v: %v", name, rv, limit, err)
		}
		var e struct {
			Name string `json:"name"`
			RV   string `json:"resourceversion"`
			Type string `json:"type"`
			Data struct {
				After obj `json:"after"`
			} `json:"data"`
		}
		if json.Unmarshal(m.Data, &e) == nil && e.Name == name && e.RV == rv && e.Type != "" {
			return m, e.Data.After
		}
	}
}

// TestHostileObjects has an attacker who may create objects in one namespace and read and write the
// stream.
func TestHostileObjects(t *testing.T) {
	slow(t)
	t.Parallel()
	h := startHostile(t)

	// With acrossObjects, an attacker puts many guesses of another namespace's value into one
	// Secret.
	t.Run("guesses of a value", func(t *testing.T) {
		secret := func(data obj) obj { return obj{"apiVersion": "v1", "kind": "Secret", "stringData": data} }
		guesses := obj{}
		for n := range 2000 {
			guesses[fmt.Sprint("guess-", n)] = fmt.Sprint("password-", n)
		}
		rv := h.put(t, "secrets", h.victim(), "victim", secret(obj{"password": "password-1234"}))
		_, victim := h.event(t, "victim", rv, time.Minute)
		rv = h.put(t, "secrets", h.namespace, "guesses", secret(guesses))
		_, attack := h.event(t, "guesses", rv, time.Minute)
		want := victim["data"].(obj)["password"]
		if len(attack["data"].(obj)) != len(guesses) {
			t.Fatalf("%d of %d guesses are in the event", len(attack["data"].(obj)), len(guesses))
		}
		for name, mac := range attack["data"].(obj) {
			if mac == want {
				oracle.Fail(t, "%s has the hash of the victim's password", name)
			}
		}
		// The same attack works within the namespace, as documented: so the test can find equal
		// values.
		rv = h.put(t, "secrets", h.victim(), "guess", secret(obj{"password": "password-1234"}))
		if _, same := h.event(t, "guess", rv, time.Minute); same["data"].(obj)["password"] != want {
			t.Error("equal values of one namespace have different hashes: the test shows nothing")
		}
	})

	// A deep object that changes on every level costs neither the agent nor other objects more than
	// a moment.
	t.Run("deep objects", func(t *testing.T) {
		deep := func(levels int, leaf string) any {
			var v any = leaf
			for n := range levels {
				v = obj{"a": v, "b": leaf, "c": strings.Repeat("x", n%7)}
			}
			return v
		}
		cm := func(step int) obj {
			return obj{"apiVersion": "v1", "kind": "ConfigMap", "data": obj{"step": fmt.Sprint(step)}}
		}
		all := world.Collection(oracle.Widgets, h.namespace)
		for step := range 3 {
			for _, levels := range []int{400, 600} { // an event has at most 500
				// Server-side apply of such an object takes the API server a minute.
				name := fmt.Sprint("deep-", levels)
				o := obj{
					"apiVersion": oracle.WidgetsGroup + "/v1", "kind": "Widget", "metadata": world.Meta(name),
					"spec": obj{"tree": deep(levels, fmt.Sprint(step))},
				}
				write := func() ([]byte, error) { return h.API.MergePatch(t.Context(), all+"/"+name, o) }
				if step == 0 {
					write = func() ([]byte, error) { return h.API.Create(t.Context(), all, o) }
				}
				_, err := write()
				if err != nil {
					t.Fatal(err)
				}
			}
			rv := h.put(t, "configmaps", h.victim(), "beside", cm(step))
			h.event(t, "beside", rv, 10*time.Second)
		}
		h.Ready(t)
	})

	// The stream drops a message whose id it has seen. An attacker sends the ids of the next
	// changes in advance.
	t.Run("forged ids", func(t *testing.T) {
		cm := func(step string) obj { return obj{"apiVersion": "v1", "kind": "ConfigMap", "data": obj{"step": step}} }
		rv := h.put(t, "configmaps", h.victim(), "target", cm("one"))
		m, _ := h.event(t, "target", rv, time.Minute)
		var revision int
		if _, err := fmt.Sscan(rv, &revision); err != nil {
			t.Fatal(err)
		}
		var e struct{ Source, ID string }
		if err := json.Unmarshal(m.Data, &e); err != nil {
			t.Fatal(err)
		}
		messageID := func(id string) string {
			sum := sha256.Sum256([]byte(e.Source + "\n" + id))
			return base64.RawURLEncoding.EncodeToString(sum[:])[:22]
		}
		if got := m.Header.Get(nats.MsgIdHdr); got != messageID(e.ID) || !strings.Contains(e.ID, rv) {
			t.Fatalf("the message has the id %s: the test shows nothing", got)
		}
		for n := range 500 {
			forged := nats.NewMsg(m.Subject)
			forged.Data = []byte("{}")
			forged.Header.Set(nats.MsgIdHdr, messageID(strings.Replace(e.ID, rv, fmt.Sprint(revision+1+n), 1)))
			if err := h.conn.PublishMsg(forged); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.conn.Flush(); err != nil {
			t.Fatal(err)
		}
		rv = h.put(t, "configmaps", h.victim(), "target", cm("two"))
		if _, after := h.event(t, "target", rv, time.Minute); after["data"].(obj)["step"] != "two" {
			oracle.Fail(t, "the change is on the bus as %v", after)
		}
		wait.Eventually(t, 10*time.Second, func() error {
			n, err := h.Metric(t.Context(), "kubecdc_publish_retries_total", `"false_duplicate"`)
			if err == nil && n == 0 {
				err = errors.New("no id was taken: the attack missed, the test shows nothing")
			}
			return err
		})
	})
}
