package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
)

// shared is a bus of the namespaces shop and bank, whose users shop and relay have exactly the
// permissions of the guide.
type shared struct {
	address string
	js      jetstream.JetStream
}

func startShared(t *testing.T) *shared {
	t.Helper()
	_, lines := recorded(t)
	return shareRecord(t, lines)
}

// shareRecord starts a server that several teams share, with a record, and one of another namespace
// that is like it.
func shareRecord(t *testing.T, lines []string) *shared {
	t.Helper()
	address := startJetStream(t, &server.Options{Users: []*server.User{
		{Username: "admin", Password: "secret"},
		{Username: "shop", Password: "secret", Permissions: bustest.GuidePermissions(t, "a confined reader")},
		{Username: "relay", Password: "secret", Permissions: bustest.GuidePermissions(t, "a confined relay")},
	}})
	for _, line := range lines {
		if !strings.Contains(line, `"namespace":"shop"`) {
			continue
		}
		lines = append(lines,
			strings.NewReplacer(`shop"`, `bank"`, `"u-`, `"b-`, `/u-`, `/b-`, `"settings"`, `"vault"`).Replace(line))
	}
	js := connect(t, "nats://"+address, nats.UserInfo("admin", "secret"))
	fillBus(t, js, lines)
	if _, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "kubecdc-relay-shop"}); err != nil {
		t.Fatal(err)
	}
	return &shared{address, js}
}

// file writes the guide's file of a user, and replaces parts of it.
func (s *shared) file(t *testing.T, user string, replaced ...string) string {
	t.Helper()
	dir := t.TempDir()
	password := writeFile(t, filepath.Join(dir, "password"), "secret\n")
	text := strings.NewReplacer("tls://nats:4222", "nats://"+s.address, "user: shop", "user: "+user,
		"/etc/kubecdc/shop-password", password).
		Replace(bustest.GuideBlock(t, "a confined reader's file"))
	if changed := strings.NewReplacer(replaced...).Replace(text); len(replaced) == 0 || changed != text {
		return writeFile(t, filepath.Join(dir, "kubecdc.yaml"), changed)
	}
	t.Fatalf("nothing was replaced in:\n%s", text)
	return ""
}

const (
	withinRecord = "2026-11-20T14:05:00Z"
	whatIsRead   = "the reader may read only kubecdc.*.object.*.*.shop.*, kubecdc.*.stream.*.*, kubecdc.*.scope.*.*.*, kubecdc.*.progress.* (bus.nats.reader.subjects)"
)

// A user with the guide's permissions gets the answers about its namespace that everybody gets.
func TestConfinedUserReadsItsNamespace(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	confined, whole := s.file(t, "shop"), "nats://admin:secret@"+s.address
	for _, command := range [][]string{
		{"tail", "--no-follow", "-n", "shop", "-o", "json"},
		{"tail", "--no-follow", "cm/settings", "-n", "shop"},
		{"get", "cm", "-n", "shop", "--at", withinRecord, "-o", "json"},
		{"get", "all", "-n", "shop", "--at", "rv:145", "-o", "json"},
		{"get", "widgets", "-n", "shop", "--at", withinRecord},
		{"get", "cm/none", "-n", "shop", "--at", withinRecord},
		{"history", "deploy/web", "-n", "shop", "--until", withinRecord, "-o", "json"},
		{"history", "cm", "-n", "shop", "--since", withinRecord, "--until", "2026-11-20T14:08:00Z", "-o", "json"},
		{"diff", "2026-11-20T14:02:00Z", withinRecord, "-n", "shop", "-o", "json"},
		{"blame", "deploy/web", "-n", "shop", "--at", withinRecord},
		{"replay", "cm", "-n", "shop", "--from", "2026-11-20T14:02:00Z", "--to", withinRecord, "--target", "stdout:"},
	} {
		want := answerOf(t, append(command, "--bus", whole)...)
		got := answerOf(t, append(command, "--config", confined)...)
		if command[0] == "replay" { // the last line has its duration
			want.Err, got.Err = "", ""
		}
		if diff := gocmp.Diff(want, got); diff != "" || want.Out == "" && want.Code == exitOK {
			t.Errorf("%v: -whole +confined\n%s", command, diff)
		}
	}
}

