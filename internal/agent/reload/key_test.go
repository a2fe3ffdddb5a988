package reload

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestReloadFollowsTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := filepath.Join(t.TempDir(), "key")
		write := func(content string) {
			t.Helper()
			if err := os.WriteFile(key, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := newReloading(t, reloadBase)
		hashed := reloadBase + "redaction: {keyFile: " + key + "}\n"
		r.swap(t, hashed) // its key file does not exist yet
		r.pass()
		r.expect(t, [4]float64{0, 1}, false, "redaction.keyFile: open "+key+": no such file")
		write("short\n")
		r.pass()
		r.expect(t, [4]float64{0, 2}, false, "redaction.keyFile: "+key+": key has 5 bytes")
		write(hashKey + "\n")
		r.pass()
		r.expect(t, [4]float64{1, 2}, true)
		id := r.keyID(t)
		write(hashKey) // the same key
		r.pass()
		r.expect(t, [4]float64{1, 2, 0}, true)
		write(hashKey + "2\n")
		r.pass()
		r.expect(t, [4]float64{2, 2, 0}, true)
		if now := r.keyID(t); now == id || !strings.Contains(r.log.String(), `"key_id":"`+now+`"`) ||
			!strings.Contains(r.log.String(), "redaction.keyFile (its content)") {
			t.Errorf("key %s, before %s:\n%s", now, id, &r.log)
		}
		if err := os.Remove(key); err != nil {
			t.Fatal(err)
		}
		r.pass()
		r.expect(t, [4]float64{2, 3, 0}, false, "no such file")
		write(hashKey + "2")
		r.pass()
		r.expect(t, [4]float64{2, 3, 1}, true)
	})
}

// A key that is rotated while the previous selection still waits for the bus is applied after that
// selection.
func TestReloadTakesAKeyThatChangesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := filepath.Join(t.TempDir(), "key")
		write := func(content string) {
			t.Helper()
			if err := os.WriteFile(key, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(hashKey)
		r := newReloading(t, reloadBase+"redaction: {keyFile: "+key+"}\n")
		r.holds = make(chan struct{})
		write(hashKey + "2")
		r.pass()
		if s := r.Status(); s.Taking == nil || s.Refused != nil ||
			!strings.Contains(r.Detail(), "is being applied for ") {
			t.Fatalf("it is not being taken: %+v", s)
		}
		write(hashKey + "3")
		r.pass()
		close(r.holds)
		r.pass()
		r.expect(t, [4]float64{2}, true)
		if got := string(r.taken[len(r.taken)-1].Key); got != hashKey+"3" {
			t.Errorf("the key in force is not the one in the file")
		}
	})
}

// If the agent is stopped while the bus is away, it does not wait for a selection in progress, nor
// report it as refused.
func TestReloadEndsWhileItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t, reloadBase)
		r.holds = make(chan struct{}) // until the end, which newReloading waits for
		r.swap(t, reloadBase+"watch: [{resources: [pods]}]\n")
		r.pass()
		if r.Status().Taking == nil {
			t.Error("it is not being taken")
		}
		t.Cleanup(func() { r.expect(t, [4]float64{}, true) })
		<-time.After(2 * slowAfter)
		synctest.Wait()
		if n := strings.Count(r.log.String(), "the changed configuration is not in force yet"); n != 1 {
			t.Errorf("said %d times that it takes long:\n%s", n, &r.log)
		}
	})
}

// A key file that is newly configured is not applied half written, like the configuration file
// itself.
func TestReloadWaitsUntilANewKeyIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := filepath.Join(t.TempDir(), "key")
		r := newReloading(t, reloadBase)
		r.swap(t, reloadBase+"redaction: {keyFile: "+key+"}\n")
		for n := len(hashKey) - 4; n <= len(hashKey); n++ {
			if err := os.WriteFile(key, []byte(hashKey[:n]), 0o600); err != nil {
				t.Fatal(err)
			}
			<-time.After(interval)
			synctest.Wait()
		}
		r.pass()
		r.expect(t, [4]float64{1}, true)
		if len(r.taken) != 1 || string(r.taken[0].Key) != hashKey {
			t.Errorf("taken %d times, with part of the key", len(r.taken))
		}
	})
}

// SIGHUP is always answered, even if nothing is new. If a change needs a restart, the advice is to
// restart, not to correct the file.
func TestReloadAnswersWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReloading(t, reloadBase)
		r.swap(t, reloadBase+"queue: {events: 5000}\n")
		r.pass()
		if text := r.log.String(); strings.Contains(text, "config check") ||
			!strings.Contains(text, `"advice":"restart the agent`) {
			t.Errorf("the advice is wrong:\n%s", text)
		}
		r.log.Reset()
		r.pass()
		if r.log.Len() > 0 {
			t.Errorf("said again:\n%s", &r.log)
		}
		r.hups <- syscall.SIGHUP
		r.pass()
		r.expect(t, [4]float64{0, 2}, false, "queue.events: cannot be changed while the agent runs")
	})
}

func (r *reloading) keyID(t *testing.T) string {
	t.Helper()
	m, err := r.taken[len(r.taken)-1].MAC()
	if err != nil || m == nil {
		t.Fatalf("no key: %v", err)
	}
	return m.ID()
}
