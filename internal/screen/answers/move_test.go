package answers_test

import (
	"strings"
	"testing"
)

// --to-namespace restores into another namespace, without what the objects of the old one keep. It
// says what still refers to that.
func TestForApplyIntoAnotherNamespace(t *testing.T) {
	const metadata = `"metadata":{"name":"it","namespace":"shop","uid":"u1","resourceVersion":"5"}`
	for name, c := range map[string]struct {
		resource, apiVersion, kind, object string
		has, lacks, says                   string
	}{
		"a config map": {
			"configmaps", "v1", "ConfigMap", `"data":{"url":"http://db.shop.svc:80","shop":"shop"}`,
			"  namespace: copy\n", "namespace: shop",
			"still refer to the old namespace: configmap/it -n shop (data.url)\n",
		},
		"a role binding": {
			"rolebindings.rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1", "RoleBinding",
			`"subjects":[{"kind":"ServiceAccount","name":"a","namespace":"shop"}]`,
			"  namespace: copy\n", "uid", "rolebinding.rbac.authorization.k8s.io/it -n shop (subjects[0].namespace)\n",
		},
		"a claim": {
			"persistentvolumeclaims", "v1", "PersistentVolumeClaim",
			`"spec":{"volumeName":"pv-1","storageClassName":"fast"}`,
			"storageClassName: fast", "pv-1", "they get a new, empty one: persistentvolumeclaim/it -n shop\n",
		},
		"a service": {
			"services", "v1", "Service", `"spec":{"ports":[{"port":80,"nodePort":30080}]}`,
			"port: 80", "30080",
			"without cluster IPs and node ports, which belong to the Services in the old namespace: service/it -n shop\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			object := `{"apiVersion":"` + c.apiVersion + `","kind":"` + c.kind + `",` + metadata + `,` + c.object + `}`
			out, said, err := appliedTo(t, "copy", nil, c.resource, c.apiVersion, c.kind, object)
			if err != nil || !strings.Contains(out, c.has) || strings.Contains(out, c.lacks) ||
				!strings.Contains(said, c.says) {
				t.Errorf("%v: got\n%s\n%s", err, out, said)
			}
			if !strings.Contains(said, "for namespace copy, which has to exist\n") {
				t.Errorf("standard error has\n%s", said)
			}
		})
	}
}

// Events of Kubernetes are not restored. Standard error counts them.
func TestForApplyLeavesOutEvents(t *testing.T) {
	const event = `{"apiVersion":"v1","kind":"Event","metadata":{"name":"it","namespace":"shop","uid":"u1"},"reason":"Pulled"}`
	out, said, err := applied(t, nil, "events", "v1", "Event", event)
	if err != nil || out != "" || !strings.Contains(said, "left out, because Events only report what happened: 1\n") {
		t.Errorf("%v: got\n%s\n%s", err, out, said)
	}
}
