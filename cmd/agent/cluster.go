package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubecdc/kubecdc/internal/informers"
)

// cluster is an API server and how it was found, for people who wonder.
type cluster struct {
	rest *rest.Config
	from string // "context dev of /home/ann/.kube/config"

	namespace string // of the pod that this is, "": it is none, or not one of the cluster
}

// host is the API server's URL without credentials.
func (c *cluster) host() string { return redacted(c.rest) }

// findCluster reads the kubeconfig, or finds out that this is a pod. It asks nothing of the cluster.
func findCluster(f *runFlags) (*cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	rules.Warner = func(error) {} // of missing files: said below, where it matters
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context})
	raw, err := loader.RawConfig()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s: no such file", f.kubeconfig)
		}
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	files := strings.Join(rules.GetLoadingPrecedence(), ", ")
	if f.kubeconfig != "" {
		files = f.kubeconfig
	}
	name := cmp.Or(f.context, raw.CurrentContext)
	c, err := loader.ClientConfig()
	if err != nil {
		return nil, noCluster(err, &raw, name, files)
	}
	c.UserAgent = "kubecdc/" + version
	if context := raw.Contexts[name]; context != nil {
		return &cluster{rest: c, from: "context " + name + " of " + cmp.Or(context.LocationOfOrigin, files)}, nil
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("namespace of the pod: %w", err)
	}
	return &cluster{rest: c, from: "the pod's service account", namespace: namespace}, nil
}

// noCluster says why a kubeconfig leads to no cluster, and what can be done.
func noCluster(err error, raw *api.Config, context, files string) error {
	contexts := strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", ")
	switch {
	case context != "" && raw.Contexts[context] == nil && contexts != "":
		return fmt.Errorf("kubeconfig %s has no context %q; it has: %s", files, context, contexts)
	case context == "" && contexts != "":
		return fmt.Errorf("kubeconfig %s has no current-context: name one with --context; it has: %s", files, contexts)
	case contexts == "":
		where := "$KUBECONFIG is not set"
		if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
			where = "as $KUBECONFIG says"
		}
		return fmt.Errorf("no cluster to watch: no kubeconfig with a context in %s (%s), and this is no pod: "+
			"name one with --kubeconfig FILE or $KUBECONFIG", files, where)
	}
	return fmt.Errorf("kubeconfig %s: context %s: %w", files, context, err)
}

// restConfig is what clients of the cluster are made with.
func restConfig(f *runFlags) (*rest.Config, error) {
	c, err := findCluster(f)
	if err != nil {
		return nil, err
	}
	return c.rest, nil
}

// serverURL is the API server's URL, which a kubeconfig may have as host:port. A client has been made with c.
func serverURL(c *rest.Config) *url.URL {
	u, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return &url.URL{}
	}
	return u
}

// redacted is the API server's URL without the password that a kubeconfig may have in it.
func redacted(c *rest.Config) string { return serverURL(c).Redacted() }

const (
	// silence is how long nothing needs to be said of an API server that does not answer.
	silence = 800 * time.Millisecond
	// sayAgain is how often it is said, if nothing else is to be said.
	sayAgain = 10 * time.Second
)

// uid waits until the API server has told the uid of the cluster.
func (c *cluster) uid(ctx context.Context, set *informers.Manager, log *slog.Logger) (string, error) {
	log = log.With("api_server", c.host(), "from", c.from)
	slow := time.AfterFunc(silence, func() { log.Warn("the API server has not answered yet, waiting") })
	defer slow.Stop()
	var said time.Time
	var last string
	uid, err := set.ClusterUID(ctx, func(err error, retryIn time.Duration) {
		slow.Stop()
		if cause := withoutRequest(err); cause.Error() != last || time.Since(said) >= sayAgain {
			said, last = time.Now(), cause.Error()
			log.Warn("cannot reach the API server, retrying", "retry_in", retryIn, "err", cause)
		}
	})
	refusal := err
	if s := new(apierrors.StatusError); errors.As(err, &s) {
		refusal = s
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return "", fmt.Errorf("the API server %s does not accept the credentials of %s, they may have expired: renew them, "+
			"until 'kubectl get namespace kube-system' works with that context: %w", c.host(), c.from, refusal)
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("the API server %s does not permit what the agent needs to %s: get of namespace kube-system, "+
			"and list and watch of what is captured: 'kubecdc rbac' prints the role that is needed: %w", c.host(), c.from, refusal)
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("%s (%s) has no namespace kube-system: is it an API server of Kubernetes? %w", c.host(), c.from, refusal)
	case err == nil && uid == "":
		return "", fmt.Errorf("%s (%s) tells no uid of namespace kube-system: is it an API server of Kubernetes?", c.host(), c.from)
	}
	return uid, err
}

// withoutRequest is the cause of a request's failure without the request.
func withoutRequest(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
}
