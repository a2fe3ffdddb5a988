package kafkaconfig_test

import (
	"testing"

	"github.com/kubecdc/kubecdc/internal/bus/kafka/kafkaconfig"
)

func TestTopicsMeet(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"kubecdc.{cluster}", "kubecdc.{cluster}", true},
		{"kubecdc.{cluster}", "kubecdc.{cluster}.copy", false},
		{"kubecdc.{cluster}", "copy.{cluster}", false},
		{"kubecdc.{cluster}.{resource}", "kubecdc.{cluster}.all", true},
		{"kubecdc.{cluster}.{resource}", "kubecdc.{cluster}.copy.{resource}", false},
		{"kubecdc.{cluster}.{group}.{resource}", "kubecdc.{cluster}.copy.{resource}", true},
		{"kubecdc.{group}.pods", "kubecdc.{resource}.{namespace}", true},
		{"{group}.{resource}", "{resource}", false},
		{"{group}-a", "{namespace}-b", false},
		{"{namespace}", "x", true},
		{"x{namespace}", "x", false},
		{"kubecdc.{cluster}.{namespace}", "kubecdc.{cluster}.dead", true},
		{"kubecdc.{cluster}.{namespace}", "kubecdc.{cluster}._dead", false},
		{"kubecdc.{cluster}.{group}.{resource}", "kubecdc.{cluster}._dead", false},
		{"kubecdc.{cluster}.{group}", "kubecdc.{cluster}._dead", false},
		{"kubecdc.{cluster}.{namespace}", "kubecdc.{cluster}._", true},
		{"{resource}.{namespace}", "pods._", true},
		{"{resource}", "_", false},
		{"{group}{resource}{group}{resource}{group}.a", "{group}{namespace}{group}{namespace}{group}.b", false},
		{"", "", true},
	} {
		if got := kafkaconfig.TopicsMeet(tc.a, tc.b); got != tc.want {
			t.Errorf("%q and %q: %t", tc.a, tc.b, got)
		}
		if got := kafkaconfig.TopicsMeet(tc.b, tc.a); got != tc.want {
			t.Errorf("%q and %q: %t", tc.b, tc.a, got)
		}
	}
}
