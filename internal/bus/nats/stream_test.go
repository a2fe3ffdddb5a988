package nats_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	natsbus "github.com/kubecdc/kubecdc/internal/bus/nats"
	"github.com/kubecdc/kubecdc/internal/bus/nats/natsconfig"
	"github.com/kubecdc/kubecdc/internal/config/yamldoc"
	"github.com/kubecdc/kubecdc/internal/publish"
)

func TestStreamIsCreated(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	cfg := bustest.NATSConfig(s.ClientURL())
	cfg.Stream = natsconfig.Stream{Name: "CHANGES", Create: true, MaxAge: yamldoc.Duration{
		Duration: time.Minute,
	}, MaxBytes: 1 << 20, DuplicateWindow: yamldoc.Duration{Duration: 2 * time.Minute}}
	r := bustest.RunNATS(t, cfg)
	if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	stream, err := bustest.Admin(t, s.ClientURL()).Stream(t.Context(), "CHANGES")
	if err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	got := fmt.Sprint(c.Subjects, c.Discard, c.Retention, c.Storage, c.Replicas, c.MaxAge, c.MaxBytes, c.Duplicates)
	want := fmt.Sprint([]string{"kubecdc.prod-eu-1.>"}, jetstream.DiscardNew, jetstream.LimitsPolicy,
		jetstream.FileStorage, 1,
		time.Minute, 1<<20, time.Minute) // a window longer than maxAge is none
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestStreamIsRefused(t *testing.T) {
	sound := func() jetstream.StreamConfig {
		return jetstream.StreamConfig{Name: "KUBECDC", Subjects: []string{"kubecdc.>"}, Discard: jetstream.DiscardNew}
	}
	for _, c := range []struct {
		name   string
		change func(*jetstream.StreamConfig)
		want   []string // reasons; none: the stream is taken
	}{
		{"sound", func(*jetstream.StreamConfig) {}, nil},
		{"maxAge alone is the retention that was chosen", func(c *jetstream.StreamConfig) {
			c.Discard, c.MaxAge = jetstream.DiscardOld, time.Hour
		}, nil},
		{"bounded, discard new", func(c *jetstream.StreamConfig) { c.MaxBytes, c.MaxMsgs = 1<<20, 100 }, nil},
		{"bounded per subject, discard new per subject", func(c *jetstream.StreamConfig) {
			c.MaxMsgsPerSubject, c.DiscardNewPerSubject = 10, true
		}, nil},
		{"sources", func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "ORIGIN"}} }, nil},
		{"narrow subjects that cover", func(c *jetstream.StreamConfig) {
			c.Subjects = []string{
				"kubecdc.*.object.>", "kubecdc.prod-eu-1.stream.*.*", "kubecdc.prod-eu-1.scope.*.*.*",
				"kubecdc.*.progress.*",
			}
		}, nil},
		{
			"an earlier version's subjects, without scopes and progress", func(c *jetstream.StreamConfig) {
				c.Subjects = []string{"kubecdc.prod-eu-1.object.>", "kubecdc.prod-eu-1.stream.>"}
			},
			[]string{
				"its subjects (kubecdc.prod-eu-1.object.>, kubecdc.prod-eu-1.stream.>) do not include all of kubecdc.prod-eu-1.scope.*.*.*, kubecdc.prod-eu-1.progress.*: " +
					"nats stream edit KUBECDC --subjects=kubecdc.prod-eu-1.object.>,kubecdc.prod-eu-1.stream.>,kubecdc.prod-eu-1.scope.*.*.*,kubecdc.prod-eu-1.progress.*",
			},
		},
		{"discard old with bounds", func(c *jetstream.StreamConfig) {
			c.Discard = jetstream.DiscardOld
			c.MaxBytes = 1 << 20
			c.MaxMsgs = 100
		}, []string{
			"it discards old records when it is full (max_bytes 1048576, max_msgs 100), even if they have not been read: nats stream edit KUBECDC --discard=new",
		}},
		{
			"bounded per subject", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 },
			[]string{
				"it keeps no more than 5 records of a subject and drops older ones (max_msgs_per_subject): nats stream edit KUBECDC --max-msgs-per-subject=-1",
			},
		},
		{
			"interest", func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy },
			[]string{
				"its retention is interest, so records are removed once consumers have acknowledged them, or at once without consumers: create it with --retention=limits",
			},
		},
		{
			"work queue", func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy },
			[]string{
				"its retention is workqueue, so records are removed once consumers have acknowledged them, or at once without consumers: create it with --retention=limits",
			},
		},
		{
			"no ack", func(c *jetstream.StreamConfig) { c.NoAck = true },
			[]string{
				"it has no_ack set, so the agent cannot learn whether a record was stored: nats stream edit KUBECDC --ack",
			},
		},
		{
			"mirror", func(c *jetstream.StreamConfig) {
				c.Subjects = nil
				c.Mirror = &jetstream.StreamSource{Name: "ORIGIN"}
			},
			[]string{
				"it is a mirror of stream ORIGIN, which accepts no messages itself: publish to that one, or set another stream in bus.nats.stream.name",
				"its subjects () do not include all of kubecdc.prod-eu-1.object.*.*.*.*, kubecdc.prod-eu-1.stream.*.*, kubecdc.prod-eu-1.scope.*.*.*, kubecdc.prod-eu-1.progress.*: " +
					"nats stream edit KUBECDC --subjects=kubecdc.prod-eu-1.object.*.*.*.*,kubecdc.prod-eu-1.stream.*.*,kubecdc.prod-eu-1.scope.*.*.*,kubecdc.prod-eu-1.progress.*",
			},
		},
		{
			"small messages", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 900 << 10 },
			[]string{
				"its max_msg_size is 921600 bytes, and an event may need 937984: nats stream edit KUBECDC --max-msg-size=-1, or lower event.maxBytes",
			},
		},
		{
			"sealed", func(c *jetstream.StreamConfig) { c.Sealed = true },
			[]string{"it is sealed and accepts no more messages: set another stream in bus.nats.stream.name"},
		},
		{
			"counter", func(c *jetstream.StreamConfig) { c.AllowMsgCounter, c.Discard = true, jetstream.DiscardOld },
			[]string{
				"it is a counter (allow_msg_counter), which accepts only increments: set another stream in bus.nats.stream.name",
			},
		},
		{
			"another cluster's subjects", func(c *jetstream.StreamConfig) {
				c.Subjects = []string{"kubecdc.prod-us-1.>"}
			},
			[]string{
				"its subjects (kubecdc.prod-us-1.>) do not include all of kubecdc.prod-eu-1.object.*.*.*.*, kubecdc.prod-eu-1.stream.*.*, kubecdc.prod-eu-1.scope.*.*.*, kubecdc.prod-eu-1.progress.*: " +
					"nats stream edit KUBECDC --subjects=kubecdc.prod-us-1.>,kubecdc.prod-eu-1.object.*.*.*.*,kubecdc.prod-eu-1.stream.*.*,kubecdc.prod-eu-1.scope.*.*.*,kubecdc.prod-eu-1.progress.*",
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := bustest.StartAnyServer(t, t.TempDir(), -1)
			js := bustest.Admin(t, s.ClientURL())
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORIGIN", Subjects: []string{
				"origin",
			}}); err != nil {
				t.Fatal(err)
			}
			config := sound()
			c.change(&config)
			sealed := config.Sealed
			config.Sealed = false // a stream cannot be born so
			created, err := js.CreateStream(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			if config.AllowMsgCounter && !created.CachedInfo().Config.AllowMsgCounter {
				t.Skip("this version of the server has no counters")
			}
			if sealed {
				config.Sealed = true
				if _, err := js.UpdateStream(t.Context(), config); err != nil {
					t.Fatal(err)
				}
			}
			before := streamConfig(t, js)
			r := bustest.RunNATS(t, bustest.NATSConfig(s.ClientURL()))
			if c.want == nil {
				if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil {
					t.Error(err)
				}
			} else {
				<-r.Ended
				want := "stream refused: KUBECDC:\n  - " + strings.Join(c.want, "\n  - ")
				if !errors.Is(r.Err, publish.ErrStream) || r.Err.Error() != want {
					t.Errorf("got  %v\nwant %s", r.Err, want)
				}
				if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); !errors.Is(err,
					publish.ErrClosed) {
					t.Errorf("Publish: got %v, want ErrClosed", err)
				}
			}
			if after := streamConfig(t, js); after != before {
				t.Errorf("the stream was changed from\n%s to\n%s", before, after)
			}
		})
	}
}

