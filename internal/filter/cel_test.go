package filter_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubecdc/kubecdc/internal/filter"
	"github.com/kubecdc/kubecdc/internal/object"
)

var (
	deployments = &object.Resource{
		Group:      "apps",
		Version:    "v1",
		Name:       "deployments",
		Kind:       "Deployment",
		Namespaced: true,
	}
	nodes = &object.Resource{Version: "v1", Name: "nodes", Kind: "Node"}
)

const (
	three = `{"kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"1","generation":1,` +
		`"labels":{"app":"web","team":"payments"},"annotations":{"a/b":"1"}},"spec":{"replicas":3,"paused":false,"share":0.5,` +
		`"containers":[{"name":"a","image":"x:1"},{"name":"b","image":"y:1"}],"big":9223372036854775808},"status":{"ready":3,"none":null}}`
	five = `{"kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"2","generation":2,` +
		`"labels":{"app":"web","team":"search"},"annotations":{"a/b":"1"}},"spec":{"replicas":5,"paused":false,"share":0.5,` +
		`"containers":[{"name":"a","image":"x:1"},{"name":"b","image":"y:2"}],"big":9223372036854775808},"status":{"ready":3,"none":null}}`
	readyTwo = `{"kind":"Deployment","metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"2","generation":1,` +
		`"labels":{"app":"web","team":"payments"},"annotations":{"a/b":"1"}},"spec":{"replicas":3,"paused":false,"share":0.5,` +
		`"containers":[{"name":"a","image":"x:1"},{"name":"b","image":"y:1"}],"big":9223372036854775808},"status":{"ready":2,"none":null}}`
)

// delta returns a change of deployments.apps shop/web. before and after are JSON, or "" if there is
// none.
func delta(op object.Op, before, after string) *object.Delta {
	return deltaOf(deployments, "shop", "web", op, before, after)
}

func deltaOf(r *object.Resource, namespace, name string, op object.Op, before, after string) *object.Delta {
	ref := object.NewRef(r, namespace, name, "u1")
	version := func(rv uint64, doc string) *object.Object {
		if doc == "" {
			return nil
		}
		return object.New(ref, rv, 0, nil, []byte(doc))
	}
	return &object.Delta{
		Op:              op,
		Ref:             ref,
		Before:          version(1, before),
		After:           version(2, after),
		ResourceVersion: 2,
		Previous:        1,
	}
}

// deltas returns one delta of each op, of deployments.apps shop/web.
func deltas() map[string]*object.Delta {
	return map[string]*object.Delta{
		"created": delta(object.Created, "", three),
		"scaled":  delta(object.Updated, three, five),
		"status":  delta(object.Updated, three, readyTwo),
		"deleted": delta(object.Deleted, three, ""),
		"read":    delta(object.Read, "", three),
		"entered": delta(object.Entered, three, five),
		"left":    delta(object.Left, three, ""),
	}
}

func resourced(tb testing.TB, o filter.Options, r *object.Resource) *filter.Resourced {
	tb.Helper()
	f, err := filter.New(o)
	if err != nil {
		tb.Fatalf("%q: %v", o.Where, err)
	}
	return f.For(r)
}