// The same for Events beside versions. Without a namespace, nothing is certain.
func TestConfinedUserReadsItsEvents(t *testing.T) {
	t.Parallel()
	_, lines := rollout(t)
	s := shareRecord(t, lines)
	confined, whole := s.file(t, "shop"), "nats://admin:secret@"+s.address
	command := []string{
		"history", "deploy/web", "-n", "shop", "--with-events", "--exact", "--until", "2026-11-20T14:11:30Z", "-o",
		"json",
	}
	for _, since := range []string{"2026-11-20T14:00:30Z", "2026-11-20T14:05:30Z"} {
		args := append(command, "--since", since)
		want, got := answerOf(t, append(args, "--bus", whole)...), answerOf(t, append(args, "--config", confined)...)
		if diff := gocmp.Diff(want, got); diff != "" || want.Code != exitOK || !strings.Contains(want.Out, "BackOff") {
			t.Errorf("%v: -whole +confined\n%s\n%+v", args, diff, want)
		}
	}
	got := answerOf(t, "history", "deploy/web", "--with-events", "--exact", "--until", "2026-11-20T14:11:30Z",
		"--config", confined)
	if got.Code != exitNotExact || !strings.Contains(got.Out, "BackOff") || !strings.Contains(got.Err, whatIsRead) {
		t.Errorf("without a namespace: %+v", got)
	}
}

// A confined reader is not certain of objects that its user may not read.
func TestConfinedUserIsNotCertainOfOthers(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	confined := s.file(t, "shop")
	for _, command := range [][]string{
		{"tail", "--no-follow", "-n", "bank"},
		{"get", "cm", "-n", "bank", "--at", withinRecord},
		{"get", "cm/vault", "-n", "bank", "--at", withinRecord},
		{"history", "cm/vault", "-n", "bank", "--until", withinRecord},
		{"blame", "cm/vault", "-n", "bank", "--at", withinRecord},
		{"diff", "2026-11-20T14:02:00Z", withinRecord, "-n", "bank"},
		{"replay", "-n", "bank", "--from", "2026-11-20T14:02:00Z", "--target", "stdout:"},
	} {
		got := answerOf(t, append(command, "--config", confined)...)
		if got.Code != exitFailed || got.Out != "" || !strings.Contains(got.Err, "outside: "+whatIsRead) {
			t.Errorf("%v: want a refusal, got %+v", command, got)
		}
	}
	for _, command := range [][]string{
		{"get", "cm", "-A", "--at", withinRecord, "-o", "json"},
		{"get", "cm", "-n", "*", "--at", withinRecord, "-o", "json"},
		{"get", "cm", "--at", "rv:145", "-o", "json"},
		{"get", "all", "--at", withinRecord, "-o", "json"},
		{"get", "crd", "--at", withinRecord, "-o", "json"}, // without a namespace
		{"history", "cm", "--until", withinRecord, "-o", "json"},
		{"history", "cm", "--since", "rv:120", "--until", "rv:150", "-o", "json"},
	} {
		got := answerOf(t, append(command, "--exact", "--config", confined)...)
		var answer struct{ Kubecdc certaintyOfConfined }
		if err := json.Unmarshal([]byte(got.Out), &answer); err != nil {
			t.Errorf("%v: %v: %+v", command, err, got)
			continue
		}
		answer.Kubecdc.expect(t, command)
		if got.Code != exitNotExact || strings.Contains(got.Out, "bank") || !strings.Contains(got.Err, whatIsRead) {
			t.Errorf("%v: got %+v", command, got)
		}
	}
	for _, c := range []struct {
		want    string
		command []string
	}{
		{`configmaps "vault": whether it existed at ` + withinRecord + " is not known: " + whatIsRead, []string{
			"get", "cm/vault", "--at", withinRecord,
		}},
		{"nodes is not in the record, which has configmaps, ", []string{"get", "nodes", "--at", withinRecord}},
		{"deployments.apps, secrets, widgets.demo.example.com; " + whatIsRead, []string{
			"get", "nodes", "--at", withinRecord,
		}},
		{"whether it existed at", []string{"blame", "cm/vault", "--at", withinRecord}},
		{"whether it existed at", []string{"history", "cm/vault", "--until", withinRecord}},
		{"not all of these objects are shown: " + whatIsRead, []string{"tail", "--no-follow", "cm"}},
		{"configmaps: unknown", []string{
			"replay", "cm", "--from", "2026-11-20T14:02:00Z", "--to", withinRecord, "--target", "stdout:",
		}},
		{whatIsRead, []string{"serve", "--at", withinRecord, "--exact"}},
	} {
		got := answerOf(t, append(c.command, "--config", confined)...)
		if !strings.Contains(got.Err, c.want) || strings.Contains(got.Out, "bank") {
			t.Errorf("%v: want %q, got %+v", c.command, c.want, got)
		}
	}
}

