package prometheus_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const dashboardFile = "../../charts/kubecdc/monitoring/dashboard.json"

// source is the data source of a query of the dashboard.
type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// variable is a selection at the top of the dashboard.
type variable struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Datasource source `json:"datasource"`
	Definition string `json:"definition"`
	AllValue   string `json:"allValue"`
}

// panel is a panel or, without targets, a row.
type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  source `json:"datasource"`
	Grid        struct {
		X, Y, W, H int
	} `json:"gridPos"`
	Targets []struct {
		RefID      string `json:"refId"`
		Datasource source `json:"datasource"`
		Expr       string `json:"expr"`
		Legend     string `json:"legendFormat"`
	} `json:"targets"`
	Field struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
}

// dashboard has the fields of Grafana's model that matter here.
type dashboard struct {
	UID           string `json:"uid"`
	SchemaVersion int    `json:"schemaVersion"`
	Templating    struct {
		List []variable `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDashboard checks that the dashboard has everything that Grafana and a person need.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.UID != "kubecdc" || d.SchemaVersion < 36 { // Grafana 10 writes 36 to 39, and migrates older versions
		t.Errorf("uid %q, schemaVersion %d", d.UID, d.SchemaVersion)
	}
	var names []string
	for _, v := range d.Templating.List {
		names = append(names, v.Name)
	}
	if want := []string{"datasource", "namespace", "job", "instance"}; !slices.Equal(names, want) {
		t.Errorf("variables %v, want %v", names, want)
	}
	ids := map[int]string{}
	taken := map[[2]int]string{} // cells of the grid
	for i, p := range d.Panels {
		if other, ok := ids[p.ID]; ok || p.ID == 0 {
			t.Errorf("panel %q has id %d, as %q", p.Title, p.ID, other)
		}
		ids[p.ID] = p.Title
		for x := p.Grid.X; x < p.Grid.X+p.Grid.W; x++ {
			for y := p.Grid.Y; y < p.Grid.Y+p.Grid.H; y++ {
				if other, ok := taken[[2]int{x, y}]; ok || x >= 24 {
					t.Fatalf("panel %q at %d, %d: beyond the grid or on %q", p.Title, x, y, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if i == 0 && p.Type != "row" {
			t.Errorf("panel %q is in no row", p.Title)
		}
		if p.Type == "row" {
			continue
		}
		if p.Title == "" || !strings.HasSuffix(p.Description, ".") || p.Field.Defaults.Unit == "" ||
			len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q: description %q, unit %q, %d queries, data source %v", p.Title, p.Description,
				p.Field.Defaults.Unit, len(p.Targets), p.Datasource)
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			if refs[target.RefID] || target.Datasource != (source{"prometheus", "${datasource}"}) {
				t.Errorf("panel %q: query %s twice, or data source %v", p.Title, target.RefID, target.Datasource)
			}
			refs[target.RefID] = true
			// Each selector uses the selected values.
			selectors := strings.Count(target.Expr, "{")
			byInstance := strings.Count(target.Expr, `{namespace=~"$namespace", job=~"$job", instance=~"$instance"`)
			if selectors == 0 || byInstance != selectors {
				t.Errorf("panel %q: %s does not select by namespace, job and instance", p.Title, target.Expr)
			}
		}
	}
}

// gapSelectors returns the selectors by which an expression chooses gaps, and those that they must
// not meet, without the selection at the top of the dashboard.
func gapSelectors(expr string) []string {
	expr = strings.NewReplacer(
		`namespace=~"$namespace", job=~"$job", instance=~"$instance", `, "",
		`{namespace=~"$namespace", job=~"$job", instance=~"$instance"}`, "",
	).Replace(expr)
	all := regexp.MustCompile(`kubecdc_\w+(?:\{[^}]*\})?`).FindAllString(expr, -1)
	slices.Sort(all)
	return slices.Compact(all)
}

// TestLostGapsAreThoseOfTheAlert checks that a panel that counts lost history counts the gaps for
// which the alert fires: otherwise one of them shows a loss that the other denies.
func TestLostGapsAreThoseOfTheAlert(t *testing.T) {
	want := gapSelectors(allRules(t)["KubecdcGap"].Expr)
	if !slices.ContainsFunc(want, func(s string) bool { return strings.Contains(s, `recovered="false"`) }) {
		t.Fatalf("the alert selects %q", want)
	}
	panels := 0
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			if !strings.Contains(target.Expr, `recovered="false"`) {
				continue
			}
			panels++
			if diff := cmp.Diff(want, gapSelectors(target.Expr)); diff != "" {
				t.Errorf("panel %q selects other gaps than the alert (-want +got):\n%s", p.Title, diff)
			}
		}
	}
	if panels == 0 {
		t.Error("no panel counts lost history")
	}
}

// leftover matches a variable that was not replaced.
var leftover = regexp.MustCompile(`\$\w+|\$\{`)

// substitute replaces variables in a query as Grafana does for a dashboard of one hour with
// everything selected.
func substitute(expr string, chosen map[string]string) (string, error) {
	pairs := []string{"$__rate_interval", "15s", "$__range", "1h", "$__interval", "5s"}
	for name, value := range chosen {
		pairs = append(pairs, "$"+name, value)
	}
	expr = strings.NewReplacer(pairs...).Replace(expr)
	if left := leftover.FindString(expr); left != "" {
		return "", fmt.Errorf("%s: what is %s?", expr, left)
	}
	return expr, nil
}
