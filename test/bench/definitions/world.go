package definitions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kubecdc/kubecdc/test/controlplane"
)

const (
	// groups is the number of groups of the definitions.
	groups    = 20
	namespace = "bench"
	// Suffix of all groups.
	Suffix  = ".bench.kubecdc.dev"
	version = "v1"
	// upstreamInflight is the default number of requests that an API server executes at a time.
	upstreamInflight = 600
)

// Options of a World.
type Options struct {
	Definitions int      // how many
	Objects     int      // of each
	Users       []string // names of service accounts; each may read everything
	Dir         string   // for the control plane; it has to exist
	Output      io.Writer
	Progress    func(format string, args ...any)
}

// World is a running control plane with its definitions and objects.
type World struct {
	*controlplane.Cluster
	o     Options
	audit string
	admin *http.Client
}

// Groups of all definitions.
func (w *World) Groups() []string {
	names := make([]string, 0, groups)
	for g := range min(groups, w.o.Definitions) {
		names = append(names, group(g))
	}
	return names
}

// User returns the user name of a service account.
func User(name string) string { return "system:serviceaccount:" + namespace + ":" + name }

// Start creates the control plane and all objects, which takes a minute for a thousand definitions.
// Stop ends it.
func Start(ctx context.Context, o Options) (_ *World, err error) {
	w := &World{o: o, audit: filepath.Join(o.Dir, "audit.log")}
	policy := filepath.Join(o.Dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(w.policy()), 0o600); err != nil {
		return nil, err
	}
	var users []controlplane.User
	for _, name := range o.Users {
		users = append(users, controlplane.User{
			Name: User(name), Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace},
		})
	}
	o.Progress("starting a control plane")
	w.Cluster, err = controlplane.Start(ctx, controlplane.Options{
		Dir:    filepath.Join(o.Dir, "plane"),
		Output: o.Output,
		Users:  users,
		// The controller manager would watch every resource too.
		NoControllerManager: true,
		MaxRequestsInflight: upstreamInflight,
		UpstreamGC:          true,
		APIServerArgs:       []string{"--audit-policy-file=" + policy, "--audit-log-path=" + w.audit},
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.Stop()
		}
	}()
	w.admin, err = rest.HTTPClientFor(w.Config(controlplane.Admin))
	if err != nil {
		return nil, err
	}
	if err := w.permit(ctx); err != nil {
		return nil, err
	}
	if err := w.define(ctx); err != nil {
		return nil, err
	}
	return w, w.fill(ctx)
}

// policy logs when a request of our users came, when it was answered, and how.
func (w *World) policy() string {
	text := "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n  users:\n"
	for _, name := range w.o.Users {
		text += fmt.Sprintf("  - %q\n", User(name))
	}
	return text + "- level: None\n"
}

// permit lets our users do everything, but does not exempt them from API Priority and Fairness.
func (w *World) permit(ctx context.Context) error {
	err := w.make(ctx, "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, namespace))
	for _, name := range w.o.Users {
		err = errors.Join(err, w.make(ctx, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", fmt.Sprintf(
			`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},`+
				`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%q}]}`, "bench-"+name,
			User(name))))
	}
	return err
}

// make creates an object. It is not an error if the object exists already.
func (w *World) make(ctx context.Context, path, body string) error {
	for {
		status, text, err := w.ask(ctx, http.MethodPost, path, body)
		switch {
		case err != nil:
			return err
		case status < 300, status == http.StatusConflict:
			return nil
		case status != http.StatusNotFound && status != http.StatusTooManyRequests && status < 500:
			return fmt.Errorf("create at %s: %d: %.300s", path, status, text)
		}
		// Established, and not served yet; or busy.
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("create at %s: %d: %.300s: %w", path, status, text, err)
		}
	}
}

func (w *World) ask(ctx context.Context, method, path, body string) (status int, text []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, w.APIServerURL(0)+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json")
	response, err := w.admin.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	text, err = io.ReadAll(response.Body)
	return response.StatusCode, text, err
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
