package controlplane

import (
	"context"
	"io"
	"time"
)

// BuildFrom is Build for any module that requires k8s.io/kubernetes, into any directory.
var BuildFrom = build

// ErrPortTaken is the error after which Start tries another port.
var ErrPortTaken = errPortTaken

// DownloadFrom is Download with another archive, cache directory and limit.
func DownloadFrom(
	ctx context.Context, w io.Writer, dir, version, sum, link string, limit time.Duration, tool func(
		context.Context, string,
	) (string, error),
) (*Binaries, error) {
	d := &download{version: version, sum: sum, link: link, dir: dir, limit: limit, tool: tool}
	return d.binaries(ctx, w)
}

var (
	CompileSetupEnvtest = compileSetupEnvtest
	EnvtestSums         = envtestSums
)
