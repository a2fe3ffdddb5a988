package agent

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

// Cluster is an API server, with the source of its configuration.
type Cluster struct {
	REST *rest.Config
	From string // "context dev of /home/ann/.kube/config"

	namespace string // of the agent's pod; "" outside of the cluster
}

// Host returns the API server's URL without a password from the kubeconfig.
func (c *Cluster) Host() string { return c.url().Redacted() }

// url returns the API server's URL, also if the kubeconfig has only host:port. A client has
// validated it.
func (c *Cluster) url() *url.URL {
	u, _, err := rest.DefaultServerUrlFor(c.REST)
	if err != nil {
		return &url.URL{}
	}
	return u
}

// FindCluster reads the kubeconfig, or the service account of the pod. It sends no request.
func (o *Options) FindCluster() (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.Kubeconfig
	rules.Warner = func(error) {} // missing files are reported below if they matter
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{
		CurrentContext: o.Context,
	})
	raw, err := loader.RawConfig()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%s: no such file", o.Kubeconfig)
		}
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	files := strings.Join(rules.GetLoadingPrecedence(), ", ")
	if o.Kubeconfig != "" {
		files = o.Kubeconfig
	}
	name := cmp.Or(o.Context, raw.CurrentContext)
	c, err := loader.ClientConfig()
	if err != nil {
		return nil, noCluster(err, &raw, name, files)
	}
	c.UserAgent = "kubecdc/" + o.Build.Version
	if context := raw.Contexts[name]; context != nil {
		return &Cluster{REST: c, From: "context " + name + " of " + cmp.Or(context.LocationOfOrigin, files)}, nil
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, fmt.Errorf("namespace of the pod: %w", err)
	}
	return &Cluster{REST: c, From: "the pod's service account", namespace: namespace}, nil
}

// noCluster returns the error for a kubeconfig that names no cluster, with the fix.
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
			where = "from $KUBECONFIG"
		}
		return fmt.Errorf("no cluster to watch: no kubeconfig with a context in %s (%s), and kubecdc is not in a pod: "+
			"give one with --kubeconfig FILE or $KUBECONFIG, create a cluster with 'kind create cluster' or 'minikube start', "+
			"or run 'make demo' in the sources of kubecdc", files, where)
	}
	return fmt.Errorf("kubeconfig %s: context %s: %w", files, context, err)
}

const (
	// quietWait is the time before the wait for a response is logged.
	quietWait = 800 * time.Millisecond
	// repeatAfter is the interval at which an unchanged failure is logged again.
	repeatAfter = 10 * time.Second
)

// UID waits until the API server answers, and returns the uid of the cluster.
func (c *Cluster) UID(ctx context.Context, set *informers.Manager, log *slog.Logger) (string, error) {
	log = log.With("api_server", c.Host(), "from", c.From)
	slow := time.AfterFunc(quietWait, func() { log.Warn("the API server has not answered yet, waiting") })
	defer slow.Stop()
	var logged time.Time
	var last string
	uid, err := set.ClusterUID(ctx, func(err error, retryIn time.Duration) {
		slow.Stop()
		if cause := withoutRequest(err); cause.Error() != last || time.Since(logged) >= repeatAfter {
			logged, last = time.Now(), cause.Error()
			log.Warn("cannot reach the API server, retrying", "retry_in", retryIn, "err", cause)
		}
	})
	refusal := err
	if s := new(apierrors.StatusError); errors.As(err, &s) {
		refusal = s
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return "", fmt.Errorf("the API server %s rejects the credentials of %s, which may have expired: renew them "+
			"until 'kubectl get namespace kube-system' works with that context: %w", c.Host(), c.From, refusal)
	case apierrors.IsForbidden(err):
		return "",
			fmt.Errorf(
				"the API server %s does not grant %s the permissions that the agent needs: get of namespace kube-system, "+
					"and list and watch of the captured resources: 'kubecdc rbac' prints the role: %w", c.Host(),
				c.From,
				refusal)
	case apierrors.IsNotFound(err):
		return "",
			fmt.Errorf("%s (%s) has no namespace kube-system: check that it is a Kubernetes API server: %w", c.Host(),
				c.From, refusal)
	case err == nil && uid == "":
		return "",
			fmt.Errorf("%s (%s) returns no uid of namespace kube-system: check that it is a Kubernetes API server",
				c.Host(), c.From)
	}
	return uid, err
}

// withoutRequest returns the cause of an error, without the URL of the request.
func withoutRequest(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
}