func TestWhere(t *testing.T) {
	// The values name the deltas that are sent. Brackets mark deltas for which the expression
	// cannot be evaluated.
	for where, sent := range map[string]string{
		`true`:             "created deleted entered left read scaled status",
		`false`:            "",
		`op == "u"`:        "scaled status",
		`op in ["c", "d"]`: "created deleted",
		`resource == "deployments.apps" && namespace == "shop" && name == "web"`: "created deleted entered left read scaled status",
		`namespace.startsWith("kube-")`:                                          "",
		`name.matches("^w[a-f]b$")`:                                              "created deleted entered left read scaled status",
		`namespace == after.metadata.namespace && namespace != "namespace" && r'\' + namespace + """namespace" """ == '\\shopnamespace" ' // namespace`: "created entered read scaled status [deleted] [left]",
		`{namespace: 1}[namespace] == 1 && after.?namespace != optional.of(namespace) && (true ? namespace : "") != ""`:                                 "created deleted entered left read scaled status",
		`labels["team"] == "payments"`:                                                "created deleted left read status",
		`labels["tier"] == "x"`:                                                       "[created] [deleted] [entered] [left] [read] [scaled] [status]",
		`labels[?"tier"].orValue("") == "x"`:                                          "",
		`"tier" in labels`:                                                            "",
		`labels.exists(k, k == "app")`:                                                "created deleted entered left read scaled status",
		`size(labels) == 2`:                                                           "created deleted entered left read scaled status",
		`before == null`:                                                              "created read",
		`after == null`:                                                               "deleted left",
		`after.spec.replicas > 3`:                                                     "entered scaled [deleted] [left]",
		`has(after.spec.replicas)`:                                                    "created entered read scaled status [deleted] [left]",
		`op == "d" || op == "l" || after.spec.replicas > 3`:                           "deleted entered left scaled",
		`after.?spec.?replicas.orValue(0) > 3`:                                        "entered scaled",
		`before.spec.replicas != after.spec.replicas`:                                 "entered scaled [created] [deleted] [left] [read]",
		`op == "u" && before.spec != after.spec`:                                      "scaled",
		`op == "u" && before.spec.containers == after.spec.containers`:                "status",
		`op == "u" && after.spec == {"replicas": 3}`:                                  "",
		`op == "u" && after.spec.share == 0.5`:                                        "scaled status",
		`op == "u" && after.spec.replicas == 3.0`:                                     "status",
		`op == "u" && after.spec.big > 9.0e18`:                                        "scaled status",
		`op == "u" && after.spec.paused == false`:                                     "scaled status",
		`op == "u" && after.status.none == null`:                                      "scaled status",
		`op == "u" && after.metadata.annotations["a/b"] == "1"`:                       "scaled status",
		`op == "u" && after.spec.containers[1].image == "y:2"`:                        "scaled",
		`op == "u" && after.spec.containers[2].image == "y:2"`:                        "[scaled] [status]",
		`op == "u" && after.spec.containers.exists(c, c.image == "y:2")`:              "scaled",
		`op == "u" && after.spec.containers.map(c, c.name) == ["a","b"]`:              "scaled status",
		`op == "u" && {"name": "a", "image": "x:1"} in after.spec.containers`:         "scaled status",
		`op == "u" && (after.spec.containers + [1]).size() == 3`:                      "scaled status",
		`op == "u" && after.spec.replicas / 0 == 1`:                                   "[scaled] [status]",
		`op == "u" && string(after.spec.replicas) == "5"`:                             "scaled",
		`op == "u" && after.spec.replicas.startsWith("x")`:                            "[scaled] [status]",
		`op == "u" && type(after.spec) == map && type(after.spec.containers) == list`: "scaled status",

		`changed("spec")`:                                            "created deleted entered left read scaled",
		`op == "u" && changed("spec")`:                               "scaled",
		`op == "u" && changed("spec.nothing")`:                       "",
		`op == "u" && changed("spec.containers[*].image")`:           "scaled",
		`op == "u" && changed("spec.containers[*].name")`:            "",
		`op == "u" && changed("spec.containers[*].image.none")`:      "",
		`op == "u" && changed("metadata.labels[*]")`:                 "scaled",
		`op == "u" && changed('metadata.annotations["a/b"]')`:        "",
		`op == "u" && changed("status.none")`:                        "",
		`op == "u" && changed("metadata")`:                           "scaled status",
		`changed("kind")`:                                            "created deleted left read",
		`changedOnly("status")`:                                      "status",
		`changedOnly("spec")`:                                        "",
		`changedOnly("spec", "metadata.labels")`:                     "entered scaled",
		`changedOnly("spec", "metadata.labels.team")`:                "entered scaled",
		`!changedOnly("status")`:                                     "created deleted entered left read scaled",
		`op != "u" || changed("spec") || changed("metadata.labels")`: "created deleted entered left read scaled",
	} {
		for _, onError := range []string{"", "send", "drop"} {
			reg := prometheus.NewRegistry()
			x := resourced(t,
				filter.Options{Where: where, OnError: onError, Rule: "watch[0]", Metrics: filter.NewMetrics(reg)},
				deployments)
			want, failing := map[string]string{}, 0
			for name := range deltas() {
				want[name] = filter.ReasonWhere
			}
			for name := range strings.FieldsSeq(sent) {
				if bare := strings.Trim(name, "[]"); bare == name {
					want[name] = ""
				} else {
					failing++
					want[bare] = ""
					if onError == "drop" {
						want[bare] = filter.ReasonError
					}
				}
			}
			got := map[string]string{}
			for name, d := range deltas() {
				got[name] = x.Withholds(d)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, onError %q: -want +got\n%s", where, onError, diff)
			}
			if n := counted(t, reg); n != failing {
				t.Errorf("%s: %d errors counted, want %d", where, n, failing)
			}
		}
	}
}

