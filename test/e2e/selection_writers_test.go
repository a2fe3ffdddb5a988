package e2e_test

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubecdc/kubecdc/test/oracle"
	"github.com/kubecdc/kubecdc/test/oracle/selection"
	"github.com/kubecdc/kubecdc/test/world"
)

// mover is a writer of objects that move from one rule to another. It changes labels, contents,
// fields and annotations, deletes objects and creates them again, and makes updates that change
// only noise.
type mover struct {
	*world.Writer
	resource string
}

func (m *mover) pick(list ...string) string { return list[m.RNG.IntN(len(list))] }

// labels returns some of the labels that selectors use; nil removes a label.
func (m *mover) labels() obj {
	l := obj{"run": "selection"}
	switch m.RNG.IntN(4) {
	case 0:
		l["team"] = nil
	case 1:
		l["team"] = "search"
	default:
		l["team"] = "payments"
	}
	l["tier"] = m.pick("gold", "silver")
	return l
}

func (m *mover) annotations() obj {
	a := obj{"e2e.kubecdc.dev/step": fmt.Sprint(m.N)}
	switch m.RNG.IntN(3) {
	case 0:
		a["e2e.kubecdc.dev/note"] = m.pick("one", "two")
	case 1:
		a["e2e.kubecdc.dev/step"] = "no number"
	}
	return a
}

// content returns the fields of an object of the resource besides its metadata. With create, the
// object is complete.
func (m *mover) content(create bool) obj {
	switch m.resource {
	case "configmaps":
		return obj{"data": obj{"text": m.Text(), "secret": m.pick("x", "y", "z"), "a.b": m.pick("1", "2")}}
	case "secrets":
		o := obj{"stringData": obj{"password": m.pick("p1", "p2", "p3"), "tls.crt": m.Text()}}
		if create {
			o["type"] = m.pick("Opaque", "e2e.kubecdc.dev/other")
		}
		return o
	case oracle.Widgets:
		return obj{"spec": obj{
			"tier": m.pick("gold", "silver"), "text": m.Text(), "token": m.pick("t1", "t2"), "number": m.N,
			"list": []obj{{"value": m.pick("v1", "v2"), "keep": 1}, {"value": nil}, {"keep": 2}},
			"deep": []obj{{"env": []obj{{"name": "A", "value": m.Text()}, {"name": "B", "value": "b"}}}, {}},
		}}
	case selection.Leases:
		return obj{"spec": obj{
			"holderIdentity": m.pick("h1", "h2"), "leaseDurationSeconds": 10 + m.RNG.IntN(3), "renewTime": now(),
		}}
	case selection.EndpointSlices:
		o := obj{"endpoints": m.endpoints(), "ports": []obj{{
			"name":     "web",
			"port":     80 + m.RNG.IntN(3),
			"protocol": "TCP",
		}}}
		if create {
			o["addressType"] = "IPv4"
		}
		return o
	default: // deployments
		labels := obj{"app": "selection"}
		return obj{"spec": obj{
			"replicas": 0, "selector": obj{"matchLabels": labels}, "revisionHistoryLimit": 1,
			"template": obj{
				"metadata": obj{"labels": labels, "annotations": obj{"step": m.pick("1", "2", "3")}},
				"spec": obj{"containers": []obj{{
					"name": "web", "image": "example.invalid/web", "env": []obj{{
						"name":  "PASSWORD",
						"value": m.pick("e1", "e2"),
					}},
				}}},
			},
		}}
	}
}

func (m *mover) endpoints() []obj {
	return []obj{{"addresses": []string{
		fmt.Sprintf("10.0.0.%d", 1+m.RNG.IntN(9)),
	}, "nodeName": m.pick("n1", "n2"), "conditions": obj{"ready": m.RNG.IntN(2) == 0}}}
}

func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000000Z") }

