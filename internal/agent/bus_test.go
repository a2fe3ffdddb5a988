package agent

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/bus/driver"
	"github.com/kubecdc/kubecdc/internal/bus/http"
	"github.com/kubecdc/kubecdc/internal/bus/kafka"
	"github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
)

// Each bus is made as the file says, with its dead letters and its place for large events.
func TestBuses(t *testing.T) {
	for name, c := range map[string]struct {
		file   string
		kind   string
		claims string
		dead   string // "<nil>": none
		pump   string
		logged string
	}{
		"NATS by default": {
			kind: "*nats.Bus", claims: "*nats.objectStore", dead: "*nats.Bus", pump: "921600 [patch before reference]",
		},
		"NATS without anything": {
			file: "bus: {nats: {auth: {credsFile: /c}, tls: {}}}\nclaimCheck: {}\ndeadLetter: {}\nevent: {maxBytes: 1MiB}\n",
			kind: "*nats.Bus", claims: "<nil>", dead: "<nil>", pump: "1048576 [patch before]",
		},
		"Kafka whose topics exist": {
			file: "bus: {kafka: {brokers: [\"kafka:9092\"]}}\n",
			kind: "*kafka.Bus", claims: "<nil>", dead: "<nil>", pump: "921600 [patch before]",
		},
		"Kafka with a topic for each namespace": {
			file: "bus: {kafka: {brokers: [\"kafka:9092\"], topic: \"kubecdc.{cluster}.{namespace}\", create: {}}}\n",
			kind: "*kafka.Bus", claims: "<nil>", dead: "*kafka.Bus", pump: "921600 [patch before]",
		},
		"Kafka with all that there is": {
			file: "bus:\n  kafka:\n    brokers: [\"kafka:9092\"]\n    create: {config: {retention.ms: -1}}\n    tls: {}\n" +
				"    sasl: {mechanism: OAUTHBEARER, oauth: {tokenURL: \"https://l/\", clientID: c, clientSecretFile: /s}}\n" +
				"claimCheck: {directory: {path: /large}}\n",
			kind: "*kafka.Bus", claims: "*claim.Directory", dead: "*kafka.Bus", pump: "921600 [patch before reference]",
		},
		"Kafka and a password that everybody sees": {
			file: "bus: {kafka: {brokers: [\"127.0.0.1:9092\", \"kafka:9092\"], sasl: {mechanism: PLAIN, user: u, passwordFile: /p, insecure: true}}}\n",
			kind: "*kafka.Bus", claims: "<nil>", dead: "<nil>", pump: "921600 [patch before]", logged: "unencrypted",
		},
		"Kafka here": {
			file: "bus: {kafka: {brokers: [\"127.0.0.1:9092\", \"[::1]:9092\", \"localhost:9092\"], sasl: {mechanism: PLAIN, user: u, passwordFile: /p}}}\n",
			kind: "*kafka.Bus", claims: "<nil>", dead: "<nil>", pump: "921600 [patch before]",
		},
		"HTTP": {
			file: "bus: {http: {url: \"https://e/\", batch: 10, tls: {}}}\ndeadLetter: {url: \"https://e/dead\"}\noversize: [before]\n",
			kind: "*http.Bus", claims: "<nil>", dead: "*http.Bus", pump: "921600 [before]",
		},
		"HTTP and its files": {
			file: "bus: {http: {url: \"https://e/\"}}\nclaimCheck: {http: {url: \"https://f/\"}}\n",
			kind: "*http.Bus", claims: "*http.ClaimStore", dead: "<nil>", pump: "921600 [patch before reference]",
		},
		"stdout": {
			file: "bus: {stdout: {}}\n",
			kind: "*stdout.Bus", claims: "<nil>", dead: "<nil>", pump: "0 [patch before]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := config.Parse([]byte("apiVersion: kubecdc.dev/v1\n"+c.file), "f.yaml")
			if err != nil {
				t.Fatal(err)
			}
			var logged bytes.Buffer
			log, _ := NewLogger(cfg.Log, cfg.Log.Level.Slog(), &terminal.Output{Writer: &logged})
			b, err := newBus(cfg, "prod", false, io.Discard, nil, log, nil)
			if err != nil {
				t.Fatal(err)
			}
			o := b.options(cfg)
			for what, s := range map[string][2]string{
				"bus":          {c.kind, fmt.Sprintf("%T", b.Bus)},
				"claim check":  {c.claims, fmt.Sprintf("%T", b.claims)},
				"in flight":    {c.claims, fmt.Sprintf("%T", o.Claims)},
				"dead letters": {c.dead, fmt.Sprintf("%T", b.deadLetters)},
				"given up":     {c.pump, fmt.Sprint(o.MaxEventBytes, " ", o.Oversize)},
			} {
				if s[0] != s[1] {
					t.Errorf("%s: want %s, got %s", what, s[0], s[1])
				}
			}
			if c.logged == "" != (logged.String() == "") || !strings.Contains(logged.String(), c.logged) {
				t.Errorf("logged: %s", logged.String())
			}
			if _, last := b.Bus.(driver.LastEventer); last != b.driver.LastEvents {
				t.Errorf("it can be asked for the last stream event: %v", last)
			}
			if _, last := b.Bus.(driver.LastProgresser); last != b.driver.LastProgress {
				t.Errorf("it can be asked for the last progress: %v", last)
			}
		})
	}
}

