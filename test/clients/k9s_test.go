package clients_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// k9sView is a view of k9s.
type k9sView struct {
	keys string
	has  []string // on the screen, when the view has its objects
}

// k9sViews are opened one after the other. Escape closes a view of one object.
var k9sViews = []k9sView{
	{":pods\r", []string{"pods(k9s)[2]", "web-1", "web-2", "CrashLoopBackOff"}},
	{"d", []string{"Describe(k9s/web-1)", "Container ID:", "Started container app"}},
	{"\x1b", []string{"pods(k9s)[2]"}},
	{"y", []string{"YAML(k9s/web-1)", "podIP: 10.0.0.1"}},
	{"\x1b", []string{"pods(k9s)[2]"}},
	{":deploy\r", []string{"deployments(k9s)[1]", "web"}},
	{"d", []string{"Describe(k9s/web)", "Pod Template:"}},
	{"\x1b", []string{"deployments(k9s)[1]"}},
	{":events\r", []string{"events(k9s)[2]", "BackOff", "Started"}},
	{":lamps\r", []string{"lamps(k9s)[2]", "hall", "stairs"}},
	{"y", []string{"YAML(k9s/hall)", "color: red"}},
	{"\x1b", []string{"lamps(k9s)[2]"}},
	{":nodes\r", []string{"nodes", "node-k9s"}},
	{":hpa\r", []string{"horizontalpodautoscalers(k9s)[1]", "web"}},
	{":secrets\r", []string{"secrets(k9s)[1]", "unused"}},
	{"x", []string{"planted"}},
	{"\x1b", []string{"secrets(k9s)[1]"}},
	{":pulses\r", []string{"Pulses(k9s)", "Pods", "Deployments"}},
}

// startK9s starts k9s at a large terminal, and waits for its first view.
func startK9s(t *testing.T, path, kubeconfig, namespace string) *session {
	t.Helper()
	dir := t.TempDir()
	config := "k9s: {skipLatestRevCheck: true}\n"
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(environment(t, kubeconfig), "K9S_CONFIG_DIR="+dir, "K9S_LOGS_DIR="+dir)
	s := startSession(t, 160, 240, env, path, "-n", namespace, "-c", "cm", "--headless", "--crumbsless", "--splashless")
	s.waitFor(t, "configmaps(k9s)[3]")
	return s
}

// deltas are the marks of numbers that went up or down.
var deltas = regexp.MustCompile(`(\d)[↑↓]`)

// shownByK9s returns what k9s shows of objects: no ages, no frames, no messages. Events of equal
// ages have no order.
func shownByK9s(screen string) string {
	var lines []string
	for line := range strings.Lines(screen) {
		line = strings.Map(func(r rune) rune {
			if r >= '─' && r <= '╿' { // Box Drawing
				return ' '
			}
			return r
		}, line)
		line = deltas.ReplaceAllString(line, "$1") // k9s marks what has changed since it drew the screen before
		line = strings.TrimSpace(gaps.ReplaceAllString(ages.ReplaceAllString(line, "AGE"), " "))
		isMessage := strings.Contains(line, " Viewing ") || strings.HasPrefix(line, "K9s v") // and the cluster's name
		if line != "" && !isMessage {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// askK9s shows the same views of a cluster and of its record.
func askK9s(t *testing.T, c *cluster, path, namespace string) {
	c.stage(t, namespace)
	views := func(s *session) (out []string) {
		for _, v := range k9sViews {
			s.press(t, v.keys)
			out = append(out, s.settled(t, shownByK9s, v.has...))
		}
		return out
	}
	const remove, dialog = "\x04", "<Delete>"
	live := startK9s(t, path, c.Kubeconfig, namespace)
	want := views(live)
	live.press(t, ":cm\r")
	live.settled(t, shownByK9s, "configmaps(k9s)[3]")
	live.press(t, remove)
	live.waitFor(t, dialog)
	moment := c.moment(t)
	c.do(t, "", "delete", "pod,deploy,events,lamps,hpa,secret", "-n", namespace, "--all", "--force")
	c.change(t, namespace)
	c.record(t, namespace)

	root := c.serve(t, "--at", moment)
	for _, kubeconfig := range []string{root, below(t, root, "/at/"+moment)} {
		s := startK9s(t, path, kubeconfig, namespace)
		for i, got := range views(s) {
			if diff := gocmp.Diff(want[i], got); diff != "" {
				t.Errorf("%q: -live +record\n%s", k9sViews[i].keys, diff)
			}
		}
		s.press(t, ":cm\r")
		s.settled(t, shownByK9s, "configmaps(k9s)[3]")
		s.press(t, remove)
		if shown := s.settled(t, shownByK9s, "configmaps(k9s)[3]"); strings.Contains(shown, dialog) {
			t.Errorf("k9s offers to change the past:\n%s", shown)
		}
	}
}