// certaintyOfConfined is the certainty of an answer in JSON.
type certaintyOfConfined struct {
	Certainty, Only string
	Scopes          []struct {
		Certainty string
		Causes    []struct{ Kind string }
	}
	Since *certaintyOfConfined
}

func (c *certaintyOfConfined) expect(t *testing.T, command []string) {
	t.Helper()
	if c.Certainty != "unknown" || c.Only != whatIsRead || len(c.Scopes) == 0 {
		t.Errorf("%v: got %+v", command, c)
	}
	for _, s := range c.Scopes {
		if s.Certainty != "unknown" || len(s.Causes) != 1 || s.Causes[0].Kind != "not-permitted" {
			t.Errorf("%v: got %+v", command, s)
		}
	}
	if c.Since != nil {
		c.Since.expect(t, command)
	}
}

// A relay with the guide's permissions relays its namespace, and continues at its cursor.
func TestConfinedRelay(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	const relays = "\nrelays: [{name: deploys, start: beginning, resources: [configmaps], namespaces: [shop], operations: [deleted], to: {stdout: {}}}]\n"
	file := s.file(t, "relay", "bus:", strings.TrimPrefix(relays, "\n")+"server: {address: \"127.0.0.1:0\"}\nbus:")
	for _, want := range []string{"old", "new"} {
		if want == "new" {
			fillBus(t, s.js, []string{deletion("shop", "new", 900), deletion("bank", "hidden", 901)})
		}
		r := startRelay(t, "--config", file)
		r.out.waitFor(t, want, func(got string) bool { return got != "" && strings.Count(got, "\n") > 0 })
		if code := r.end(t); code != exitOK {
			t.Errorf("exit code %d: %s", code, r.complaints)
		}
		if got := relayedNames(r.out.String()); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if said := strings.ToLower(r.complaints.String()); strings.Contains(said, "permission") ||
			strings.Contains(said, "more objects") {
			t.Errorf("it says: %s", said)
		}
	}
	status := answerOf(t, "relay", "status", "--config", file)
	if status.Code != exitOK || !strings.Contains(status.Out, "deploys") ||
		strings.Contains(status.Out, "not been started") {
		t.Errorf("status: %+v", status)
	}
	if _, err := s.js.KeyValue(t.Context(), "kubecdc-relay"); err == nil {
		t.Error("the bucket of other relays was created")
	}
}

func deletion(namespace, name string, rv int) string {
	return fmt.Sprintf(
		`{"specversion":"1.0","source":"/kubernetes/prod","id":"configmaps/%s/%d","type":"dev.kubecdc.object.deleted","subject":"/x",`+
			`"time":"2026-11-20T15:00:00Z","cluster":"prod","apiversion":"v1","kind":"ConfigMap","resource":"configmaps","namespace":%q,"name":%q,"uid":"%s",`+
			`"op":"d","resourceversion":"%d","sequence":"%020d","data":{"op":"d","resourceVersion":"%d","before":{"data":{}}}}`,
		name, rv, namespace, name, name, rv, rv, rv)
}