// A name in backticks is the name of a member, even if it contains namespace. Elsewhere namespace
// is the variable, even after a backtick that is part of a string or comment.
func TestNamesInBackticks(t *testing.T) {
	d := delta(object.Created, "",
		`{"metadata":{"namespace":"shop","labels":{"app/namespace":"x","namespace":"y","a.namespace-b":"z"}}}`)
	for _, where := range []string{
		"after.metadata.labels.`app/namespace` == 'x'",
		"namespace == 'shop' && after.metadata.labels.`app/namespace` + namespace + after.metadata.labels.`a.namespace-b` == 'xshopz'",
		"after.metadata.labels.`namespace` == 'y' && has(after.metadata.labels.`app/namespace`)",
		"after.metadata.?labels.?`app/namespace`.orValue('') == 'x'",
		"labels.`app/namespace` == 'x' && namespace == 'shop'",
		"'`' + namespace == '`shop' && namespace != '`'",
		"r'`' + \"\"\"`\"\"\" + namespace == '``shop' && b'`' != b'' // `\n && namespace == 'shop'",
	} {
		x := resourced(t, filter.Options{Where: where, OnError: "drop"}, deployments)
		if got := x.Withholds(d); got != "" {
			t.Errorf("%s: withheld: %s", where, got)
		}
	}
	if _, err := filter.New(filter.Options{Where: "after.`namespace == 'x'"}); err == nil {
		t.Error("a backtick that is not closed is no error")
	}
}

// counted returns the value of the only metric.
func counted(t *testing.T, reg *prometheus.Registry) int {
	t.Helper()
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || families[0].GetName() != "kubecdc_filter_errors_total" ||
		len(families[0].GetMetric()) != 1 {
		t.Fatalf("gathered %v: %v", families, err)
	}
	return int(families[0].GetMetric()[0].GetCounter().GetValue())
}

func TestWhereIsWrong(t *testing.T) {
	for where, want := range map[string]string{
		`op =`:                               "column 4: token recognition error",
		`op = "u"`:                           "column 4: token recognition error",
		`op == "u`:                           "column 7: token recognition error",
		`op == 1`:                            "column 4: found no matching overload for '_==_'",
		`op ==`:                              "column 6: mismatched input '<EOF>'",
		`ater.spec == 1`:                     "column 1: undeclared reference to 'ater' (did you mean 'after'?); available: op, before",
		"op == \"u\" &&\n  chnged(\"x\")":    "line 2, column 9: undeclared reference to 'chnged'",
		`after.spec.paused`:                  "column 1: may have any type, want bool",
		`namespace == 1`:                     "column 11: found no matching overload for '_==_' applied to '(string, int)'",
		`names.namespace == namespace.x`:     "column 1: undeclared reference to 'names'",
		`"x"`:                                "column 1: has type string, want bool",
		`changed(name)`:                      `column 9: a path must be a quoted string`,
		`op == "u" && changed(1)`:            `column 22: a path must be a quoted string`,
		`changed()`:                          `column 8: changed takes one path`,
		`changed("a", "b")`:                  `column 8: changed takes one path`,
		`changedOnly()`:                      `column 12: changedOnly takes one or more paths`,
		`changed("spec..x")`:                 `column 9: path "spec..x": character 6: expected a name`,
		`changedOnly("a", "b[")`:             `column 18: path "b[": character 3: expected [*] or ["name"]`,
		`changed("metadata.labels.a.b/c")`:   `column 9: path "metadata.labels.a.b/c": character 1: names nothing: a name with dots`,
		`changedOnly("metadata.labels.a.b")`: `column 13: path "metadata.labels.a.b": character 1: names nothing: a name with dots`,
		`changed("*")`:                       `column 9: path "*": character 1: each element, or member, is written [*]`,
		`name.matches("(")`:                  "column 1: ",
		strings.Repeat("!", 20<<10) + "true": "column 1: ",
		`@delta == 1`:                        "column 1: token recognition error",
	} {
		_, err := filter.New(filter.Options{Where: where})
		var wrong *filter.ExpressionError
		if !errors.As(err, &wrong) {
			t.Errorf("%.40q: %v", where, err)
			continue
		}
		if !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", where, err, want)
		}
	}
}

