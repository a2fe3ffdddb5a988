package answers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubecdc/kubecdc/internal/past/record"
	"github.com/kubecdc/kubecdc/internal/past/timeline"
	"github.com/kubecdc/kubecdc/internal/screen/answers"
	"github.com/kubecdc/kubecdc/internal/screen/printer"
	"github.com/kubecdc/kubecdc/internal/screen/terminal"
	"github.com/kubecdc/kubecdc/internal/serve/apiview"
	"github.com/kubecdc/kubecdc/internal/serve/views"
	"github.com/kubecdc/kubecdc/pkg/consume"
	"github.com/kubecdc/kubecdc/pkg/consume/fromfile"
)

// growing is the record of an agent that begins at began and observes ConfigMaps. It is read as it
// is at the present.
type growing struct {
	began time.Time
	lines []string
	at    []time.Time // when each line is stored
	reads int
}

// Traits implements consume.Source.
func (g *growing) Traits() consume.Traits { return consume.Traits{OneLog: true} }

// Read implements consume.Source.
func (g *growing) Read(_ context.Context, q consume.Query) (consume.Reader, error) {
	g.reads++
	var stored strings.Builder
	for i, line := range g.lines {
		if !g.at[i].After(time.Now()) {
			stored.WriteString(line)
		}
	}
	return fromfile.NewLines("record", strings.NewReader(stored.String()), q), nil
}

// add adds an event that is observed at a time after the begin, and stored at a later one.
func (g *growing) add(observed, stored time.Duration, id, kind, attributes, data string) {
	g.lines = append(g.lines,
		fmt.Sprintf(
			`{"specversion":"1.0","id":%q,"source":"/kubernetes/c","type":"dev.kubecdc.%s","time":%q,"cluster":"c","clusteruid":"1",%s"data":%s}`+
				"\n",
			id, kind, g.began.Add(observed).Format(time.RFC3339Nano), attributes, data))
	g.at = append(g.at, g.began.Add(stored))
}

// newGrowing returns the record of an agent that runs for a number of minutes. A ConfigMap changes
// 24 s after minute 5. Its event is stored half a minute later.
func newGrowing(minutes int) *growing {
	g := &growing{began: time.Now()}
	const writer = `"writer":"ffff","run":"0-946684800000"`
	scope := `"apiversion":"v1","resource":"configmaps","scope":"configmaps",`
	object := func(op string, rv int) string {
		return fmt.Sprintf(
			`"op":%q,"apiversion":"v1","kind":"ConfigMap","resource":"configmaps","scope":"configmaps","namespace":"a","name":"n","uid":"u","resourceversion":"%[2]d","sequence":"%020[2]d",`,
			op, rv)
	}
	content := func(op string, rv int, value string) string {
		return fmt.Sprintf(
			`{"op":%q,"snapshot":"s","resourceVersion":"%[2]d","after":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"n","namespace":"a","uid":"u","resourceVersion":"%[2]d"},"data":{"value":%[3]q}}}`,
			op, rv, value)
	}
	g.add(0, 0, "started", "scope.started", scope, `{"resourceVersion":"100",`+writer+`}`)
	g.add(0, 0, "s/started", "snapshot.started", scope,
		`{"snapshot":"s","resourceVersion":"100","objects":1,`+writer+`}`)
	g.add(0, 0, "u/100/r", "object.read", object("r", 100), content("r", 100, "old"))
	g.add(0, 0, "s/completed", "snapshot.completed", scope, `{"snapshot":"s","resourceVersion":"100","objects":1}`)
	for m := range minutes {
		at := time.Duration(m+1) * time.Minute
		rv := 100
		if m+1 > 5 {
			rv = 110
		}
		g.add(at, at, fmt.Sprint("progress/ffff/0-946684800000/", m+1), "progress", "",
			fmt.Sprintf(
				`{%s,"number":%d,"since":%q,"scopes":[{"resource":"configmaps","resourceVersion":"%d","to":%q}]}`,
				writer, m+1, g.began.Format(time.RFC3339), rv, g.began.Add(at-time.Second).Format(time.RFC3339)))
		if m+1 == 5 {
			g.add(5*time.Minute+24*time.Second, 5*time.Minute+54*time.Second, "u/105", "object.updated",
				object("u", 105), content("u", 105, "new"))
		}
	}
	return g
}