// A confined user changes its file: it gets the records of its namespace, or none.
func TestConfinedUserChangesItsFile(t *testing.T) {
	t.Parallel()
	const (
		names    = "consumers: shop "
		subjects = `subjects: ["kubecdc.*.object.*.*.shop.*", "kubecdc.*.stream.*.*", "kubecdc.*.scope.*.*.*", "kubecdc.*.progress.*"]`
		relays   = "relays: [{name: deploys, start: beginning, to: {stdout: {}}}]\nserver: {address: \"127.0.0.1:0\"}\nbus:"
	)
	s := startShared(t)
	for _, c := range []struct{ name, old, changed string }{
		{"another namespace", subjects, `subjects: ["kubecdc.*.object.*.*.bank.*", "kubecdc.*.stream.*.*"]`},
		{"both namespaces", subjects, `subjects: ["kubecdc.*.object.*.*.*.*", "kubecdc.*.stream.*.*"]`},
		{"the whole stream", subjects, `subjects: ["kubecdc.>"]`},
		{
			"another order", subjects,
			`subjects: ["kubecdc.*.stream.*.*", "kubecdc.*.object.*.*.shop.*", "kubecdc.*.progress.*"]`,
		},
		{"the names of another reader", names, "consumers: bank "},
		{"no fixed names", "reader:", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			replaced := []string{c.old, c.changed}
			commands := [][]string{
				{"tail", "--no-follow", "cm"},
				{"get", "cm", "--at", withinRecord},
				{"history", "cm/vault", "-n", "bank", "--until", withinRecord},
			}
			if c.changed == "" {
				replaced = []string{"reader:", "#", "      consumers: shop", "      #", "      subjects:", "      #"}
				commands = commands[:1] // it waits for answers until they are late
			}
			for _, command := range commands {
				got := answerOf(t, append(command, "--config", s.file(t, "shop", replaced...))...)
				refused := strings.Contains(strings.ToLower(got.Err), "permissions violation") ||
					strings.Contains(got.Err, "outside: ")
				if got.Code == exitOK || got.Out != "" || !refused {
					t.Errorf("%v: got %+v", command, got)
				}
			}
			r := startRelay(t, "--config", s.file(t, "relay", append(replaced, "bus:", relays)...))
			r.complaints.waitFor(t, "a refusal", func(said string) bool {
				return strings.Contains(strings.ToLower(said), "permissions violation")
			})
			r.end(t)
			if out := r.out.String(); out != "" {
				t.Errorf("the relay wrote %s", out)
			}
		})
	}
}

// A file that a confined reader has made says nothing of the objects that its user may not read.
func TestFileOfAConfinedUserIsNotExact(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	for name, bus := range map[string][]string{"whole": {"--bus", "nats://admin:secret@" + s.address}, "confined": {
		"--config", s.file(t, "shop"),
	}} {
		for _, command := range [][]string{
			{"tail", "--no-follow", "-o", "json"},
			{"replay", "--from", "2026-11-20T14:02:00Z", "--to", "2026-11-20T14:08:00Z", "--target", "stdout:"},
		} {
			printed := answerOf(t, append(command, bus...)...)
			file := writeFile(t, filepath.Join(t.TempDir(), "events.jsonl"), printed.Out)
			got := answerOf(t, "get", "cm", "-A", "--at", withinRecord, "--exact", "--bus", "file:"+file)
			if want := map[string]int{"whole": exitOK, "confined": exitNotExact}[name]; got.Code != want {
				t.Errorf("%s by the %s user: want the code %d of a question to the file, got %+v", command[0], name,
					want, got)
			}
		}
	}
}

