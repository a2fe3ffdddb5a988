package config_test

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// setVariables sets the variables that the files of testdata use. KUBECDC_TEST_UNSET stays unset.
func setVariables(t *testing.T) {
	t.Helper()
	t.Setenv("KUBECDC_TEST_CLUSTER", "prod-eu")
	t.Setenv("KUBECDC_TEST_EVENTS", "512")
	t.Setenv("KUBECDC_TEST_PATCH", "false")
	t.Setenv("KUBECDC_TEST_TRICKY", `"x", y: [${KUBECDC_TEST_EVENTS}] # z`)
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func files(t *testing.T, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %v, %d files", pattern, err, len(names))
	}
	return names
}

// TestGood compares the meaning of each good file, written out in full, with its golden file.
func TestGood(t *testing.T) {
	setVariables(t)
	for _, name := range files(t, "testdata/good/*.yaml") {
		t.Run(filepath.Base(name), func(t *testing.T) {
			c, err := config.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			text, err := yaml.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(name, ".yaml")+".golden", string(text))

			again, err := config.Parse([]byte(strings.ReplaceAll(string(text), "$", "$$")), "again")
			if err != nil {
				t.Fatalf("what was written is not read: %v", err)
			}
			if diff := cmp.Diff(c, again); diff != "" {
				t.Errorf("written and read again (-first +again):\n%s", diff)
			}
		})
	}
}

// TestBad compares the errors of each bad file with its golden file.
func TestBad(t *testing.T) {
	setVariables(t)
	for _, name := range files(t, "testdata/bad/*.yaml") {
		t.Run(filepath.Base(name), func(t *testing.T) {
			c, err := config.Load(name)
			if err == nil {
				t.Fatal("no error")
			}
			if c != nil {
				t.Error("a configuration beside the error")
			}
			var errs yamldoc.Errors
			if !errors.As(err, &errs) {
				t.Errorf("%T is not yamldoc.Errors", err)
			}
			golden(t, strings.TrimSuffix(name, ".yaml")+".golden", err.Error()+"\n")
		})
	}
}

