package apiserver

import (
	"context"
	"fmt"
)

// ServerVersion returns the version of the API server, as it says it itself: "v1.37.1".
func (c *Client) ServerVersion(ctx context.Context) (string, error) {
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := decode(c.asks.Get().AbsPath("/version").SetHeader("Accept", JSON).Do(ctx), &info); err != nil {
		return "", fmt.Errorf("read the version of the API server: %w", err)
	}
	return info.GitVersion, nil
}
