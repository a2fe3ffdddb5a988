package kafkaconfig_test

import (
	"strings"
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/bustest"
	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
	"github.com/kubecdc/kubecdc/internal/object"
)

func TestTopics(t *testing.T) {
	deployments := &object.Resource{Group: "apps", Version: "v1", Name: "deployments", Namespaced: true}
	ingresses := &object.Resource{Group: "networking.k8s.io", Version: "v1", Name: "ingresses", Namespaced: true}
	nodes := &object.Resource{Version: "v1", Name: "nodes"}
	for _, c := range []struct {
		template  string
		resource  *object.Resource
		namespace string
		want      string
	}{
		{"", bustest.Pods, "shop", "kubecdc.prod-eu-1"},
		{"all", bustest.Pods, "shop", "all"},
		{"{cluster}.{group}.{resource}", bustest.Pods, "shop", "prod-eu-1.core.pods"},
		{"{cluster}.{group}.{resource}", ingresses, "shop", "prod-eu-1.networking.k8s.io.ingresses"},
		{"x-{namespace}_{resource}", deployments, "shop", "x-shop_deployments"},
		{"x-{namespace}_{resource}", nodes, "", "x-__nodes"},
	} {
		topics, err := kafkaconfig.NewTopics(c.template, "prod-eu-1")
		if err != nil {
			t.Fatal(err)
		}
		d := &object.Delta{Ref: object.NewRef(c.resource, c.namespace, "a", "uid")}
		got := string(topics.Append(nil, d))
		if got != c.want {
			t.Errorf("%s of %s: %s, want %s", c.template, c.resource, got, c.want)
		}
		if !topics.Match(got, nil) || !topics.Match(got, c.resource) {
			t.Errorf("%s: %s does not match", c.template, got)
		}
		if strings.Contains(c.template, "resource") && topics.Match(got, &object.Resource{Name: "others"}) {
			t.Errorf("%s: %s matches another resource", c.template, got)
		}
		if topics.Match(got+"/x", nil) && c.template == "" {
			t.Errorf("%s: too much matches", c.template)
		}
	}
}

// Names of namespaces, resources and groups begin with a letter or digit.
func TestTopicsOfNobody(t *testing.T) {
	for template, topic := range map[string]string{
		"kubecdc.{cluster}.{namespace}": "kubecdc.prod-eu-1._dead",
		"kubecdc.{cluster}.{resource}":  "kubecdc.prod-eu-1._",
		"{group}.{resource}":            "kubecdc.prod-eu-1._dead",
	} {
		topics, err := kafkaconfig.NewTopics(template, "prod-eu-1")
		if err != nil {
			t.Fatal(err)
		}
		if topics.Match(topic, nil) || topics.Match(topic, bustest.Pods) {
			t.Errorf("%s makes %s", template, topic)
		}
	}
}

func TestTopicTemplateErrors(t *testing.T) {
	for template, want := range map[string]string{
		"a b":                    `at byte 1: character ' '`,
		"a.{name}":               "at byte 2: unknown placeholder {name}",
		"a.{group":               "at byte 2: unclosed {",
		"a}":                     `at byte 1: character '}'`,
		"..":                     `".." is not a valid topic name`,
		"{group}{resource}":      "at byte 7: {resource} directly after another",
		strings.Repeat("a", 250): "Kafka allows 249",
	} {
		if _, err := kafkaconfig.NewTopics(template, "prod-eu-1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want %q, got %v", template, want, err)
		}
	}
	if _, err := kafkaconfig.NewTopics("", "prod/eu"); err == nil || !strings.Contains(err.Error(), "at byte 4") {
		t.Errorf("a cluster with a slash: %v", err)
	}
}
