package definitions

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	definers = 8  // that create definitions at a time
	fillers  = 64 // that create objects at a time
)

func group(g int) string { return fmt.Sprintf("g%02d", g%groups) + Suffix }

func plural(n int) string { return fmt.Sprintf("thing%04ds", n) }

func resourcePath(n int) string {
	return "/apis/" + group(n) + "/" + version + "/namespaces/" + namespace + "/" + plural(n)
}

// schemaOf returns the schema of a thing, as small as those of many operators.
const schemaOf = `{"type":"object","properties":{"spec":{"type":"object","properties":{` +
	`"replicas":{"type":"integer"},"class":{"type":"string"},` +
	`"parameters":{"type":"object","additionalProperties":{"type":"string"}},` +
	`"endpoints":{"type":"array","items":{"type":"object","properties":{"host":{"type":"string"},"port":{"type":"integer"}}}}}},` +
	`"status":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`

// define creates the definitions and waits until all of them are served.
func (w *World) define(ctx context.Context) error {
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	err := w.each(ctx, "definitions", w.o.Definitions, definers, func(ctx context.Context, n int) error {
		return w.make(ctx, path,
			fmt.Sprintf(`{"metadata":{"name":"%[2]s.%[1]s"},"spec":{"group":%[1]q,"scope":"Namespaced",`+
				`"names":{"plural":%[2]q,"singular":"thing%04[3]d","kind":"Thing%04[3]d"},`+
				`"versions":[{"name":%[4]q,"served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":%[5]s}}]}}`,
				group(n), plural(n), n, version, schemaOf))
	})
	if err != nil {
		return err
	}
	for {
		status, text, err := w.ask(ctx, http.MethodGet, path, "")
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("list the definitions: %d: %w", status, err)
		}
		var list struct {
			Items []struct {
				Status struct {
					Conditions []struct{ Type, Status string }
				}
			}
		}
		if err := json.Unmarshal(text, &list); err != nil {
			return fmt.Errorf("list the definitions: %w", err)
		}
		served := 0
		for _, item := range list.Items {
			for _, c := range item.Status.Conditions {
				if c.Type == "Established" && c.Status == "True" {
					served++
				}
			}
		}
		if served == w.o.Definitions {
			return nil
		}
		w.o.Progress("%d of %d definitions are established", served, w.o.Definitions)
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// fill creates the objects. Afterwards the API server has a warm watch cache of each resource.
func (w *World) fill(ctx context.Context) error {
	note := strings.Repeat("text that says what this is for; ", 12)
	return w.each(ctx, "objects", w.o.Definitions*w.o.Objects, fillers, func(ctx context.Context, n int) error {
		resource, object := n/w.o.Objects, n%w.o.Objects
		return w.make(ctx, resourcePath(resource), fmt.Sprintf(`{"apiVersion":"%s/%s","kind":"Thing%04d",`+
			`"metadata":{"name":"thing-%d","labels":{"app.kubernetes.io/name":"thing","app.kubernetes.io/instance":"thing-%[4]d"},`+
			`"annotations":{"bench.kubecdc.dev/note":%[5]q}},"spec":{"replicas":%[4]d,"class":"standard",`+
			`"parameters":{"size":"%[4]d0Gi","zone":"zone-%[4]d","mode":"ReadWriteOnce","owner":"team-%[4]d"},`+
			`"endpoints":[{"host":"10.0.%[4]d.1","port":8080},{"host":"10.0.%[4]d.2","port":8081},{"host":"10.0.%[4]d.3","port":8082}]}}`,
			group(resource), version, resource, object, note))
	})
}

// each does n things, several at a time, and reports its progress.
func (w *World) each(ctx context.Context, what string, n, atOnce int, do func(ctx context.Context, i int) error) error {
	var done, next atomic.Int64
	workers, ctx := errgroup.WithContext(ctx)
	for range atOnce {
		workers.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || ctx.Err() != nil { // the cause is nil while the context is alive
					return context.Cause(ctx)
				}
				if err := do(ctx, i); err != nil {
					return err
				}
				if d := int(done.Add(1)); d == n || d%max(1, n/5) == 0 {
					w.o.Progress("%d of %d %s", d, n, what)
				}
			}
		})
	}
	return workers.Wait()
}
