package nats_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromnats"
)

const (
	ofShop     = "kubecdc.*.object.*.*.shop.*"
	ofBank     = "kubecdc.*.object.*.*.bank.*"
	ofStreams  = "kubecdc.*.stream.*.*"
	ofScopes   = "kubecdc.*.scope.*.*.*"
	ofProgress = "kubecdc.*.progress.*"
)

// requests are those that a user may try at a stream that others use too.
var requests = map[string]string{
	"read the state of the stream":        "$JS.API.STREAM.INFO.KUBECDC",
	"publish an event":                    "kubecdc.prod-eu-1.object.core.pods.shop.web",
	"publish progress":                    "kubecdc.prod-eu-1.progress.3f0a5c1e9b7d2846",
	"read all by another consumer":        "$JS.API.CONSUMER.CREATE.KUBECDC.shop-2.kubecdc.>",
	"read by sequence":                    "$JS.API.STREAM.MSG.GET.KUBECDC",
	"read the last by subject":            "$JS.API.DIRECT.GET.KUBECDC.kubecdc.prod-eu-1.object.core.pods.bank.vault",
	"read directly":                       "$JS.API.DIRECT.GET.KUBECDC",
	"list consumers":                      "$JS.API.CONSUMER.LIST.KUBECDC",
	"list names of consumers":             "$JS.API.CONSUMER.NAMES.KUBECDC",
	"read another's durable":              "$JS.API.CONSUMER.MSG.NEXT.KUBECDC.ledger",
	"delete another's durable":            "$JS.API.CONSUMER.DELETE.KUBECDC.ledger",
	"reset another's durable":             "$JS.API.CONSUMER.RESET.KUBECDC.ledger",
	"look at another's durable":           "$JS.API.CONSUMER.INFO.KUBECDC.ledger",
	"acknowledge for another":             "$JS.ACK.KUBECDC.ledger.1.1.1.1.1",
	"create under another name":           "$JS.API.CONSUMER.CREATE.KUBECDC.mine." + ofShop,
	"create with another filter":          "$JS.API.CONSUMER.CREATE.KUBECDC.shop-0." + ofBank,
	"create with a wider filter":          "$JS.API.CONSUMER.CREATE.KUBECDC.shop-0.kubecdc.>",
	"create with a filter in the body":    "$JS.API.CONSUMER.CREATE.KUBECDC.shop-0",
	"create without a name":               "$JS.API.CONSUMER.CREATE.KUBECDC",
	"create a durable in the old way":     "$JS.API.CONSUMER.DURABLE.CREATE.KUBECDC.shop-0",
	"copy the stream":                     "$JS.API.STREAM.CREATE.COPY",
	"change the stream":                   "$JS.API.STREAM.UPDATE.KUBECDC",
	"purge the stream":                    "$JS.API.STREAM.PURGE.KUBECDC",
	"delete the stream":                   "$JS.API.STREAM.DELETE.KUBECDC",
	"read the large events of the bucket": "$JS.API.DIRECT.GET.OBJ_KUBECDC_LARGE.$O.KUBECDC_LARGE.C.x",
	"request from the other account":      "KUBE.API.CONSUMER.CREATE.KUBECDC",
	"create the bucket of cursors":        "$JS.API.STREAM.CREATE.KV_kubecdc-relay",
	"read the cursor of another relay":    "$JS.API.DIRECT.GET.KV_kubecdc-relay.$KV.kubecdc-relay.search",
	"move the cursor of another relay":    "$KV.kubecdc-relay.search",
	"look into the bucket of cursors":     "$JS.API.STREAM.INFO.KV_kubecdc-relay",
}

// The documented permissions of each role refuse everything but what the role needs.
func TestRolesMayDoNothingElse(t *testing.T) {
	t.Parallel()
	roles := map[string][]string{
		"the agent": {
			"read the state of the stream", "publish an event", "publish progress", "read by sequence",
			"read the large events of the bucket",
		},
		"a reader": {
			"read the state of the stream", "read another's durable", "delete another's durable",
			"create under another name",
			"create with another filter", "create with a wider filter", "create with a filter in the body",
			"read all by another consumer",
		},
		"a relay": {
			"read the state of the stream", "read another's durable", "delete another's durable",
			"create under another name",
			"create with another filter", "create with a wider filter", "create with a filter in the body",
			"read all by another consumer",
			"create the bucket of cursors", "read the cursor of another relay", "move the cursor of another relay",
			"look into the bucket of cursors",
		},
		"a durable consumer": {"read the state of the stream"},
		"a confined reader":  {"read the state of the stream"},
		"a confined relay":   {"read the state of the stream"},

		"a confined durable consumer": {"read the state of the stream"},
	}
	users := []*server.User{}
	for role := range roles {
		users = append(users, &server.User{
			Username:    role,
			Password:    "secret",
			Permissions: bustest.GuidePermissions(t, role),
		})
	}
	s := bustest.StartServer(t, t.TempDir(), -1, func(o *server.Options) { o.Users = users })
	for role, want := range roles {
		var got []string
		for what, subject := range requests {
			if !isRefused(t, s, role, subject) {
				got = append(got, what)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", role, diff)
		}
	}
	for _, subject := range []string{"_INBOX.>", "kubecdc.>", "$JS.>", ">"} {
		nc := connectAs(t, s, "a confined reader")
		if _, err := nc.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
		if err := nc.Flush(); err != nil || !errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
			t.Errorf("a confined reader subscribes to %s: %v", subject, err)
		}
	}
}

