package kinds_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kubecdc/kubecdc/internal/object/kinds"
)

func TestReadWords(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []kinds.Word
		err  string
	}{
		{[]string{"Pods"}, []kinds.Word{{Text: "pods", Name: "pods"}}, ""},
		{[]string{"deploy/web"}, []kinds.Word{{Text: "deploy", Name: "deploy", Names: []string{"web"}}}, ""},
		{
			[]string{"po,svc", "web-*", "db"},
			[]kinds.Word{
				{Text: "po", Name: "po", Names: []string{"web-*", "db"}},
				{Text: "svc", Name: "svc", Names: []string{"web-*", "db"}},
			},
			"",
		},
		{
			[]string{"deployments.v1.apps"},
			[]kinds.Word{{Text: "deployments.v1.apps", Name: "deployments", Version: "v1", Group: "apps"}},
			"",
		},
		{[]string{"widgets.a.io."}, []kinds.Word{{Text: "widgets.a.io.", Name: "widgets", Group: "a.io"}}, ""},
		{[]string{"*"}, []kinds.Word{{Text: "*"}}, ""},
		{
			[]string{"pods", "deploy/web"},
			nil,
			`"pods": RESOURCE/NAME and RESOURCE NAME cannot be combined (as for kubectl: pods, deploy/web, ` +
				"deployments.apps, pods,services, po web-0 web-1)",
		},
		{[]string{"pods", ""}, nil, `"": want an object's name, * and ? allowed`},
	} {
		got, err := kinds.ReadWords(c.args)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.args, diff)
		}
		if text := errorText(err); text != c.err {
			t.Errorf("%q: got the error %q, want %q", c.args, text, c.err)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