func TestNewTellsAllThatIsWrong(t *testing.T) {
	_, err := filter.New(filter.Options{
		Operations: []string{"created", "read"}, Noise: []string{"status-only", "status"}, OnError: "ask", Where: "x",
	})
	for _, want := range []string{
		`operation "read": want created, updated or deleted`,
		`noise "status": want one of endpoints-churn, lease-heartbeats,`,
		`onError "ask": want send or drop`, "undeclared reference to 'x'",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The cost of an expression is limited, whatever it does with the object.
func TestWhereCostsTooMuch(t *testing.T) {
	list := "[" + strings.Repeat(`"an element",`, 999) + `"x"]`
	d := delta(object.Created, "", `{"metadata":{},"list":`+list+`}`)
	for _, where := range []string{
		`after.list.all(a, after.list.all(b, a + b != "none"))`,
		`after.list.all(a, after.list.all(b, changed("metadata") || a == b))`,
	} {
		reg := prometheus.NewRegistry()
		x := resourced(t, filter.Options{Where: where, OnError: "drop", Rule: "r", Metrics: filter.NewMetrics(reg)},
			deployments)
		if got := x.Withholds(d); got != filter.ReasonError || counted(t, reg) != 1 {
			t.Errorf("%s: %q, %d errors", where, got, counted(t, reg))
		}
	}
	x := resourced(t, filter.Options{Where: `after.list.all(a, a != "none")`, OnError: "drop"}, deployments)
	if got := x.Withholds(d); got != "" {
		t.Errorf("1,000 comparisons: %q", got)
	}
}

// An operator that reads a whole object or array costs the size of the value, not one. With large
// values, 500 such operators take seconds.
func TestWhereCostsOfWholeValues(t *testing.T) {
	of := func(x string) string {
		var list []string
		for i := range 1000 {
			list = append(list, fmt.Sprintf(`{"name":"n%d","value":%d}`, i, i))
		}
		return `{"metadata":{},"times":[` + strings.Repeat("1,", 499) + `1],"spec":{"list":[` +
			strings.Join(list, ",") + `],"x":"` + x + `"}}`
	}
	d := delta(object.Updated, of("1"), of("2"))
	for _, what := range []string{
		`before.spec != after.spec`,
		`!(before.spec == after.spec)`,
		`!(after.spec in before.spec.list)`,
		`(after.spec.list + after.spec.list).size() > 1`,
	} {
		for where, want := range map[string]string{what: "", `after.times.all(i, ` + what + `)`: filter.ReasonError} {
			x := resourced(t, filter.Options{Where: where, OnError: "drop"}, deployments)
			if got := x.Withholds(d); got != want {
				t.Errorf("%s: %q, want %q", where, got, want)
			}
		}
	}
}

// The first error in a minute is logged, without any content of the object.
func TestWhereErrorsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		reg := prometheus.NewRegistry()
		x := resourced(t, filter.Options{
			Where:   `{"a": 1}[after.data.key] == 1`,
			OnError: "drop",
			Rule:    "watch[7]",
			Log:     slog.New(slog.NewTextHandler(&out, nil)),
			Metrics: filter.NewMetrics(reg),
		}, deployments)
		d := delta(object.Created, "", `{"data":{"key":"hunter2"}}`)
		for range 3 {
			if got := x.Withholds(d); got != filter.ReasonError {
				t.Fatalf("%q", got)
			}
		}
		<-time.After(time.Minute)
		x.Withholds(d)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 || counted(t, reg) != 4 {
			t.Errorf("%d errors, logged:\n%s", counted(t, reg), out.String())
		}
		for _, want := range []string{
			"level=WARN", "rule=watch[7]", "resource=deployments.apps", "namespace=shop", "name=web", "op=c",
			"error_kind=no_such_key", "on_error=drop",
		} {
			if !strings.Contains(lines[0], want) {
				t.Errorf("no %s in %s", want, lines[0])
			}
		}
		if strings.Contains(out.String(), "hunter2") {
			t.Errorf("logged: %s", out.String())
		}
	})
}

// Goroutines share a filter and its pool of evaluations.
func TestWithholdsConcurrently(t *testing.T) {
	x := resourced(t,
		filter.Options{Where: `after.spec.replicas == int(after.metadata.name)`, OnError: "drop", Noise: []string{
			"status-only",
		}}, deployments)
	var g sync.WaitGroup
	for worker := range 8 {
		g.Go(func() {
			for i := range 500 {
				doc := func(n int) string {
					return fmt.Sprintf(`{"metadata":{"name":"%d"},"spec":{"replicas":%d}}`, i, n)
				}
				if got := x.Withholds(delta(object.Updated, doc(-1), doc(i))); got != "" {
					t.Errorf("worker %d, %d: %q", worker, i, got)
				}
				if got := x.Withholds(delta(object.Updated, doc(-1), doc(i+1))); got != filter.ReasonWhere {
					t.Errorf("worker %d, %d: %q", worker, i, got)
				}
			}
		})
	}
	g.Wait()
}

// The error metric of a rule with an expression is 0 before the first error.
func TestErrorsBeginAtZero(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := filter.NewMetrics(reg)
	for rule, where := range map[string]string{"watch[0]": "true", "watch[1]": ""} {
		if _, err := filter.New(filter.Options{Where: where, Rule: rule, Metrics: m}); err != nil {
			t.Fatal(err)
		}
	}
	want := "# HELP kubecdc_filter_errors_total Changes for which the rule's where could not be evaluated; onError decides whether they were sent.\n" +
		"# TYPE kubecdc_filter_errors_total counter\nkubecdc_filter_errors_total{rule=\"watch[0]\"} 0\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