// question returns a question about all objects of a record.
func question(t *testing.T, s consume.Source) (q *answers.Question, stdout, stderr *bytes.Buffer) {
	t.Helper()
	wanted, err := record.NewSelection([]string{"configmaps"}, "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	q = answers.New(&record.Record{Source: s}, wanted, printer.Format{Name: printer.JSON},
		&terminal.Output{Writer: stdout}, &terminal.Output{Writer: stderr})
	if err := q.Resolve(t.Context()); err != nil {
		t.Fatal(err)
	}
	return q, stdout, stderr
}

// viewsOf reads the views of a question.
func viewsOf(q *answers.Question) *views.Reader {
	return &views.Reader{Question: &q.Question, Say: q.SayCertainty}
}

// An answer about a moment that is not final says when to ask again, in words and in JSON. Then it
// is exact.
func TestAnswerSaysWhenToAskAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		minutes int           // for which the agent runs
		now     time.Duration // since it began
		at      func(began time.Time) timeline.Moment
		again   time.Duration // 0: nothing shows when
		then    string        // the certainty at that time
		value   string        // of the ConfigMap at that time
	}{
		{
			"young", 60, 5*time.Minute + 30*time.Second, at(5*time.Minute + 25*time.Second),
			7*time.Minute + 30*time.Second, "exact", "new",
		},
		{
			"a part of a second", 60, 5*time.Minute + 30*time.Second, at(5*time.Minute + 25*time.Second + 1),
			7*time.Minute + 31*time.Second, "exact", "new",
		},
		{
			"young, of an agent that has ended", 5, 5*time.Minute + 30*time.Second, at(5*time.Minute + 25*time.Second),
			7*time.Minute + 30*time.Second, "unknown", "new",
		},
		{"old, of an agent that has ended", 5, 50 * time.Minute, at(6 * time.Minute), 0, "", ""},
		{
			"a version that is not there yet", 60, 5*time.Minute + 30*time.Second, version(108),
			7*time.Minute + 35*time.Second, "exact", "new",
		},
		{"a version after the end of a record", 5, 50 * time.Minute, version(108), 0, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newGrowing(c.minutes)
				<-time.After(c.now)
				ask := func() (certainty string, again time.Time, value, words string) {
					q, stdout, stderr := question(t, g)
					if err := q.Get(t.Context(), c.at(g.began)); err != nil {
						t.Fatal(err)
					}
					var list struct {
						Items []struct {
							Data struct{ Value string }
						}
						Kubecdc struct {
							Certainty string
							AskAgain  time.Time
							Scopes    []struct {
								Causes []struct{ AskAgain time.Time }
							}
						}
					}
					if err := json.Unmarshal(stdout.Bytes(), &list); err != nil || len(list.Items) != 1 ||
						len(list.Kubecdc.Scopes) != 1 {
						t.Fatalf("%v: %s", err, stdout)
					}
					causes := list.Kubecdc.Scopes[0].Causes
					if len(causes) > 0 && !causes[0].AskAgain.Equal(list.Kubecdc.AskAgain) {
						t.Errorf("again %s, of the scope %s", list.Kubecdc.AskAgain, causes[0].AskAgain)
					}
					return list.Kubecdc.Certainty, list.Kubecdc.AskAgain, list.Items[0].Data.Value, stderr.String()
				}
				certainty, again, value, words := ask()
				if wanted := map[bool]string{true: "new", false: "old"}[c.again == 0]; certainty != "unknown" ||
					value != wanted {
					t.Errorf("%s, %q: want %q", certainty, value, wanted)
				}
				says := strings.Contains(words, "not final yet, the record is complete up to ")
				if c.again == 0 {
					if !again.IsZero() || says || !strings.Contains(words, "the record ends earlier") {
						t.Errorf("again %s; %s", again, words)
					}
					return
				}
				want := g.began.Add(c.again)
				if !again.Equal(want) || !says ||
					!strings.Contains(words, "ask again at "+want.Local().Format(time.RFC3339)) {
					t.Errorf("again %s, want %s; %s", again, want, words)
				}
				<-time.After(time.Until(want))
				certainty, again, value, words = ask()
				if certainty != c.then || value != c.value || !again.IsZero() {
					t.Errorf("then: %s, %q, again %s; %s", certainty, value, again, words)
				}
			})
		})
	}
}

