package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// tableURIs are the collections whose tables TestColumns compares: those that
// TestKubectlAgainstThePast captures, except Secrets, whose values are redacted.
var tableURIs = []string{
	"/api/v1/pods", "/api/v1/services", "/api/v1/configmaps", "/api/v1/namespaces", "/api/v1/nodes",
	"/api/v1/persistentvolumes",
	"/api/v1/persistentvolumeclaims", "/api/v1/serviceaccounts", "/apis/apps/v1/deployments",
	"/apis/apps/v1/replicasets",
	"/apis/apps/v1/statefulsets", "/apis/apps/v1/daemonsets", "/apis/batch/v1/jobs", "/apis/batch/v1/cronjobs",
	"/apis/networking.k8s.io/v1/ingresses", "/apis/networking.k8s.io/v1/networkpolicies",
	"/apis/policy/v1/poddisruptionbudgets",
	"/apis/rbac.authorization.k8s.io/v1/roles", "/apis/rbac.authorization.k8s.io/v1/rolebindings",
	"/apis/storage.k8s.io/v1/storageclasses",
	"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/discovery.k8s.io/v1/endpointslices",
	"/apis/scheduling.k8s.io/v1/priorityclasses", "/apis/past.example.com/v1/gadgets",
	"/apis/past.example.com/v1/gizmos",
}

// otherColumns are the columns that API servers before 1.37 have or lack, or fill in another way.
// The API of the past has those of 1.37 for all, as docs/reference/compatibility.md says.
var otherColumns = map[string][]string{
	"customresourcedefinitions": {"Scope", "Versions", "Group", "Kind", "ShortNames", "Established"},
	"nodes":                     {"Kernel-Version"},
	"serviceaccounts":           {"Secrets"},
	"storageclasses":            {"Name"},
}

// TestColumns compares the tables that kubectl prints: those of the API server, of any version, and
// later those of the record at the same moment. The expected columns, and their cells, are those
// that the API server returns.
func TestColumns(t *testing.T) {
	slow(t)
	t.Parallel()
	p := world.StartPlane(t, controlplane.Options{})
	dir := t.TempDir()
	live := client{kubectl: filepath.Join(dir, "kubectl"), kubeconfig: p.Kubeconfig, cache: filepath.Join(dir, "live")}
	if err := p.WriteKubectl(live.kubectl); err != nil {
		t.Fatal(err)
	}
	live.do(t, shopObjects, "apply", "--server-side", "-f", "-")
	live.do(t, "", "wait", "--for=condition=Established", "crd/gadgets.past.example.com", "crd/gizmos.past.example.com")
	live.do(t, shopGadgets, "apply", "--server-side", "-f", "-")
	bus := world.StartBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{
		Bus:   bus,
		Watch: "  - resources: [" + strings.Join(pastResources, ", ") + "]",
	})
	a.Ready(t)

	changes := p.History.ChangesIn("shop", "shop-b", "")
	var rev uint64
	var want map[string]*metav1.Table
	for before := ^uint64(0); before != changes(); { // a controller that acts meanwhile mixes two moments
		wait.Settled(t, 3*time.Second, time.Minute, changes)
		rev, before = p.Now(t), changes()
		want = tables(t, p.Config(controlplane.Admin))
		p.Now(t)
	}
	live.do(t, "", "create", "cm", "-n", "shop", "last")
	past(t, "snapshot", "--agent", a.URL) // the record then ends after the moment for all resources
	wait.Eventually(t, time.Minute, func() error {
		out, err := exec.CommandContext(t.Context(), build.SharedAgent(t), "get", "cm/last", "-n", "shop", "--bus",
			bus.URL).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	served := world.ServePast(t, "--bus", bus.URL)
	config, err := clientcmd.BuildConfigFromFlags("", served.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.Host = fmt.Sprintf("%s/at/rv:%d", served.URL, rev)
	got := tables(t, config)
	var others []string
	for _, uri := range tableURIs {
		others = append(others, compareTables(t, uri, want[uri], got[uri])...)
	}
	t.Logf("%d tables at rv:%d; columns that differ: %q", len(tableURIs), rev, others)
	if os.Getenv("KUBECDC_KUBERNETES") == "" && len(others) > 0 {
		oracle.Fail(t, "columns that differ from those of the version of the tests: %q", others)
	}
}

// tables reads the tables of all tableURIs.
func tables(t *testing.T, config *rest.Config) map[string]*metav1.Table {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*metav1.Table{}
	for _, uri := range tableURIs {
		raw, err := c.CoreV1().RESTClient().Get().RequestURI(uri).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
		if err != nil {
			t.Fatalf("%s: %v: %s", uri, err, raw)
		}
		table := new(metav1.Table)
		if err := json.Unmarshal(raw, table); err != nil {
			t.Fatalf("%s: %v", uri, err)
		}
		if table.Kind != "Table" || len(table.Rows) == 0 {
			t.Fatalf("%s: a %s with %d rows", uri, table.Kind, len(table.Rows))
		}
		all[uri] = table
	}
	return all
}

// compareTables compares the cells of the columns that both tables have. It returns the
// otherColumns that differ.
func compareTables(t *testing.T, uri string, want, got *metav1.Table) (others []string) {
	t.Helper()
	resource := uri[strings.LastIndexByte(uri, '/')+1:]
	wanted, has := cellsOf(t, want), cellsOf(t, got)
	columns := map[string]bool{}
	for _, table := range []*metav1.Table{want, got} {
		for _, c := range table.ColumnDefinitions {
			columns[c.Name] = true
		}
	}
	for column := range columns {
		diff := cmp.Diff(wanted[column], has[column])
		switch {
		case diff == "":
		case slices.Contains(otherColumns[resource], column):
			others = append(others, resource+" "+column)
		default:
			oracle.Fail(t, "%s: column %s: -live +record\n%s", uri, column, diff)
		}
	}
	return others
}

// cellsOf returns the cells of a table without ages, by column and object.
func cellsOf(t *testing.T, table *metav1.Table) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	for _, c := range table.ColumnDefinitions {
		all[c.Name] = map[string]string{}
	}
	for _, row := range table.Rows {
		var o metav1.PartialObjectMetadata
		if err := json.Unmarshal(row.Object.Raw, &o); err != nil {
			t.Fatal(err)
		}
		for i, c := range table.ColumnDefinitions {
			all[c.Name][o.Namespace+"/"+o.Name] = agesOfTables.ReplaceAllString(fmt.Sprint(row.Cells[i]), "AGE")
		}
	}
	return all
}
