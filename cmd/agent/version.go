package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/admin"
)

// The linker sets these (see the Makefile). After a plain go build, they come from the build info.
var (
	version = "dev"
	commit  = ""
)

// versions is the output of `kubecdc version -o json`, without unknown values.
type versions struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	ClientGo string `json:"clientGo,omitempty"`
}

func newVersionCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print version, commit, Go and client-go",
		Long: "Print the version of kubecdc, the commit that it was built from, and the versions of Go and client-go.\n" +
			"No cluster is contacted.",
		Example: "  kubecdc version\n" +
			"  kubecdc version -o json | jq -r .version",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := buildVersions()
			if out.Structured() {
				return out.write(cmd.OutOrStdout(), v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "kubecdc %s\ncommit %s\ngo %s\nclient-go %s\n",
				v.Version, orUnknown(v.Commit), v.Go, orUnknown(v.ClientGo))
			return err
		},
	}
	out.add(cmd, reportFormats())
	return cmd
}

// buildVersions returns the versions of this binary.
func buildVersions() versions {
	return versions{Version: version, Commit: revision(), Go: runtime.Version(), ClientGo: moduleVersion("k8s.io/client-go")}
}

// build identifies this binary in metrics.
func build() admin.Build {
	v := buildVersions()
	return admin.Build{Version: v.Version, Commit: v.Commit, Go: v.Go}
}

func revision() string {
	if commit != "" {
		return commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return ""
}

func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == path {
				return m.Version
			}
		}
	}
	return ""
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}
