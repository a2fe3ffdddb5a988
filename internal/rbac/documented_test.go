package rbac_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/rbac"
)

// permissions are the verbs for each resource, by the word that pages use for it.
type permissions map[string][]string

// needed returns the permissions of the agents of every mode. All of them capture Pods.
func needed(t *testing.T) permissions {
	t.Helper()
	words := map[string]string{
		"pods":                      "captured resources",
		"nodes":                     "Nodes",
		"customresourcedefinitions": "CustomResourceDefinitions",
		"apiservices":               "APIServices",
		"namespaces":                "kube-system",
		"configmaps":                "ConfigMap",
		"leases":                    "Lease",
	}
	all := permissions{}
	for _, more := range []string{
		"mode: cluster\nleaderElection: {enabled: true}",
		"mode: central\nleaderElection: {enabled: true}",
		"mode: node",
		"mode: node\ncheckpoint: {configMap: {namespace: points, name: kubecdc-checkpoint-n1}}",
	} {
		o := options(t)
		o.Node = "n1"
		for _, object := range rbac.New(parseWith(t, `- {resources: [pods, "*.example.com"]}`, more), o, nil).Objects {
			for _, rule := range object.Rules {
				for _, resource := range rule.Resources {
					if resource == "*" {
						resource = "pods"
					}
					word, known := words[resource]
					if !known {
						t.Fatalf("no page has a word for %s: %v", resource, rule)
					}
					all[word] = append(all[word], rule.Verbs...)
				}
			}
		}
	}
	return all.sorted()
}

// documented returns the permissions that a text lists, in clauses with verbs and words for
// resources.
func documented(text string) permissions {
	all := permissions{}
	verb := regexp.MustCompile(`\b(get|list|watch|create|update|patch|delete|deletecollection)\b`)
	for _, clause := range regexp.MustCompile(`;|\. |\n[-|] |\n\n`).Split(text, -1) {
		for _, word := range []string{
			"captured resources", "Nodes", "CustomResourceDefinitions", "APIServices", "kube-system", "ConfigMap",
			"Lease",
		} {
			if strings.Contains(clause, word) {
				all[word] = append(all[word], verb.FindAllString(clause, -1)...)
			}
		}
	}
	return all.sorted()
}

// sorted returns the permissions without repetitions, and without words that have no verb.
func (p permissions) sorted() permissions {
	out := permissions{}
	for word, verbs := range p {
		slices.Sort(verbs)
		if len(verbs) > 0 {
			out[word] = slices.Compact(verbs)
		}
	}
	return out
}

// Each page that lists the permissions of the agent lists all of them, and no others.
func TestDocumentedPermissions(t *testing.T) {
	want := needed(t)
	for _, c := range []struct{ page, from, to string }{
		{"docs/security.md", "They permit:\n", "\n\nRBAC cannot limit"},
		{"docs/faq.md", "## Which permissions does it need?\n", "\n\n`kubecdc rbac`"},
		{"docs/reference/guarantees.md", "and no others. They are ", " `kubecdc rbac` prints"},
		{"docs/reference/cli.md", "ServiceAccount. They permit:\n", "\n\nIf a rule"},
	} {
		page, err := os.ReadFile("../../" + c.page)
		if err != nil {
			t.Fatal(err)
		}
		_, after, found := strings.Cut(string(page), c.from)
		list, _, ended := strings.Cut(after, c.to)
		if !found || !ended {
			t.Errorf("%s has no list between %q and %q", c.page, c.from, c.to)
			continue
		}
		if diff := cmp.Diff(want, documented(list)); diff != "" {
			t.Errorf("%s (-kubecdc rbac +page):\n%s", c.page, diff)
		}
	}
}