func streamConfig(t *testing.T, js jetstream.JetStream) string {
	t.Helper()
	s, err := js.Stream(t.Context(), "KUBECDC")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(s.CachedInfo().Config)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestStreamThatCannotBeCreated(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*natsbus.Config)
		want   string
	}{
		{
			"replicas without a cluster", func(c *natsbus.Config) { c.Stream.Replicas = 3 },
			"stream refused: create KUBECDC: nats: API error: code=500 err_code=10074 description=replicas > 1 not supported in non-clustered mode: set bus.nats.stream.replicas to 1, or use a cluster",
		},
		{
			"subjects of another stream", func(c *natsbus.Config) { c.Subject = "taken.{name}" },
			"stream refused: create KUBECDC: nats: API error: code=400 err_code=10065 description=subjects overlap with an existing stream: another stream has these subjects; set it in bus.nats.stream.name, or change bus.nats.subject",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := bustest.StartAnyServer(t, t.TempDir(), -1)
			js := bustest.Admin(t, s.ClientURL())
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "TAKEN", Subjects: []string{
				"taken.>",
			}}); err != nil {
				t.Fatal(err)
			}
			cfg := bustest.NATSConfig(s.ClientURL())
			c.change(&cfg)
			n, err := natsbus.New(cfg, bustest.Discard, nil)
			if err == nil {
				err = n.Run(t.Context())
			}
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestStreamThatIsNotToBeCreatedIsWaitedFor(t *testing.T) {
	s := bustest.StartAnyServer(t, t.TempDir(), -1)
	cfg := bustest.NATSConfig(s.ClientURL())
	cfg.Stream.Create = false
	r := bustest.RunNATS(t, cfg)
	bustest.Wait(t, "the log to say so", func() bool {
		return bustest.Lines(r.Log.String(),
			"stream KUBECDC does not exist, and bus.nats.stream.create is not set") == 1
	})
	_, err := bustest.Admin(t, s.ClientURL()).CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "KUBECDC", Subjects: []string{"kubecdc.>"}, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Publish(t.Context(), bustest.Event("web-1", 1, `{}`)); err != nil {
		t.Fatal(err)
	}
	if bustest.Lines(r.Log.String(), "storage is Memory, configured File") != 1 {
		t.Error("the log does not tell that the stream is in memory")
	}
}

