package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/kubecdc/kubecdc/internal/config"
	"github.com/kubecdc/kubecdc/internal/informers/selection"
)

// NodeNameEnv is the variable with the name of the agent's node, from the downward API
// (spec.nodeName).
const NodeNameEnv = "NODE_NAME"

// CheckNode returns an error if an agent in mode node does not know its node.
func CheckNode(cfg *config.Config, getenv func(string) string) error {
	if cfg.Mode != config.ModeNode {
		return nil
	}
	switch name := getenv(NodeNameEnv); {
	case name == "":
		return errors.New(
			"mode node: the environment variable NODE_NAME must be the name of the node that the agent runs on; " +
				"in a pod it comes from the downward API: valueFrom: {fieldRef: {fieldPath: spec.nodeName}}")
	case len(content.IsDNS1123Subdomain(name)) > 0:
		return fmt.Errorf("mode node: the environment variable NODE_NAME must be the name of a node, got %q", name)
	}
	return nil
}

// partOf returns the part of each resource that the agent observes, nil if it observes everything
// that its rules select.
func partOf(cfg *config.Config) func(group, resource string) selection.Part {
	if cfg.Mode == config.ModeCluster {
		return nil
	}
	node := os.Getenv(NodeNameEnv)
	return func(group, resource string) selection.Part { return selection.Part(cfg.Part(group, resource, node)) }
}

// PartInWords describes the part of a resource that an agent of this mode observes, "" for all of
// it.
func PartInWords(cfg *config.Config, group, resource string) string {
	p := cfg.Part(group, resource, "$"+NodeNameEnv)
	switch {
	case p.None:
		return "nothing: the agents on the nodes capture it"
	case cfg.Mode == config.ModeCentral && p.FieldSelector != "":
		return "those without a node: the agents on the nodes capture the others"
	case p.FieldSelector == "":
		return ""
	}
	words := "those with " + strings.Replace(p.FieldSelector, `\`, "", 1)
	if p.Namespace != "" {
		words += " in namespace " + p.Namespace
	}
	return words
}
