package encode_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubecdc/kubecdc/internal/encode"
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
	pods    = &object.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}
	secrets = &object.Resource{Version: "v1", Name: "secrets", Kind: "Secret", Namespaced: true}
	roles   = &object.Resource{
		Group:   "rbac.authorization.k8s.io",
		Version: "v1",
		Name:    "clusterroles",
		Kind:    "ClusterRole",
	}

	observed = time.Date(2026, 11, 20, 15, 0, 0, 123456789, time.UTC)
	full     = encode.Options{
		Cluster:    "prod-eu-1",
		ClusterUID: "11e0c3a4-7d0b-4c0e-9a53-3a1f5e0f6a77",
		Mode:       encode.Structured,
		Before:     true,
		Patch:      true,
		Writer:     "3f0a5c1e9b7d2846",
		Run:        "0-1795186799000",
	}
)

func refOf(res *object.Resource, namespace, name string) *object.Ref {
	return object.NewRef(res, namespace, name, "7c0e8a42-51f0-4f7e-9d6f-6d0b6b3f2a01")
}

func version(ref *object.Ref, rv uint64, spec string) *object.Object {
	meta := fmt.Sprintf(`{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d"}`, ref.Name(), ref.Namespace(),
		ref.UID, rv)
	if ref.Namespace() == "" {
		meta = fmt.Sprintf(`{"name":%q,"uid":%q,"resourceVersion":"%d"}`, ref.Name(), ref.UID, rv)
	}
	doc := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":%s,"spec":%s}`, ref.Resource.Kind,
		ref.Resource.APIVersion(), meta, spec)
	return object.New(ref, rv, 0, nil, []byte(doc))
}

// redacted returns the object with a note that values were removed.
func redacted(o *object.Object) *object.Object {
	doc, err := o.AppendJSON(nil)
	if err != nil {
		panic(err)
	}
	return object.NewScanned(o.Ref, o.ResourceVersion, &object.Scanned{Redacted: true}, nil, doc)
}

// reports returns progress events: of an agent at rest, and of one that was interrupted.
func reports() map[string]*object.Delta {
	ago := func(seconds int) time.Time { return observed.Add(-time.Duration(seconds) * time.Second) }
	return map[string]*object.Delta{
		"progress": {Report: &object.Report{
			Number: 7, Since: ago(600), To: ago(31), SnapshotBegan: ago(3600),
			Scopes: []object.ScopeReport{
				{Resource: roles, Count: 1, ResourceVersion: 52100}, {
					Resource:        pods,
					Count:           1009,
					ResourceVersion: 52098,
					History:         2,
				},
			},
		}},
		"progress-interrupted": {Report: &object.Report{
			Number:           8,
			Since:            ago(600),
			To:               ago(31),
			SnapshotBegan:    ago(3600),
			Ends:             true,
			APIServerVersion: "v1.37.1",
			Etcd:             "1",
			Scopes: []object.ScopeReport{
				{Resource: deployments, Scope: "deployments.apps/shop", Etcd: object.UnknownEtcd},
				{
					Resource: pods, Scope: "pods/shop", ResourceVersion: 48300, To: ago(100), SnapshotBegan: ago(7200),
					Interruptions: []object.Interruption{
						{From: ago(500), Until: ago(460), Why: object.InterruptedCut}, {
							From: ago(100),
							Why:  object.InterruptedBlocked,
						},
					},
					Hidden: []object.HiddenSpan{
						{From: object.Point{ResourceVersion: 48001, Time: ago(400)}, Until: object.Point{
							ResourceVersion: 48250,
							Time:            ago(300),
						}},
						{From: object.Point{ResourceVersion: 48290, Time: ago(200)}},
					},
				},
			},
		}},
	}
}

