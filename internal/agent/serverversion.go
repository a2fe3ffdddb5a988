package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/kubecdc/kubecdc/internal/informers/apiserver"
	"github.com/kubecdc/kubecdc/internal/pause"
	"github.com/kubecdc/kubecdc/internal/versions"
)

// askVersionEvery is the interval of requests for the version of an API server that does not
// answer.
const askVersionEvery = 10 * time.Second

// NoteVersion waits for the version of the API server, and logs if that is older than all tested
// ones.
func (c *Cluster) NoteVersion(ctx context.Context, log *slog.Logger) {
	client, err := apiserver.New(c.REST)
	if err != nil {
		return // the informers return it
	}
	for again := true; again; again = pause.For(ctx, askVersionEvery) == nil {
		version, err := client.ServerVersion(ctx)
		if err == nil {
			warnOfServer(log, version.Git)
			return
		}
		log.Debug("cannot read the version of the API server, retrying", "err", err, "retry_in", askVersionEvery)
	}
}

// warnOfServer logs if a version of the API server is older than all tested ones.
func warnOfServer(log *slog.Logger, version string) {
	tested := versions.Kubernetes()
	switch {
	case tested.Unsupported(version) != nil:
		log.Warn("the API server is older than the oldest version that kubecdc is meant to work with", "version",
			version,
			"tested", tested.Range(), "required", tested.Required, "advice",
			"upgrade it; see docs/reference/compatibility.md")
	case tested.IsUntested(version):
		log.Warn("the API server is older than all versions that the tests run with", "version", version,
			"tested", tested.Range(), "required", tested.Required, "advice", "see docs/reference/compatibility.md")
	}
}