func connectAs(t *testing.T, s *server.Server, user string, more ...nats.Option) *nats.Conn {
	t.Helper()
	options := []nats.Option{
		nats.UserInfo(user, "secret"), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}
	nc, err := nats.Connect(s.ClientURL(), append(options, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// isRefused reports whether the server lets a user not publish to a subject.
func isRefused(t *testing.T, s *server.Server, user, subject string) bool {
	t.Helper()
	nc := connectAs(t, s, user)
	defer nc.Close()
	if err := nc.Publish(subject, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil { // the refusal comes first
		t.Fatal(err)
	}
	return errors.Is(nc.LastError(), nats.ErrPermissionViolation)
}

// fill creates the stream of two namespaces, with a durable consumer of another user.
func fill(t *testing.T, js jetstream.JetStream) jetstream.Stream {
	t.Helper()
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "KUBECDC", Subjects: []string{
		"kubecdc.>",
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{
		Durable:   "ledger",
		AckPolicy: jetstream.AckExplicitPolicy,
	}); err != nil {
		t.Fatal(err)
	}
	for rv, subject := range []string{
		"kubecdc.prod-eu-1.object.core.pods.shop.web", "kubecdc.prod-eu-1.object.core.pods.bank.vault",
		"kubecdc.prod-eu-1.stream.core.pods", "kubecdc.prod-eu-1.object.core.pods.shop.db",
		"kubecdc.prod-eu-1.progress.3f0a",
	} {
		tokens := strings.Split(subject, ".")
		m := nats.NewMsg(subject)
		m.Header.Set("content-type", "application/cloudevents+json")
		m.Data = podRecord(rv+1, tokens[len(tokens)-1])
		if _, err := js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	return stream
}

// names returns the names of the objects of all events that a reader returns up to the end.
func names(t *testing.T, source *fromnats.JetStream) []string {
	t.Helper()
	r, err := source.Read(t.Context(), consume.Query{Start: consume.Beginning(), StopAtEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []string
	for {
		e, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Name)
	}
}

// confined starts a server with the confined reader of the guide.
func confined(t *testing.T) (*server.Server, jetstream.Stream, nats.Option) {
	t.Helper()
	s := bustest.StartServer(t, t.TempDir(), -1, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "secret"},
			{Username: "shop", Password: "secret", Permissions: bustest.GuidePermissions(t, "a confined reader")},
			{
				Username:    "audit",
				Password:    "secret",
				Permissions: bustest.GuidePermissions(t, "a confined durable consumer"),
			},
		}
	})
	js, err := jetstream.New(connectAs(t, s, "admin"))
	if err != nil {
		t.Fatal(err)
	}
	return s, fill(t, js), nats.CustomInboxPrefix("_INBOX_shop")
}

func TestConfinedReaderReadsItsNamespace(t *testing.T) {
	t.Parallel()
	s, _, inbox := confined(t)
	var refused []error
	noted := nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused = append(refused, err) })
	nc := connectAs(t, s, "shop", inbox, noted)
	for range 2 { // the first leaves nothing
		got := names(t, &fromnats.JetStream{Conn: nc, Consumers: "shop", Subjects: []string{
			ofShop, ofStreams, ofScopes, ofProgress,
		}})
		if diff := cmp.Diff([]string{"web", "pods", "db", "3f0a"}, got); diff != "" {
			t.Error(diff)
		}
	}
	nc.Close()
	if len(refused) > 0 {
		t.Errorf("the server refused: %v", refused)
	}
}

func TestConfinedServiceReadsItsNamespace(t *testing.T) {
	t.Parallel()
	s, _, inbox := confined(t)
	nc := connectAs(t, s, "audit", inbox)
	errEnough := errors.New("enough")
	for n, want := range [][]string{{"web", "db"}, {"new"}} { // the second start continues
		if n > 0 {
			m := nats.NewMsg("kubecdc.prod-eu-1.object.core.pods.shop.new")
			m.Header.Set("content-type", "application/cloudevents+json")
			m.Data = podRecord(9, "new")
			if err := connectAs(t, s, "admin").PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		var got []string
		err := fromnats.Run(ctx, fromnats.RunOptions{
			JetStream: fromnats.JetStream{Conn: nc, Subjects: []string{
				ofShop,
			}}, Durable: "shop-audit", Start: consume.Beginning(),
			OnRetry: func(err error) { t.Error(err) },
		}, func(_ context.Context, e *consume.Event) error {
			got = append(got, e.Name)
			if len(got) == len(want) {
				time.AfterFunc(100*time.Millisecond, func() { cancel(errEnough) }) // after the acknowledgement
			}
			return nil
		})
		cancel(nil)
		if diff := cmp.Diff(want, got); diff != "" || !errors.Is(err, errEnough) {
			t.Error(err, diff)
		}
	}
}

// The subject of a request is permitted, and its body asks for something else.
func TestConfinedReaderAsksInTheBody(t *testing.T) {
	t.Parallel()
	s, stream, inbox := confined(t)
	nc := connectAs(t, s, "shop", inbox)
	for name, config := range map[string]map[string]any{
		"another filter":  {"filter_subject": ofBank},
		"no filter":       {},
		"filters":         {"filter_subjects": []string{ofShop, ofBank}},
		"both":            {"filter_subject": ofShop, "filter_subjects": []string{ofShop, ofBank}},
		"another durable": {"filter_subject": ofShop, "durable_name": "ledger"},
	} {
		config["ack_policy"], config["deliver_policy"] = "none", "all"
		body, err := json.Marshal(map[string]any{"stream_name": "KUBECDC", "config": config})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := nc.Request("$JS.API.CONSUMER.CREATE.KUBECDC.shop-0."+ofShop, body, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(answer.Data), `"error"`) {
			t.Errorf("%s: %s", name, answer.Data)
		}
	}
	if _, err := stream.Consumer(t.Context(), "shop-0"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("a consumer was created: %v", err)
	}
	info, err := stream.Consumer(t.Context(), "ledger")
	if err != nil || info.CachedInfo().Config.FilterSubject != "" {
		t.Errorf("the durable of another user: %+v, %v", info, err)
	}
}

// A user who may write to a bucket can empty it. So a confined relay has a bucket of its own.
func TestConfinedRelayEmptiesItsBucketAlone(t *testing.T) {
	t.Parallel()
	s := bustest.StartServer(t, t.TempDir(), -1, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "secret"},
			{Username: "relay", Password: "secret", Permissions: bustest.GuidePermissions(t, "a confined relay")},
		}
	})
	js, err := jetstream.New(connectAs(t, s, "admin"))
	if err != nil {
		t.Fatal(err)
	}
	nc := connectAs(t, s, "relay", nats.CustomInboxPrefix("_INBOX_shop"))
	for bucket, want := range map[string]int{"kubecdc-relay": 2, "kubecdc-relay-shop": 0} {
		kv, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: bucket})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"deploys", "search"} {
			if _, err := kv.PutString(t.Context(), key, "{}"); err != nil {
				t.Fatal(err)
			}
		}
		m := nats.NewMsg("$KV." + bucket + ".other")
		m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupAll)
		if _, err := nc.RequestMsg(m, time.Second); (err == nil) != (want == 0) {
			t.Errorf("%s: %v", bucket, err)
		}
		kept := 0
		for _, key := range []string{"deploys", "search"} {
			if _, err := kv.Get(t.Context(), key); err == nil {
				kept++
			}
		}
		if kept != want {
			t.Errorf("%s keeps %d cursors, want %d", bucket, kept, want)
		}
	}
}