func at(after time.Duration) func(time.Time) timeline.Moment {
	return func(began time.Time) timeline.Moment { return timeline.At(began.Add(after)) }
}

func version(rv uint64) func(time.Time) timeline.Moment {
	return func(time.Time) timeline.Moment { return timeline.AtVersion(rv, 0) }
}

// A server reads a moment that was not final again, once it can be. A moment that stays undecided
// is read again at most once a minute, and a final one never.
func TestServerReadsAMomentAgain(t *testing.T) {
	t.Parallel()
	type answerAt struct {
		after   time.Duration
		warning string
		value   string
		read    bool
	}
	const again, earlier = "ask again at ", "the record ends earlier"
	for _, c := range []struct {
		name    string
		minutes int
		at      func(began time.Time) timeline.Moment
		answers []answerAt
	}{
		{"young", 60, at(5*time.Minute + 25*time.Second), []answerAt{
			{5*time.Minute + 30*time.Second, again, "old", true},
			{6*time.Minute + 30*time.Second, again, "old", false}, // as it stood
			{7*time.Minute + 30*time.Second, "", "new", true},
			{time.Hour, "", "new", false},
		}},
		{"old enough", 60, at(4 * time.Minute), []answerAt{{6*time.Minute + 5*time.Second, "", "old", true}, {
			time.Hour, "", "old", false,
		}}},
		{"of an agent that has ended", 5, at(5*time.Minute + 25*time.Second), []answerAt{
			{10 * time.Minute, earlier, "new", true},
			{10*time.Minute + 59*time.Second, earlier, "new", false},
			{11 * time.Minute, earlier, "new", true},
			{11*time.Minute + 30*time.Second, earlier, "new", false},
		}},
		{"a version", 60, version(108), []answerAt{
			{5*time.Minute + 30*time.Second, again, "old", true},
			{6*time.Minute + 29*time.Second, again, "old", false},
			{6*time.Minute + 30*time.Second, "", "new", true},
			{time.Hour, "", "new", false},
		}},
	} {
		for _, root := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, root %t", c.name, root), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					g := newGrowing(c.minutes)
					q, _, _ := question(t, g)
					s := &apiview.Server{Token: "x", Open: viewsOf(q).ReadViewForClient}
					path := "/at/" + c.at(g.began).String() + "/api/v1/namespaces/a/configmaps"
					for i, want := range c.answers {
						<-time.After(time.Until(g.began.Add(want.after)))
						before := g.reads
						if root && i == 0 {
							var err error
							s.Root, err = viewsOf(q).ReadView(t.Context(), c.at(g.began), nil)
							if err != nil {
								t.Fatal(err)
							}
							path = "/api/v1/namespaces/a/configmaps"
						}
						r := httptest.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1"+path, http.NoBody)
						r.Header.Set("Authorization", "Bearer x")
						w := httptest.NewRecorder()
						s.ServeHTTP(w, r)
						var list struct {
							Items []struct {
								Data struct{ Value string }
							}
						}
						if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Items) != 1 {
							t.Fatalf("after %s: %v: %d %s", want.after, err, w.Code, w.Body)
						}
						warning := w.Header().Get("Warning")
						if !strings.Contains(warning, want.warning) || (want.warning == "") != (warning == "") {
							t.Errorf("after %s: warning %q, want %q", want.after, warning, want.warning)
						}
						if got := list.Items[0].Data.Value; got != want.value || (g.reads > before) != want.read {
							t.Errorf("after %s: %q, and %d reads: want %q, and reading %t", want.after, got,
								g.reads-before, want.value, want.read)
						}
					}
				})
			})
		}
	}
}