// --bus takes the place of the bus in the file, and keeps what that has about a bus of its kind.
func TestBusOfFlag(t *testing.T) {
	file := map[string]string{
		"nats":  "bus: {nats: {url: \"tls://n:4222\", stream: {name: S}, auth: {credsFile: /c}}}\n",
		"kafka": "bus: {kafka: {brokers: [\"k:9092\"], topic: t, tls: {}, create: {partitions: 3}}}\n",
		"http":  "bus: {http: {url: \"https://e/\", batch: 5, tokenFile: /t}}\ndeadLetter: {url: \"https://e/dead\"}\n",
	}
	for name, c := range map[string]struct{ file, flag, want string }{
		"nothing, NATS": {
			"", "nats://a:4222,nats://b:4222",
			"nats nats://a:4222,nats://b:4222 KUBECDC {     false}; [patch before reference]; store true; map[subject:kubecdc.{cluster}.dead]",
		},
		"NATS, NATS": {
			file["nats"], "nats://a:4222",
			"nats nats://a:4222 S {/c     false}; [patch before reference]; store true; map[subject:kubecdc.{cluster}.dead]",
		},
		"NATS, Kafka": {
			file["nats"], "kafka://a:9092,b:9092/x",
			"kafka [a:9092 b:9092] x zstd create false; [patch before]; store false; map[]",
		},
		"Kafka, Kafka": {
			file["kafka"], "kafka://a:9092",
			"kafka [a:9092] t zstd create true; [patch before]; store false; map[topic:kubecdc.{cluster}.dead]",
		},
		"Kafka, HTTP": {
			file["kafka"], "http://e:8080/x", "http http://e:8080/x 1 30s ; [patch before]; store false; map[]",
		},
		"HTTP, HTTP": {
			file["http"], "https://other/",
			"http https://other/ 5 30s /t; [patch before]; store false; map[url:https://e/dead]",
		},
		"HTTP, NATS": {
			file["http"], "nats://a:4222",
			"nats nats://a:4222 KUBECDC {     false}; [patch before reference]; store true; map[subject:kubecdc.{cluster}.dead]",
		},
		"HTTP, stdout":      {file["http"], "stdout:", "stdout; [patch before]; store false; map[]"},
		"own order, stdout": {"oversize: [reference, before]\n", "stdout", "stdout; [before]; store false; map[]"},
	} {
		cfg, err := config.Parse([]byte("apiVersion: kubecdc.dev/v1\n"+c.file), "f.yaml")
		if err != nil {
			t.Fatal(err)
		}
		b, err := BusFromURL(c.flag, cfg.Bus)
		if err != nil {
			t.Fatal(err)
		}
		cfg.UseBus(b)
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got string
		switch _, settings := cfg.Bus.Chosen(); c := settings.(type) {
		case *nats.Config:
			got = fmt.Sprint("nats ", c.URL, " ", c.Stream.Name, " ", c.Auth)
		case *kafka.Config:
			got = fmt.Sprint("kafka ", c.Brokers, " ", c.Topic, " ", c.Compression, " create ", c.Create != nil)
		case *http.Config:
			got = fmt.Sprint("http ", c.URL, " ", c.Batch, " ", c.Timeout, " ", c.TokenFile)
		default:
			got = "stdout"
		}
		got += fmt.Sprintf("; %v; store %v; %v", cfg.Oversize, cfg.ClaimCheck.ObjectStore != nil, cfg.DeadLetter)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A file of secrets that is not there ends the agent before anything is captured, and is named.
func TestBusWithoutItsFiles(t *testing.T) {
	for _, bus := range []string{
		"{http: {url: \"https://e/\", tokenFile: /none/token}}",
		"{http: {url: \"https://e/\", tls: {caFile: /none/token}}}",
		"{stdout: {}}\nclaimCheck: {http: {url: \"https://f/\", tokenFile: /none/token}}",
	} {
		cfg, err := config.Parse([]byte("apiVersion: kubecdc.dev/v1\nbus: "+bus+"\n"), "f.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := newBus(cfg, "prod", false, io.Discard, nil, slog.New(slog.DiscardHandler), nil); err == nil ||
			!strings.Contains(err.Error(), "/none/token") {
			t.Errorf("%s: %v", bus, err)
		}
	}
}