// The guide says that the names of objects stay visible.
func TestConfinedReaderSeesNames(t *testing.T) {
	t.Parallel()
	s, _, inbox := confined(t)
	answer, err := connectAs(t, s, "shop", inbox).
		Request("$JS.API.STREAM.INFO.KUBECDC", []byte(`{"subjects_filter":">"}`), 5*time.Second)
	if err != nil || !strings.Contains(string(answer.Data), "bank.vault") {
		t.Errorf("want the names: %s, %v", answer.Data, err)
	}
}

// A push consumer delivers to any subject: the guide says so. It carries no records of other
// namespaces.
func TestConfinedReaderPushes(t *testing.T) {
	t.Parallel()
	s, stream, inbox := confined(t)
	victim := connectAs(t, s, "admin")
	sub, err := victim.SubscribeSync("of.another.user")
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Flush(); err != nil {
		t.Fatal(err)
	}
	nc := connectAs(t, s, "shop", inbox)
	pushed := func(to string) (isMade bool) {
		body, err := json.Marshal(map[string]any{"stream_name": "KUBECDC", "config": map[string]any{
			"filter_subject": ofShop, "deliver_subject": to, "ack_policy": "none", "deliver_policy": "all",
		}})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := nc.Request("$JS.API.CONSUMER.CREATE.KUBECDC.shop-0."+ofShop, body, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return !strings.Contains(string(answer.Data), `"error"`)
	}
	remove := func() {
		if _, err := nc.Request("$JS.API.CONSUMER.DELETE.KUBECDC.shop-0", nil, 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if pushed("kubecdc.prod-eu-1.object.core.pods.bank.vault") {
		t.Error("a push consumer delivers to a subject of the stream")
	}
	if !pushed("of.another.user") {
		t.Error("the server refuses a push consumer now: the guide says otherwise")
	}
	for _, want := range []string{`"name":"web"`, `"name":"db"`} {
		m, err := sub.NextMsg(5 * time.Second)
		if err != nil || !strings.Contains(string(m.Data), want) {
			t.Fatalf("want %s, got %v, %v", want, m, err)
		}
	}
	remove()
	for _, to := range []string{
		"$JS.API.STREAM.PURGE.KUBECDC", "$JS.API.STREAM.DELETE.KUBECDC", "$JS.API.CONSUMER.DELETE.KUBECDC.ledger",
	} {
		if !pushed(to) {
			continue
		}
		if m, err := sub.NextMsg(500 * time.Millisecond); err == nil { // the time in which the server would act
			t.Errorf("the user gets %s", m.Data)
		}
		remove()
	}
	info, err := stream.Info(t.Context())
	if err != nil || info.State.Msgs != 5 || info.State.Consumers != 1 {
		t.Errorf("the stream has %+v, %v", info, err)
	}
}

// Users of a tenant's account read its namespaces with the ordinary reader's set. Nothing else is
// there.
func TestTenantReadsItsStream(t *testing.T) {
	t.Parallel()
	options := bustest.GuideOptions(t, bustest.GuideBlock(t, "a tenant's account"))
	s := bustest.StartServer(t, t.TempDir(), -1, func(o *server.Options) {
		o.Accounts, o.Users = options.Accounts, options.Users
		var shop *server.Account
		for _, a := range o.Accounts {
			if a.GetName() == "SHOP" {
				shop = a
			}
		}
		o.Users = append(o.Users, &server.User{
			Username:    "shop",
			Password:    "secret",
			Account:     shop,
			Permissions: bustest.GuidePermissions(t, "a reader"),
		})
	})
	kube, err := jetstream.New(connectAs(t, s, "kube-admin"))
	if err != nil {
		t.Fatal(err)
	}
	fill(t, kube)
	var config jetstream.StreamConfig
	if err := json.Unmarshal([]byte(bustest.GuideBlock(t, "a tenant's stream")), &config); err != nil {
		t.Fatal(err)
	}
	admin, err := jetstream.New(connectAs(t, s, "shop-admin"))
	if err != nil {
		t.Fatal(err)
	}
	stream, err := admin.CreateStream(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	bustest.Wait(t, "the tenant's stream has its records", func() bool {
		info, err := stream.Info(t.Context())
		return err == nil && info.State.Msgs >= 4
	})
	tenant := connectAs(t, s, "shop")
	if diff := cmp.Diff([]string{"web", "pods", "db", "3f0a"}, names(t, &fromnats.JetStream{
		Conn: tenant,
	})); diff != "" {
		t.Error(diff)
	}
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil || len(info.State.Subjects) != 4 {
		t.Errorf("subjects: %v, %v", info, err)
	}
	allowed := []string{
		"read the state of the stream", "read another's durable", "delete another's durable",
		"create under another name",
		"create with another filter", "create with a wider filter", "create with a filter in the body",
		"read all by another consumer",
	}
	for what, subject := range requests {
		if refused := isRefused(t, s, "shop", subject); refused == slices.Contains(allowed, what) {
			t.Errorf("%s: refused: %v", what, refused)
		}
	}
	if c, err := mustStream(t, kube).Consumer(t.Context(), "ledger"); err != nil ||
		c.CachedInfo().Delivered.Consumer > 0 {
		t.Errorf("a durable in the agent's account: %v, %v", c, err)
	}
}

func mustStream(t *testing.T, js jetstream.JetStream) jetstream.Stream {
	t.Helper()
	stream, err := js.Stream(t.Context(), "KUBECDC")
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// podRecord is an event in structured mode.
func podRecord(rv int, name string) []byte {
	return fmt.Appendf(nil,
		`{"specversion":"1.0","id":"pods/1/%d","source":"/kubernetes/x","type":"dev.kubecdc.object.updated",`+
			`"apiversion":"v1","kind":"Pod","resource":"pods","namespace":"shop","name":%q,"uid":"1","op":"u","sequence":"%020d",`+
			`"data":{"op":"u","resourceVersion":"%d","after":{}}}`, rv, name, rv, rv)
}