// deltas returns one delta of each kind, by the name of its golden files.
func deltas() map[string]*object.Delta {
	web := refOf(deployments, "shop", "web")
	pod := refOf(pods, "shop", "web-0")
	role := refOf(roles, "", "system:node")
	secret := refOf(secrets, "shop", "token")
	changedBy := []byte(`[{"manager":"kubectl-edit","operation":"Update","time":"2026-11-20T15:00:00Z"}]`)
	since := time.Date(2026, 11, 20, 15, 58, 30, 987654321, time.FixedZone("CET", 3600))
	observation := &object.Observation{
		Since: since.Add(-time.Hour),
		Rules: []byte(
			`[{"namespaces":["shop"],"operations":["created","updated"],"where":"object.spec.x > 1","onError":"send"},{"labelSelector":"team=payments"}]`),
	}
	ds := map[string]*object.Delta{
		"created": {
			Op:              object.Created,
			Ref:             web,
			After:           version(web, 48007, `{"replicas":3}`),
			ResourceVersion: 48007,
			ChangedBy:       changedBy,
		},
		"created-inferred": {
			Op:              object.Created,
			Inferred:        true,
			Ref:             pod,
			After:           version(pod, 300, `{}`),
			ResourceVersion: 300,
		},
		"updated": {
			Op:              object.Updated,
			Ref:             web,
			Before:          version(web, 48007, `{"replicas":3}`),
			After:           version(web, 48211, `{"replicas":5}`),
			ResourceVersion: 48211,
			Previous:        48007,
			ChangedBy:       changedBy,
		},
		"updated-skipped": {
			Op:              object.Updated,
			Ref:             web,
			Before:          version(web, 48007, `{"replicas":3}`),
			After:           version(web, 48211, `{"replicas":5}`),
			ResourceVersion: 48211,
			Previous:        48007,
			Skipped:         12,
		},
		"deleted-skipped": {
			Op:              object.Deleted,
			Inferred:        true,
			Ref:             web,
			Before:          version(web, 48211, `{"replicas":5}`),
			ResourceVersion: 48300,
			Previous:        48211,
			Skipped:         1,
		},
		"updated-cluster-scoped": {
			Op:              object.Updated,
			Ref:             role,
			Before:          version(role, 7, `{"a/b":["x"]}`),
			After:           version(role, 9, `{"a/b":["x","y"]}`),
			ResourceVersion: 9,
			Previous:        7,
		},
		"deleted": {
			Op:              object.Deleted,
			Ref:             web,
			Before:          version(web, 48211, `{"replicas":5}`),
			ResourceVersion: 48300,
			Previous:        48211,
		},
		"deleted-inferred": {
			Op:              object.Deleted,
			Inferred:        true,
			Ref:             pod,
			Before:          version(pod, 300, `{}`),
			ResourceVersion: 48400,
			Previous:        300,
		},
		"read": {
			Op:              object.Read,
			Ref:             web,
			After:           version(web, 48007, `{"replicas":3}`),
			ResourceVersion: 48007,
			Snapshot:        "20261120T150000.000Z-48007",
		},
		"read-redacted": {
			Op:              object.Read,
			Ref:             secret,
			After:           redacted(version(secret, 48007, `{}`)),
			ResourceVersion: 48007,
			Snapshot:        "20261120T150000.000Z-48007",
		},
		"updated-redacted": {
			Op:              object.Updated,
			Ref:             web,
			Before:          redacted(version(web, 48007, `{}`)),
			After:           redacted(version(web, 48211, `{"x":1}`)),
			ResourceVersion: 48211,
			Previous:        48007,
		},
		"created-empty-secret": {
			Op:              object.Created,
			Ref:             secret,
			After:           version(secret, 48007, `{}`),
			ResourceVersion: 48007,
		},
		"deleted-redacted": {
			Op:              object.Deleted,
			Ref:             secret,
			Before:          redacted(version(secret, 48211, `{}`)),
			ResourceVersion: 48300,
			Previous:        48211,
		},
		"entered": {Op: object.Entered, Ref: pod, After: version(pod, 310, `{}`), ResourceVersion: 310},
		"entered-before-known": {
			Op:              object.Entered,
			Ref:             pod,
			Before:          version(pod, 305, `{"x":1}`),
			After:           version(pod, 310, `{}`),
			ResourceVersion: 310,
			Previous:        305,
		},
		"left": {
			Op:              object.Left,
			Ref:             pod,
			Before:          version(pod, 310, `{}`),
			ResourceVersion: 320,
			Previous:        310,
		},
		"entered-at-node": {
			Op:              object.Entered,
			Ref:             pod,
			Before:          version(pod, 310, `{}`),
			After:           version(pod, 320, `{"spec":{"nodeName":"n1"}}`),
			ResourceVersion: 320,
			Previous:        310,
			Scope:           "pods?fieldSelector=spec.nodeName=n1",
		},
		"left-inferred": {
			Op:              object.Left,
			Inferred:        true,
			Ref:             pod,
			Before:          version(pod, 310, `{}`),
			ResourceVersion: 320,
			Previous:        310,
		},
		"snapshot-started": {Stream: &object.StreamEvent{
			Kind:            object.SnapshotStarted,
			Resource:        deployments,
			Scope:           "deployments.apps",
			Snapshot:        "20261120T150000.000Z-48007",
			ResourceVersion: 48007,
			Objects:         0,
		}},
		"snapshot-initial": {Stream: &object.StreamEvent{
			Kind:            object.SnapshotStarted,
			Resource:        pods,
			Scope:           "pods",
			Snapshot:        "20261120T150000.000Z-48007",
			ResourceVersion: 48007,
			Objects:         12,
			Initial:         true,
		}},
		"snapshot-completed": {Stream: &object.StreamEvent{
			Kind:            object.SnapshotCompleted,
			Resource:        pods,
			Scope:           "pods/shop?labelSelector=team=payments",
			Snapshot:        "20261120T150000.000Z-48007",
			ResourceVersion: 48007,
			Objects:         12,
		}},
		"gap": {Stream: &object.StreamEvent{
			Kind:      object.Gap,
			Resource:  deployments,
			Scope:     "deployments.apps",
			From:      48300,
			To:        52017,
			Since:     since,
			Reason:    object.Expired,
			Recovered: true,
		}},
		"gap-open": {Stream: &object.StreamEvent{
			Kind:     object.Gap,
			Resource: pods,
			Scope:    "pods",
			From:     48300,
			Reason:   "forbidden",
		}},
		"snapshot-continued": {Stream: &object.StreamEvent{
			Kind:            object.SnapshotStarted,
			Resource:        pods,
			Scope:           "pods",
			Snapshot:        "20261120T150000.000Z-48007",
			ResourceVersion: 48007,
			Objects:         12,
			Continued:       true,
			Observation:     observation,
		}},
		"scope-started": {Stream: &object.StreamEvent{
			Kind:            object.ScopeStarted,
			Resource:        pods,
			Scope:           "pods",
			ResourceVersion: 48007,
			Continued:       true,
			Observation:     observation,
		}},
		"scope-started-initial": {Stream: &object.StreamEvent{
			Kind:            object.ScopeStarted,
			Resource:        deployments,
			Scope:           "deployments.apps",
			ResourceVersion: 48007,
			Initial:         true,
			Observation:     &object.Observation{Rules: []byte(`[{}]`)},
		}},
		"scope-ended": {Stream: &object.StreamEvent{
			Kind:            object.ScopeEnded,
			Resource:        pods,
			Scope:           "pods",
			ResourceVersion: 48300,
			End:             object.Replaced,
			Successors:      []string{"pods/shop", "pods/web?labelSelector=a=b"},
		}},
		"scope-ended-removed": {Stream: &object.StreamEvent{
			Kind:            object.ScopeEnded,
			Resource:        deployments,
			Scope:           "deployments.apps/shop",
			ResourceVersion: 48300,
			End:             object.Removed,
		}},
	}
	for _, reason := range []object.GapReason{
		object.Compacted, object.Rewound, object.SelectionChanged, object.CheckpointLost, object.ContentChanged,
	} {
		gap := *ds["gap"].Stream
		gap.Reason, gap.Recovered = reason, reason == object.ContentChanged
		switch reason {
		case object.Rewound:
			gap.To, gap.History = 31000, 1
		case object.ContentChanged:
			gap.To = gap.From
		}
		ds["gap-"+string(reason)] = &object.Delta{Stream: &gap}
	}
	reformed := *ds["gap-content-changed"].Stream
	reformed.To, reformed.Recovered = 48307, false
	ds["gap-content-reformed"] = &object.Delta{Stream: &reformed}
	ds["gap-dead-letter"] = &object.Delta{Stream: &object.StreamEvent{
		Kind:     object.Gap,
		Resource: deployments,
		Scope:    "deployments.apps",
		From:     48007,
		To:       48211,
		Reason:   object.DeadLetter,
		Letter:   "deployments.apps/" + web.UID + "/48211",
	}}
	maps.Copy(ds, reports())
	for _, d := range ds {
		d.Observed = observed.UnixNano()
	}
	// Add each kind of event after the second restore of etcd.
	for name, d := range maps.Clone(ds) {
		if !slices.Contains([]string{
			"created", "updated", "deleted", "read", "entered", "left", "snapshot-started", "snapshot-completed",
			"scope-started", "scope-ended",
		}, name) {
			continue
		}
		again := *d
		if d.Stream == nil {
			again.History = 2
		} else {
			stream := *d.Stream
			stream.History = 2
			again.Stream = &stream
		}
		ds[name+"-history"] = &again
	}
	return ds
}
