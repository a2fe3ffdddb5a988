package consumers_test

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	publishhttp "github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/encode"
	"github.com/kubecdc/kubecdc/test/kafka"
)

// services has, by language, the command lines of the example programs that handle each event.
var services = map[string]func(t testing.TB, name string) []string{
	"python": func(t testing.TB, name string) []string {
		return []string{
			filepath.Join(python.Dir(t), "venv", "bin", "python"), "-B", filepath.Join(examples, "python", name+".py"),
		}
	},
	"javascript": func(t testing.TB, name string) []string {
		return []string{"node", filepath.Join(nodeModules(t, filepath.Join(examples, "javascript")), name+".mjs")}
	},
	"go": func(t testing.TB, name string) []string { return []string{goProgram(t, name)} },
}

// flag is an option as programs of the language take it.
func flag(language, name string) string {
	if language == "go" {
		return "-" + name
	}
	return "--" + name
}

// handledLine is the line that the programs print for an event: time, source and id.
var handledLine = regexp.MustCompile(`^\d\d:\d\d:\d\d (\S+) (.+)$`)

// handles reads the program's output until it has printed each of the events, and fails on any
// other output. encoded: the program's SDK does not decode the percent-encoding of attributes.
func (p *process) handles(t testing.TB, want map[string]event, encoded bool) {
	t.Helper()
	for missing := maps.Clone(want); len(missing) > 0; {
		line := p.line(t)
		m := handledLine.FindStringSubmatch(line)
		if m != nil && encoded {
			e := map[string]string{"source": m[1], "id": m[2]}
			percentDecode(t, e)
			m[1], m[2] = e["source"], e["id"]
		}
		if m == nil || want[m[2]].Attributes["source"] != m[1] {
			t.Fatalf("printed %q; these are missing: %q", line, slices.Sorted(maps.Keys(missing)))
		}
		delete(missing, m[2])
	}
}

// TestKafkaServices interrupts each program between two rounds of events: it has all of the first
// round, and the program that is started after it continues with the second. Both rounds are
// compressed with zstd, as the agent's are by default.
func TestKafkaServices(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs programs that others have written")
	}
	cluster := kafka.Start(t, kafka.Options{})
	for language, argv := range services {
		for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
			t.Run(language+"/"+string(mode), func(t *testing.T) {
				t.Parallel()
				topic := fmt.Sprintf("services.%s.%s", language, mode)
				if err := cluster.CreateTopic(t.Context(), topic, 3, nil); err != nil {
					t.Fatal(err)
				}
				command := append(argv(t, "kafka"), flag(language, "brokers"), strings.Join(cluster.Brokers(), ","),
					flag(language, "group"), topic, topic)
				want := wantedByID(t)
				publishKafka(t, cluster.Brokers(), topic, mode)
				p := start(t, command)
				p.handles(t, want, false)
				p.interrupt(t)
				publishKafka(t, cluster.Brokers(), topic, mode)
				start(t, command).handles(t, want, false)
			})
		}
	}
}

// TestWebhooks lets the agent's HTTP publisher send each kind of event to each program, alone and
// in batches. An invalid event is rejected.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	for language, argv := range services {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			p := start(t, append(argv(t, "webhook"), flag(language, "listen"), "127.0.0.1:0"))
			url, ok := strings.CutPrefix(p.line(t), "listening on ")
			if !ok {
				t.Fatal("the program does not print where it listens")
			}
			for _, mode := range []encode.Mode{encode.Structured, encode.Binary} {
				publishHTTP(t, publishhttp.Config{URL: url, Batch: 1}, mode)
				p.handles(t, wantedByID(t), mode == encode.Binary && language != "python")
			}
			publishHTTP(t, publishhttp.Config{URL: url, Batch: 5}, encode.Structured)
			p.handles(t, wantedByID(t), false)

			if status := post(t, url, `{"specversion":"1.0"}`); status != 400 {
				t.Errorf("an event without id: %d, want 400", status)
			}
		})
	}
}

// post returns the status of the answer to a structured event.
func post(t testing.TB, url, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/cloudevents+json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	return answer.StatusCode
}
