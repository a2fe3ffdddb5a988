package baseline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubecdc/kubecdc/test/bench/record"
)

// pending is the number of records that may wait for their acknowledgement.
const pending = 4000

type event struct {
	SpecVersion     string `json:"specversion"`
	ID              string `json:"id"`
	Source          string `json:"source"`
	Type            string `json:"type"`
	Subject         string `json:"subject"`
	Time            string `json:"time"`
	DataContentType string `json:"datacontenttype"`
	Op              string `json:"op"`
	Namespace       string `json:"namespace"`
	Name            string `json:"name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceversion"`
	Data            change `json:"data"`
}

type change struct {
	Before map[string]any `json:"before"`
	After  map[string]any `json:"after"`
}

// Run publishes changes of pods until ctx ends, then waits for outstanding acknowledgements.
func Run(ctx context.Context, config *rest.Config, busURL string) error {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return run(ctx, config, busURL, []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}}, func() error {
		return nil
	})
}

// RunGroups publishes changes of all resources in the groups whose name ends in suffix until ctx
// ends, then waits for outstanding acknowledgements. The client has client-go's default limits.
// synced is called once all informers are synced.
func RunGroups(ctx context.Context, config *rest.Config, busURL, suffix string, synced func() error) error {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	lists, err := client.ServerPreferredResourcesWithContext(ctx)
	if err != nil {
		return fmt.Errorf("discover resources: %w", err)
	}
	var resources []schema.GroupVersionResource
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			return fmt.Errorf("discover resources: %w", err)
		}
		if !strings.HasSuffix(gv.Group, suffix) {
			continue
		}
		for _, r := range l.APIResources {
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch") {
				resources = append(resources, gv.WithResource(r.Name))
			}
		}
	}
	return run(ctx, config, busURL, resources, synced)
}

func run(
	ctx context.Context, config *rest.Config, busURL string, resources []schema.GroupVersionResource,
	synced func() error,
) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	nc, err := nats.Connect(busURL, nats.MaxReconnects(-1))
	if err != nil {
		return fmt.Errorf("connect to the bus: %w", err)
	}
	defer nc.Close()
	failures := make(chan error, 1) // the first one ends Run; further ones add no information
	fail := func(err error) {
		select {
		case failures <- err:
		default:
		}
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(pending),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) {
			fail(fmt.Errorf("publish %s: %w", m.Header.Get(jetstream.MsgIDHeader), err))
		}))
	if err != nil {
		return err
	}
	publish := func(r schema.GroupVersionResource, before, after *unstructured.Unstructured) {
		if err := send(ctx, js, r, before, after); err != nil && ctx.Err() == nil {
			fail(err)
		}
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	for _, r := range resources {
		_, err = factory.ForResource(r).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { publish(r, nil, o.(*unstructured.Unstructured)) },
			UpdateFunc: func(before, after any) {
				publish(r, before.(*unstructured.Unstructured), after.(*unstructured.Unstructured))
			},
		})
		if err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	for r, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok && ctx.Err() == nil {
			return fmt.Errorf("informer of %v has not synced", r)
		}
	}
	if err := synced(); err != nil {
		return err
	}
	select {
	case err := <-failures:
		return err
	case <-ctx.Done():
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("stop: %d records are still unacknowledged", js.PublishAsyncPending())
	}
}

func send(
	ctx context.Context, js jetstream.JetStream, r schema.GroupVersionResource,
	before, after *unstructured.Unstructured,
) error {
	path := "/api/v1"
	if r.Group != "" {
		path = "/apis/" + r.Group + "/" + r.Version
	}
	e := event{
		SpecVersion:     "1.0",
		Source:          record.Source,
		Type:            "dev.kubecdc.object.updated",
		Op:              "u",
		ID:              record.IDOf(r.Group, r.Resource, string(after.GetUID()), after.GetResourceVersion()),
		Subject:         path + "/namespaces/" + after.GetNamespace() + "/" + r.Resource + "/" + after.GetName(),
		Time:            time.Now().UTC().Format(time.RFC3339Nano),
		DataContentType: "application/json",
		Namespace:       after.GetNamespace(),
		Name:            after.GetName(),
		UID:             string(after.GetUID()),
		ResourceVersion: after.GetResourceVersion(),
		Data:            change{After: after.Object},
	}
	if before == nil {
		e.Type, e.Op = "dev.kubecdc.object.created", "c"
	} else {
		e.Data.Before = before.Object
	}
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode %s: %w", e.ID, err)
	}
	for {
		_, err := js.PublishAsync(record.SubjectOf(r.Group, r.Resource, e.Namespace, e.Name), data,
			jetstream.WithMsgID(e.ID),
			jetstream.WithStallWait(time.Second))
		if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
			return err
		}
		if err := ctx.Err(); err != nil { // the bus does not answer: keep waiting until the deadline
			return err
		}
	}
}