// heartbeat returns an update that a built-in filter treats as noise, or false if the resource has
// none.
func (m *mover) heartbeat(uri string) (string, obj, bool) {
	switch m.resource {
	case oracle.Widgets:
		status := obj{"phase": m.pick("Ready", "Waiting"), "conditions": []obj{{"type": "Ready", "message": m.Text()}}}
		return uri + "/status", obj{"status": status}, true
	case selection.Leases:
		return uri, obj{"spec": obj{"renewTime": now()}}, true
	case selection.EndpointSlices:
		patch := obj{"endpoints": m.endpoints()}
		if m.RNG.IntN(2) == 0 {
			patch["metadata"] = obj{"annotations": obj{"endpoints.kubernetes.io/last-change-trigger-time": now()}}
		}
		return uri, patch, true
	}
	return "", nil, false
}

func (m *mover) identity(name string) obj {
	_, group := oracle.ObjectKey{Resource: m.resource}.Split()
	version := "v1"
	if group != "" {
		version = group + "/v1"
	}
	kinds := map[string]string{
		"configmaps":             "ConfigMap",
		"secrets":                "Secret",
		oracle.Widgets:           "Widget",
		selection.Leases:         "Lease",
		selection.EndpointSlices: "EndpointSlice",
		"deployments.apps":       "Deployment",
	}
	return obj{"apiVersion": version, "kind": kinds[m.resource], "metadata": world.Meta(name, "labels", obj{
		"run": "selection",
	})}
}

func (m *mover) create(ctx context.Context, all, name string) error {
	o := m.identity(name)
	for k, v := range m.content(true) {
		o[k] = v
	}
	labels := m.labels()
	for k, v := range labels {
		if v == nil {
			delete(labels, k)
		}
	}
	o["metadata"].(obj)["labels"] = labels
	if m.RNG.IntN(3) == 0 {
		o = world.Applied(o) // Sets the annotation.
	} else if m.RNG.IntN(3) > 0 {
		o["metadata"].(obj)["annotations"] = m.annotations()
	}
	_, err := m.API.Create(ctx, all, o)
	return err
}

// step makes one change, or a few in a row.
func (m *mover) step(ctx context.Context) error {
	err := m.change(ctx)
	// The namespace is being deleted; or the object does not exist, and the applied fields are not
	// enough to create it.
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return nil
	}
	return err
}

func (m *mover) change(ctx context.Context) error {
	all := world.Collection(m.resource, m.Namespace)
	name := m.Name()
	uri := all + "/" + name
	m.N++
	patch := func(p obj) error {
		_, err := m.API.MergePatch(ctx, uri, p)
		return err
	}
	switch m.RNG.IntN(16) {
	case 0, 1, 2:
		return m.create(ctx, all, name)
	case 3, 4, 5: // From one rule to another, or out of all.
		return patch(obj{"metadata": obj{"labels": m.labels()}})
	case 6:
		p := m.content(false)
		p["metadata"] = obj{"labels": m.labels(), "annotations": m.annotations()}
		return patch(p)
	case 7, 8:
		return patch(m.content(false))
	case 9:
		return patch(obj{"metadata": obj{"annotations": m.annotations()}})
	case 10, 11:
		if at, p, ok := m.heartbeat(uri); ok {
			_, err := m.API.MergePatch(ctx, at, p)
			return err
		}
		return patch(obj{"metadata": obj{"annotations": nil}})
	case 12: // Another manager of the same fields: only managedFields changes.
		_, err := m.API.Apply(ctx, uri, m.pick("red", "green", "blue"), m.identity(name))
		return err
	case 13:
		return m.API.Remove(ctx, uri)
	case 14:
		if err := m.API.Remove(ctx, uri); err != nil {
			return err
		}
		return m.create(ctx, all, name)
	default: // Out, in and deleted, as fast as possible.
		for range 2 {
			if err := patch(obj{"metadata": obj{"labels": m.labels()}}); err != nil {
				return err
			}
		}
		return m.API.Remove(ctx, uri)
	}
}
