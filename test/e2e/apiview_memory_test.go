package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubecdc/kubecdc/test/controlplane"
	"github.com/kubecdc/kubecdc/test/process"
	"github.com/kubecdc/kubecdc/test/wait"
	"github.com/kubecdc/kubecdc/test/world"
)

// TestManyListThePast has many clients list Pods page by page, from `kubecdc serve` and from the
// API server, and compares the memory growth of both. `kubecdc serve` must not grow by more than
// two pages for each client: it writes a page while it reads it.
func TestManyListThePast(t *testing.T) {
	slow(t)
	pods, clients := size(1_000, 2_000, 20_000), size(10, 10, 50)
	// It has these Pods only, and its API server is measured.
	p := world.StartPlane(t, controlplane.Options{NoControllerManager: true, UpstreamGC: true})
	makePods(t, p, pods)
	bus := world.StartBus(t)
	a := world.StartAgent(t, p, world.AgentConfig{Bus: bus, Watch: "  - resources: [pods]"})
	world.ReadStream(t, bus, p.Reader()).Completed(t, "pods")
	at := p.Now(t)
	wait.Eventually(t, time.Minute, func() error {
		if got := len(ask(t, "pods", "--at", fmt.Sprint("rv:", at), "--bus", bus.URL).Items); got != pods {
			return fmt.Errorf("%d of %d Pods are in the record", got, pods)
		}
		return nil
	})
	if err := a.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	served := world.ServePast(t, "--bus", bus.URL, "--at", fmt.Sprint("rv:", at))
	past, err := clientcmd.BuildConfigFromFlags("", served.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	server := listingBy(t, "kube-apiserver", p.APIServerPID(0), p.Config(controlplane.Admin), clients, pods)
	serve := listingBy(t, "kubecdc serve", served.PID(), past, clients, pods)
	if most := 2 * int64(clients) * pageBytes; serve > most {
		t.Errorf("kubecdc serve grew by %s, more than %s; the API server by %s", world.MiB(serve), world.MiB(most),
			world.MiB(server))
	}
}

const (
	pageLimit = 500
	podBytes  = 3 << 10
	pageBytes = pageLimit * podBytes
)

// makePods creates Pods of about podBytes.
func makePods(t *testing.T, p *world.Plane, n int) {
	t.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for w := range errs {
		wg.Go(func() {
			for errs[w] == nil {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				_, errs[w] = p.API.Create(t.Context(), world.Collection("pods", "default"), obj{
					"apiVersion": "v1", "kind": "Pod", "metadata": obj{
						"name":        fmt.Sprint("pod-", i),
						"annotations": obj{"text": world.Noise(podBytes / 2)},
					},
					"spec": obj{"automountServiceAccountToken": false, "containers": []obj{{
						"name":  "app",
						"image": "web:1",
					}}},
				})
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// listingBy has clients list all Pods page by page at the same time, and returns the server's
// memory growth in bytes.
func listingBy(t *testing.T, name string, pid int, config *rest.Config, clients, pods int) int64 {
	t.Helper()
	before, err := process.ReadMemory(pid)
	if err = errors.Join(err, process.ResetPeak(pid)); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	var wg sync.WaitGroup
	errs := make([]error, clients)
	for i := range errs {
		wg.Go(func() { errs[i] = listPages(t.Context(), config, pods) })
	}
	wg.Wait()
	took := time.Since(begin)
	after, err := process.ReadMemory(pid)
	if err := errors.Join(append(errs, err)...); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	t.Logf("%s: %d clients listed %d Pods each in %s: %s before, at most %s", name, clients, pods,
		took.Round(100*time.Millisecond), world.MiB(before.RSS), world.MiB(after.Peak))
	return after.Peak - before.RSS
}

// listPages lists all Pods page by page, over connections of its own.
func listPages(ctx context.Context, config *rest.Config, want int) error {
	transport, err := rest.TLSConfigFor(config)
	if err != nil {
		return err
	}
	own := &http.Transport{TLSClientConfig: transport}
	defer own.CloseIdleConnections()
	client := &http.Client{Transport: own}
	seen, next := 0, ""
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet,
			fmt.Sprintf("%s/api/v1/pods?limit=%d&continue=%s", strings.TrimSuffix(config.Host, "/"), pageLimit, next),
			http.NoBody)
		if err != nil {
			return err
		}
		request.Header.Set("Authorization", "Bearer "+config.BearerToken)
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		var page struct {
			Metadata metav1.ListMeta
			Items    []struct{}
		}
		err = json.NewDecoder(response.Body).Decode(&page)
		_ = response.Body.Close() // read
		switch {
		case response.StatusCode != http.StatusOK:
			return errors.New(response.Status)
		case err != nil:
			return err
		}
		seen += len(page.Items)
		next = page.Metadata.Continue
		if next == "" {
			break
		}
	}
	if seen != want {
		return fmt.Errorf("%d Pods listed, want %d", seen, want)
	}
	return nil
}
