package apiserver

import (
	"context"
	"fmt"
	"strings"
)

// Version is the version of an API server.
type Version struct {
	Git string // as it says it itself: "v1.37.1"
	// Release identifies the release, and the one whose behavior it emulates. API servers of one
	// release serve an object in one form.
	Release string
}

// ServerVersion returns the version of the API server.
func (c *Client) ServerVersion(ctx context.Context) (Version, error) {
	var v struct{ GitVersion, GitCommit, EmulationMajor, EmulationMinor string }
	if err := decode(c.asks.Get().AbsPath("/version").SetHeader("Accept", JSON).Do(ctx), &v); err != nil {
		return Version{}, fmt.Errorf("read the version of the API server: %w", err)
	}
	release := strings.Join([]string{v.GitVersion, v.GitCommit, v.EmulationMajor, v.EmulationMinor}, " ")
	return Version{v.GitVersion, release}, nil
}
