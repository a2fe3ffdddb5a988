package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubecdc/kubecdc/internal/admin"
)

// The linker sets these (see the Makefile). After a plain go build, they come from the build info.
var (
	version = "dev"
	commit  = ""
)

// maxDependencies bounds the modules that `kubecdc version -o json` lists, and maxModuleText the
// bytes of each of their strings.
const (
	maxDependencies = 256
	maxModuleText   = 256
)

// versions is the output of `kubecdc version -o json`, without unknown values.
type versions struct {
	Version   string    `json:"version"`
	Commit    string    `json:"commit,omitempty"`
	Go        string    `json:"go"`
	ClientGo  string    `json:"clientGo,omitempty"`
	Toolchain toolchain `json:"toolchain"`
	// Dependencies are the modules in the binary, sorted by path.
	Dependencies []dependency `json:"dependencies,omitempty"`
	// DependenciesOmitted counts the modules beyond maxDependencies.
	DependenciesOmitted int `json:"dependenciesOmitted,omitempty"`
}

// toolchain is the Go toolchain that built the binary, and what it built for.
type toolchain struct {
	Version string `json:"version"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// dependency is a module in the binary. If it is replaced, path and version are those of the
// replacement.
type dependency struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

func newVersionCommand() *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print version, commit, Go and client-go",
		Long: "Print the version of kubecdc, the commit that it was built from, and the versions of Go and client-go.\n" +
			"JSON and YAML also have the Go toolchain that built it, and the modules in the binary. No cluster is contacted.",
		Example: "  kubecdc version\n" +
			"  kubecdc version -o json | jq -r .version\n" +
			"  kubecdc version -o json | jq -r '.dependencies[] | .path + \" \" + .version'",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := buildVersions()
			if out.IsStructured() {
				v.Dependencies, v.DependenciesOmitted = dependencies(maxDependencies)
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
	return versions{
		Version:   version,
		Commit:    revision(),
		Go:        runtime.Version(),
		ClientGo:  moduleVersion("k8s.io/client-go"),
		Toolchain: toolchain{Version: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH},
	}
}

// dependencies returns at most limit modules of the binary, sorted by path, and the number of the
// others.
func dependencies(limit int) (listed []dependency, omitted int) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil, 0
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		listed = append(listed, dependency{Path: cut(m.Path), Version: cut(m.Version)})
	}
	slices.SortFunc(listed, func(a, b dependency) int { return strings.Compare(a.Path, b.Path) })
	omitted = len(listed) - limit
	if omitted > 0 {
		return listed[:limit], omitted
	}
	return listed, 0
}

// cut returns the first maxModuleText bytes of s.
func cut(s string) string { return s[:min(len(s), maxModuleText)] }

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