// newQuiet returns the record of an agent that observes Events for a number of minutes. No Event
// comes. The agent settles the scope each ten minutes, by a list 45 s before. The progress of the
// next minute reports that list. missed is a turn at which the list was slow.
func newQuiet(minutes, missed int) *growing {
	g := newGrowing(0)
	to := time.Duration(0)
	for m := 1; m <= minutes; m++ {
		if turn := (m - 1) / 10; turn > 0 && (m-1)%10 == 0 && turn != missed {
			to = time.Duration(10*turn)*time.Minute - 45*time.Second
		}
		at := time.Duration(m) * time.Minute
		g.add(at, at, fmt.Sprint("progress/ffff/0-946684800000/", m), "progress", "",
			fmt.Sprintf(
				`{"writer":"ffff","run":"0-946684800000","number":%d,"since":%q,"scopes":[{"resource":"configmaps","resourceVersion":"%d","to":%q}]}`,
				m, g.began.Format(time.RFC3339), 100+int(to/time.Minute), g.began.Add(to).Format(time.RFC3339)))
	}
	return g
}

// A quiet scope without bookmarks is settled each ten minutes, so a moment becomes final later.
func TestQuietScopeSaysWhenToAskAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		minutes, missed int
		now             time.Duration
		at              func(began time.Time) timeline.Moment
		again           string // minutes and seconds after the begin; "": nothing shows when
	}{
		"after the last turn":            {60, 0, 21*time.Minute + 30*time.Second, at(21 * time.Minute), "32:15"},
		"after the next turn, perhaps":   {60, 0, 29*time.Minute + 30*time.Second, at(29 * time.Minute), "42:00"},
		"before the record speaks of it": {60, 0, 30*time.Minute + 30*time.Second, at(25 * time.Minute), "32:15"},
		"the list of a turn was slow":    {60, 3, 33 * time.Minute, at(21 * time.Minute), "42:15"},
		"a version":                      {60, 0, 21*time.Minute + 30*time.Second, version(125), "32:15"},
		"the agent has ended":            {21, 0, 50 * time.Minute, at(21 * time.Minute), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := newQuiet(c.minutes, c.missed)
				<-time.After(c.now)
				ask := func() (certainty string, again time.Time) {
					q, stdout, _ := question(t, g)
					if err := q.Get(t.Context(), c.at(g.began)); err != nil {
						t.Fatal(err)
					}
					var list struct {
						Kubecdc struct {
							Certainty string
							AskAgain  time.Time
						}
					}
					if err := json.Unmarshal(stdout.Bytes(), &list); err != nil {
						t.Fatal(err)
					}
					return list.Kubecdc.Certainty, list.Kubecdc.AskAgain
				}
				certainty, again := ask()
				got := ""
				if !again.IsZero() {
					left := again.Sub(g.began)
					got = fmt.Sprintf("%d:%02d", int(left.Minutes()), int(left.Seconds())%60)
				}
				if certainty != "unknown" || got != c.again {
					t.Fatalf("%s, ask again after %s, want %s", certainty, got, c.again)
				}
				if again.IsZero() {
					return
				}
				<-time.After(time.Until(again))
				certainty, again = ask()
				if certainty != "exact" {
					t.Errorf("then: %s, ask again at %s", certainty, again)
				}
			})
		})
	}
}