func TestSmallPayloadLimitOfTheServerIsRefused(t *testing.T) {
	s := bustest.StartServer(t, t.TempDir(), -1, func(o *server.Options) { o.MaxPayload = 512 << 10 })
	n, err := natsbus.New(bustest.NATSConfig(s.ClientURL()), bustest.Discard, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = n.Run(t.Context())
	want := "stream refused: the server's max_payload is 524288 bytes, and an event may need 937984: raise it, or lower event.maxBytes"
	if !errors.Is(err, publish.ErrStream) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// A limit that is lowered while the agent runs makes later events too large: the dispatcher
// shortens them. The bus does not end.
func TestSizeLimitThatIsLoweredDoesNotEndTheBus(t *testing.T) {
	for name, lower := range map[string]func(*testing.T, *server.Server, *server.Options){
		"max_payload of the server": func(t *testing.T, s *server.Server, o *server.Options) {
			t.Helper()
			o = o.Clone()
			o.MaxPayload = 512 << 10
			if err := s.ReloadOptions(o); err != nil {
				t.Fatal(err)
			}
		},
		"max_msg_size of the stream": func(t *testing.T, s *server.Server, _ *server.Options) {
			t.Helper()
			js := bustest.Admin(t, s.ClientURL())
			stream, err := js.Stream(t.Context(), "KUBECDC")
			if err != nil {
				t.Fatal(err)
			}
			c := stream.CachedInfo().Config
			c.MaxMsgSize = 512 << 10
			if _, err := js.UpdateStream(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var options *server.Options
			s := bustest.StartServer(t, t.TempDir(), -1, func(o *server.Options) { options = o })
			p := bustest.StartProxy(t, s.Addr().String())
			r := bustest.RunNATS(t, bustest.NATSConfig(p.URL()))
			if err := r.Publish(t.Context(), bustest.Event("web-1", 1, strings.Repeat("x", 800<<10))); err != nil {
				t.Fatal(err)
			}
			lower(t, s, options)
			for rv := 2; rv < 4; rv++ {
				if err := r.Publish(t.Context(),
					bustest.Event("web-1", rv, strings.Repeat("x", 800<<10))); !errors.Is(err,
					publish.ErrTooLarge) {
					t.Fatalf("got %v, want ErrTooLarge", err)
				}
				if err := r.Publish(t.Context(),
					bustest.Event("web-1", rv, strings.Repeat("x", 400<<10))); err != nil {
					t.Fatal(err)
				}
				p.Cut() // the stream is checked again
			}
			select {
			case <-r.Ended:
				t.Fatalf("ended: %v", r.Err)
			default:
			}
			bustest.Wait(t, "the log to say so", func() bool {
				return bustest.Lines(r.Log.String(), "the limit of the bus is below event.maxBytes") == 1
			})
		})
	}
}