func TestLoadNoSuchFile(t *testing.T) {
	_, err := config.Load(filepath.Join(t.TempDir(), "none.yaml"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want os.ErrNotExist", err)
	}
}

// At a terminal, the path and the mark are styled. The rest of the error does not change.
func TestStyled(t *testing.T) {
	_, err := config.Parse([]byte("apiVersion: kubecdc.dev/v1\nqueue: {events: 0}\n"), "f.yaml")
	var one *yamldoc.Error
	if !errors.As(err, &one) {
		t.Fatalf("%T has no *yamldoc.Error", err)
	}
	got := one.Styled(func(s string) string { return "<" + s + ">" }, func(s string) string { return "(" + s + ")" })
	want := "f.yaml:2:17: <queue.events>: must be between 1 and 16777216, got 0\n" +
		"     2 | queue: {events: 0}\n" +
		"       |                 (^)"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if plain := strings.NewReplacer("<", "", ">", "", "(", "", ")", "").Replace(got); plain != one.Error() {
		t.Errorf("got %q, without style %q", plain, one.Error())
	}
}

func TestErrorsAs(t *testing.T) {
	_, err := config.Parse([]byte("apiVersion: kubecdc.dev/v1\nqueue: {events: 0}\n"), "f.yaml")
	var one *yamldoc.Error
	if !errors.As(err, &one) {
		t.Fatalf("%T has no *yamldoc.Error", err)
	}
	if one.File != "f.yaml" || one.Line != 2 || one.Column != 17 || one.Path != "queue.events" ||
		one.Message != "must be between 1 and 16777216, got 0" {
		t.Errorf("got %+v", *one)
	}
}

func TestTooLarge(t *testing.T) {
	_, err := config.Parse([]byte("# "+strings.Repeat("x", 1<<20)), "f.yaml")
	if err == nil || err.Error() != "f.yaml: must not be larger than 256KiB" {
		t.Errorf("got %v", err)
	}
}

// A check of 20,000 unknown keys took minutes. Each error masked the whole line that it shows, and
// searched all keys of the document for similar ones.
func TestManyErrors(t *testing.T) {
	const (
		errors = 4000
		shown  = 100
		most   = 300 << 20
	)
	var lines, flow strings.Builder
	for i := range errors {
		fmt.Fprintf(&lines, "x%d: 1\n", i)
		fmt.Fprintf(&flow, ",x%d: 1", i)
	}
	for name, text := range map[string]string{
		"lines": "apiVersion: kubecdc.dev/v1\n" + lines.String(),
		"flow":  "{apiVersion: kubecdc.dev/v1" + flow.String() + "}",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := config.Parse([]byte(text), "f.yaml")
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		says := err.Error()
		runtime.ReadMemStats(&after)
		if got := strings.Count(says, "unknown field"); got != shown {
			t.Errorf("%s: %d errors are shown, want %d", name, got, shown)
		}
		if want := "f.yaml: and 3900 more errors"; !strings.Contains(says, want) {
			t.Errorf("%s: %q is not in the errors", name, want)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > most {
			t.Errorf("%s: %d MB were allocated", name, got>>20)
		}
	}
}

// TestPasswordNotShown: a password is refused without being repeated in the message or in the
// excerpt. It may be in a URL, in a malformed URL, or under its own key.
func TestPasswordNotShown(t *testing.T) {
	for _, bus := range []string{
		`{nats: {url: "nats://kubecdc:hunter2@nats:4222"}}`,
		`{nats: {url: "http://kubecdc:hunter2@nats:4222", strem: {}}}`,
		`{nats: {url: "nats://kubecdc:hunter2@nats:4222,nats://hunter2@b:1"}, stdout: {}}`,
		`{nats: {url: "nats://kubecdc:hunter2 @nats:4222"}}`,
		`{nats: "nats://kubecdc:hunter2@nats:4222"}`,
		`{nats: "kubecdc:hunter2@nats:4222"}`,
		`{nats: {url: "kubecdc:hunter2@nats:4222"}}`,
		`{nats: {url: kubecdc:hunter2@nats:4222, strem: {}}}`,
		`{nats: {url: ["kubecdc:hunter2/@nats:4222"]}}`,
		`{nats: {stream: {name: "a", maxAge: "kubecdc:hunter2@nats:4222"}}}`,
		`{nats: {stream: {maxBytes: "nats://kubecdc:hunter2@nats:4222"}}}`,
		`{nats: {url: {"nats://kubecdc:hunter2@nats:4222": 1}}}`,
		`{"nats://kubecdc:hunter2@nats:4222": 1}`,
		`{nats: {url: "kubecdc:hunter2 word@nats:4222"}}`,
		`{nats: {url: "kubecdc : [hunter2]@nats:4222"}}`,
		`{nats: {url: "kubecdc:it's,hunter2@nats:4222"}}`,
		`{nats: {url: "hunter2@nats:4222"}}`,
		`{nats: {url: hunter2@nats}}`,
		`{nats: {url: "nats://kubecdc:hunter2"}}`,
		`{nats: {url: "nats://kubecdc:3hunter2%40nats:4222"}}`,
		`{nats: {url: "kubecdc:hunter2://x@nats"}}`,
		`{nats: {url: "nats://nats:4222?token=hunter2"}}`,
		`{nats: {url: "nats://nats:4222", user: kubecdc, password: hunter2}}`,
		`{nats: {auth: {user: kubecdc, "password": "hunter2, too"}}}`,
		`{nats: {token: hunter2}}`,
		`{nats: {auth: {user: kubecdc, passwordFile: hunter2}}}`,
		`{nats: {auth: {tokenFile: "hunter2, too"}}}`,
		`{nats: {auth: {nkeySeedFile: ["hunter2"]}}}`,
		`{nats: {auth: {credsFile: {hunter2: 1}}}}`,
		`{nats: {tls: {keyFile: hunter2}}}`,
		`{kafka: {brokers: ["kubecdc:hunter2@kafka:9092"]}}`,
		`{kafka: {brokers: ["kafka://kubecdc:hunter2@kafka:9092"]}}`,
		`{kafka: {brokers: "kubecdc:hunter2@kafka:9092"}}`,
		`{kafka: {sasl: {mechanism: PLAIN, user: kubecdc, password: hunter2}}}`,
		`{kafka: {sasl: {mechanism: PLAIN, user: kubecdc, passwordFile: hunter2}}}`,
		`{kafka: {sasl: {mechanism: OAUTHBEARER, tokenFile: hunter2}}}`,
		`{kafka: {sasl: {mechanism: OAUTHBEARER, oauth: {clientSecretFile: hunter2, clientSecret: hunter2}}}}`,
		`{kafka: {sasl: {mechanism: OAUTHBEARER, oauth: {tokenURL: "https://kubecdc:hunter2@login/"}}}}`,
		`{http: {url: "https://kubecdc:hunter2@events/"}}`,
		`{http: {url: "ftp://events/?key=hunter2"}}`,
		`{http: {url: "https://events/#token=hunter2"}}`,
		`{http: {url: "https://events/", tokenFile: hunter2}}`,
		`{http: {url: "https://events/", headersFile: "Authorization: Bearer hunter2"}}`,
		`{http: {url: "https://events/", headers: {Authorization: "Bearer hunter2"}}}`,
		`{http: {url: "https://events/", headers: {X-API-Key: hunter2}}}`,
		`{nats: {}}` + "\nrelays: [{name: a, to: {slack: {urlFile: \"https://hooks.slack.com/services/hunter2\"}}}]",
		`{nats: {}}` + "\nrelays: [{name: a, to: {slack: {tokenFile: xoxb-hunter2, channel: c}}}]",
		`{nats: {}}` + "\nrelays: [{name: a, to: {slack: {token: xoxb-hunter2}}}]",
		`{nats: {}}` + "\nredaction: {keyFile: hunter2}",
		`{nats: {}}` + "\nredaction: {mode: hash, keyFile: [hunter2], key: hunter2, secret: hunter2}",
		`{nats: {}}` + "\nclaimCheck: {http: {url: \"https://kubecdc:hunter2@files/\"}}",
		`{nats: {}}` + "\ndeadLetter: {url: \"https://kubecdc:hunter2@files/\"}",
	} {
		_, err := config.Parse([]byte("apiVersion: kubecdc.dev/v1\nbus: "+bus+"\n"), "f.yaml")
		if err == nil {
			t.Errorf("%s: no error", bus)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", bus, err)
		}
	}
}

func TestDefaultIsValid(t *testing.T) {
	if err := config.Default().Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateZero(t *testing.T) {
	err := (&config.Config{}).Validate()
	var errs yamldoc.Errors
	if !errors.As(err, &errs) || len(errs) < 5 || errs[0].Line != 0 {
		t.Errorf("got %v", err)
	}
}

func TestRuleTakes(t *testing.T) {
	r := config.Default().Watch[0]
	for _, tt := range []struct {
		group, version, resource string
		want                     bool
	}{
		{"", "v1", "pods", true},
		{"example.com", "v1", "widgets", true},
		{"", "v1", "events", false},
		{"events.k8s.io", "v1", "events", false},
		{"coordination.k8s.io", "v1", "leases", false},
		{"example.com", "v1", "leases", true},
	} {
		if got := r.Takes(tt.group, tt.version, tt.resource); got != tt.want {
			t.Errorf("Takes(%q, %q, %q) = %v", tt.group, tt.version, tt.resource, got)
		}
	}
}

func TestLogLevel(t *testing.T) {
	for level, want := range map[config.LogLevel]slog.Level{
		config.LogDebug: slog.LevelDebug, config.LogInfo: slog.LevelInfo, config.LogWarn: slog.LevelWarn,
		config.LogError: slog.LevelError, "": slog.LevelInfo,
	} {
		if got := level.Slog(); got != want {
			t.Errorf("%q: got %v, want %v", level, got, want)
		}
	}
}