// Two confined readers do not share a name. The second one says who has it, and what to do.
func TestConfinedUserReadsTwice(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	file := s.file(t, "shop")
	first := startCommand(t, "tail", "--config", file)
	bustest.Wait(t, "its consumers", func() bool {
		stream, err := s.js.Stream(t.Context(), "KUBECDC")
		return err == nil && stream.CachedInfo().State.Consumers == 4
	})
	got := answerOf(t, "get", "cm", "-n", "shop", "--at", withinRecord, "--config", file)
	for _, want := range []string{
		"is in use by another reader (host ",
		"end that one, or read with a configuration and permissions for another name",
	} {
		if got.Code != exitFailed || got.Out != "" || !strings.Contains(got.Err, want) {
			t.Errorf("want %q, got %+v", want, got)
		}
	}
	if strings.Contains(got.Err, "names of its own") {
		t.Errorf("the advice of consume and that of the command: %s", got.Err)
	}
	first.end(t)
	if got := answerOf(t, "get", "cm", "-n", "shop", "--at", withinRecord, "--config", file); got.Code != exitOK {
		t.Errorf("after the end of the first: %+v", got)
	}
}

// --set selects another name. A refusal is reported at once.
func TestConfinedUserNamesItsConsumers(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	began := time.Now()
	got := answerOf(t, "get", "cm", "-n", "shop", "--at", withinRecord, "--config", s.file(t, "shop"), "--set",
		"bus.nats.reader.consumers=second")
	if got.Code != exitFailed || !strings.Contains(got.Err, "CONSUMER.CREATE.KUBECDC.second-") {
		t.Errorf("the name is not that of --set: %+v", got)
	}
	if took := time.Since(began); took > 8*time.Second { // an answer that never comes is late after 10 s
		t.Errorf("the refusal took %s", took)
	}
}

// A client of the past learns that an object which is not there may have existed.
func TestConfinedUserServes(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	config, err := clientcmd.BuildConfigFromFlags("", served(t, "--at", withinRecord, "--config", s.file(t, "shop")))
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for path, code := range map[string]int{
		"/api/v1/namespaces/bank/configmaps/vault": http.StatusNotFound, "/api/v1/configmaps": http.StatusOK,
		"/at/rv:145/api/v1/namespaces/bank/configmaps/vault": http.StatusNotFound,
	} {
		r, err := client.Get(config.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r.Body)
		r.Body.Close()
		warning := strings.Join(r.Header.Values("Warning"), "\n")
		if err != nil || r.StatusCode != code || !strings.Contains(warning, "unknown: "+whatIsRead) ||
			strings.Contains(string(body), `"namespace":"bank"`) {
			t.Errorf("%s: %d, %v, warning %q: %s", path, r.StatusCode, err, warning, body)
		}
	}
}

// Objects that a confined reader may not read are not shown as new.
func TestConfinedUserComparesWithTheCluster(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	cluster := kubeconfig(t, fakeAPI(t, "u", nil).URL)
	got := answerOf(t, "diff", withinRecord, "live", "cm", "--kubeconfig", cluster, "--config", s.file(t, "shop"))
	if got.Code != exitUsage || got.Out != "" || !strings.Contains(got.Err, "would be shown as new") ||
		!strings.Contains(got.Err, whatIsRead) {
		t.Errorf("got %+v", got)
	}
}

// The object store has the large events of all namespaces. A confined reader does not wait for it.
func TestConfinedUserHasNoObjectStore(t *testing.T) {
	t.Parallel()
	s := startShared(t)
	large := `{"specversion":"1.0","source":"/kubernetes/prod","id":"configmaps/u-big/149","type":"dev.kubecdc.object.created","subject":"/x",` +
		`"time":"2026-11-20T14:04:30Z","cluster":"prod","apiversion":"v1","kind":"ConfigMap","resource":"configmaps","namespace":"shop","name":"big","uid":"u-big",` +
		`"op":"c","resourceversion":"149","sequence":"00000000000000000149","dataref":"nats-obj://KUBECDC_LARGE/x",` +
		`"data":{"op":"c","resourceVersion":"149","truncated":["after"]}}`
	fillBus(t, s.js, []string{large})
	began := time.Now()
	got := answerOf(t, "history", "cm/big", "-n", "shop", "--config", s.file(t, "shop"), "-o", "name")
	if !strings.Contains(got.Err,
		"nats-obj://KUBECDC_LARGE/x: a reader with bus.nats.reader has no access to the object store") {
		t.Errorf("got %+v", got)
	}
	if took := time.Since(began); took > 4*time.Second { // a request to the store waits for 5 s
		t.Errorf("it took %s", took)
	}
}
