package walk_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/test/build"
	"github.com/kubecdc/kubecdc/test/process"
	"github.com/kubecdc/kubecdc/test/tool"
	"github.com/kubecdc/kubecdc/test/wait"
)

// elsewhere lists the commands that TestDocumentedCommands does not run, and the reasons.
var elsewhere = []struct{ command, why string }{
	{
		`\bhelm `,
		"TestDocumentedHelm of test/chart renders them, and make chart installs, upgrades and removes the chart",
	},
	{
		`^nats |kafka-consumer-groups\.sh |^ns[ck] |^nk `,
		"tools of the bus: TestGuideCommands of test/consumers runs those of nats, the others are not installed",
	},
	{`kafka://`, "test/kafka runs tail, relay and replay against brokers"},
	{
		`^(cosign|sha256sum|gh) `,
		"there is no release yet: release/identity verifies the identity that these commands name",
	},
	{`tls://`, "internal/bus/nats connects with TLS and credentials"},
	{`port-forward|rollout status`, "there is no kubelet"},
	{`Out-String`, "PowerShell"},
	{`node-directory`, "changes owners, as root: test/kubelet runs it"},
	{`checkpoint forget`, "the scope has to be retiring: checkpoint.txtar of cmd/agent has one"},
	{
		`record end (3f0a|'pods|.*checkpoint'$)`,
		"the agent works, and the record has other writers: TestRecordEnd of test/e2e ends those of one that does not",
	},
	{`dead-letter pods/`, "the event has to be in retry: TestDeadLetterCommand of cmd/agent has one"},
	{`go/rollout|rv:812`, "TestReplayFindsABug of test/e2e records this rollout"},
}

// runElsewhere are the pages whose commands another test runs.
var runElsewhere = regexp.MustCompile(`^(README\.md|docs/start/.*|docs/guides/consume\.md|examples/README\.md)$`)

// endless are the commands that run until they are interrupted, and the output that shows that they
// work.
var endless = []struct{ command, shows *regexp.Regexp }{
	{
		regexp.MustCompile(`kubecdc run\b`),
		regexp.MustCompile(`first snapshot complete|resumed where the last run ended`),
	},
	{regexp.MustCompile(`kubecdc serve\b`), regexp.MustCompile(`serving at https://`)},
	{regexp.MustCompile(`kubecdc relay( (--|slack)|$)`), regexp.MustCompile(`"msg":"(relay starts|kubecdc relays)"`)},
	{regexp.MustCompile(`kubecdc status --watch`), regexp.MustCompile(`deployments\.apps`)},
	{regexp.MustCompile(`kubecdc tail\b`), regexp.MustCompile(`shop`)},
	{regexp.MustCompile(`kubectl get .* --watch\b`), regexp.MustCompile(`ADDED`)},
}

var (
	ends       = regexp.MustCompile(`kubecdc tail .*(--no-follow|--bus file:)`)
	asksRecord = regexp.MustCompile(`kubecdc (at|audit|blame|diff|get|history|replay|serve)\b`)
	namesBus   = regexp.MustCompile(` --bus `)
	timeOfDay  = regexp.MustCompile(`([^y\d] )(\d\d:\d\d)\b`)
	// the record rollout.jsonl has what the page shows
	ofRollout  = regexp.MustCompile(`--with-events|cm/app\b|pvc/data\b`)
	fails      = regexp.MustCompile(`(?m)^kubecdc: --`)
	relayName  = regexp.MustCompile(`--name (deploys|audit)\b`)
	podOfAgent = regexp.MustCompile(`\b(POD|LEADER|STANDBY)\b`)
	scaled     = regexp.MustCompile(`scale deploy/kubecdc --replicas=(\d)`)
	codeBlock  = regexp.MustCompile("(?ms)^ *```(sh|console|text)\n(.*?)^ *```$")
	agentDown  = regexp.MustCompile(`kubecdc (checkpoint (reset|forget)|record end)`) // the agent must not run
	joined     = regexp.MustCompile(`(\\|\|)\n\s*`)
	timing     = regexp.MustCompile(` in [0-9.µms]+, [0-9,]+ a second|https?://\S+|KUBECONFIG=\S+`)
)

// shown is a command of a page, and its output on the page.
type shown struct{ line, output string }

// commandsOf returns the command lines of a page: each line of an sh block, and the lines with a
// prompt in other blocks.
func commandsOf(page string) []shown {
	var found []shown
	for _, block := range codeBlock.FindAllStringSubmatch(page, -1) {
		text := joined.ReplaceAllStringFunc(block[2], func(s string) string {
			if s[0] == '|' && block[1] == "console" { // of an output
				return s
			}
			return strings.Trim(s[:1], `\`) + " "
		})
		for line := range strings.Lines(text) {
			command, prompt := strings.CutPrefix(strings.TrimSpace(line), "$ ")
			switch {
			case prompt, block[1] == "sh" && command != "" && command[0] != '#':
				found = append(found, shown{line: command})
			case block[1] == "console" && len(found) > 0:
				found[len(found)-1].output += line
			}
		}
	}
	return found
}

// TestDocumentedCommands runs the commands of all pages, one after the other. It replaces the bus,
// the cluster and the times of the page by those of the test. Each command must exit with 0. For
// docs/guides/time-travel.md, outputs are compared, too.
func TestDocumentedCommands(t *testing.T) {
	if testing.Short() {
		t.Skip("runs each command of the documentation against a control plane")
	}
	const lasts = 3 * time.Minute
	if end := time.Now().Truncate(24 * time.Hour).Add(24 * time.Hour); time.Until(end) < lasts {
		// commands name hours of the day
		select {
		case <-time.After(time.Until(end)):
		case <-t.Context().Done():
		}
	}
	w := newWorld(t)
	pages, ran := documents(t), 0
	unused := map[string]bool{}
	for _, e := range elsewhere {
		unused[e.command] = true
	}
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		commands := commandsOf(pages[name])
		if runElsewhere.MatchString(name) || strings.Contains(name, "/decisions/") || len(commands) == 0 {
			continue
		}
		w.open()
		w.toggle(true)
		for _, c := range commands {
			c.line = strings.TrimSpace(c.line)
			if !runsElsewhere(c.line, unused) {
				w.run(name, c)
				ran++
			}
		}
	}
	if ran < 120 {
		t.Errorf("%d commands: the test shows nothing", ran)
	}
	for command := range unused {
		t.Errorf("no page has %s: remove it from the list", command)
	}
}

// TestCommandBlocks finds command lines in text blocks. Tests run only the commands in sh blocks
// and those after a prompt.
func TestCommandBlocks(t *testing.T) {
	command := regexp.MustCompile(
		`(?m)^ *((\./|\S*/)?(kubecdc|kubectl|helm|nats|kcat|go|npm|node|python3?|pip|make|cd|curl)|kafka-\S+\.sh) .*$`)
	for name, text := range documents(t) {
		if strings.HasPrefix(text, "<!-- Written by ") { // its text blocks are help texts
			continue
		}
		for _, block := range codeBlock.FindAllStringSubmatch(text, -1) {
			if line := command.FindString(block[2]); block[1] == "text" && line != "" {
				t.Errorf("%s: no test runs what is in a block of text, use sh: %s", name, line)
			}
		}
	}
}

func runsElsewhere(line string, unused map[string]bool) bool {
	for _, e := range elsewhere {
		if regexp.MustCompile(e.command).MatchString(line) {
			delete(unused, e.command)
			return true
		}
	}
	return false
}

// world is a cluster with an agent, its bus, receivers, and a record of yesterday.
type world struct {
	*session
	files map[string]string // files in the working directory of each page
	names *strings.Replacer // replaces documented addresses by real ones
	live  string            // the URL of the agent's bus
	day   string            // yesterday
	agent string            // the agent's command line
	up    bool
	pods  int // replicas of shop/web
	named int // number of relays with a name so far
}

const agentConfig = `apiVersion: kubecdc.dev/v1
cluster: prod
watch:
  - {resources: [pods], namespaces: [shop]}
  - {resources: ["*"]}
bus: {nats: {url: %q}}
server: {address: %q, pprof: true}
`

const clustered = `checkpoint: {configMap: {namespace: kubecdc, name: kubecdc-checkpoint}}
leaderElection: {enabled: true, namespace: kubecdc}
`

const relays = `relays:
  - {name: slack-payments, resources: [deployments.apps], to: {slack: {urlFile: %q}}}
  - {name: search, start: beginning, to: {http: {url: %q}}}
`

// kubectlOfPods is a kubectl for a cluster without a kubelet. It runs the commands for a Pod of the
// agent on this machine.
const kubectlOfPods = `#!/usr/bin/env bash
case " $* " in
*" exec "*" -- /kubecdc "*)
	while [[ $1 != /kubecdc ]]; do shift; done
	exec kubecdc "${@:2}" ;;
*" logs "*)
	echo '{"level":"WARN","msg":"cannot reach the bus"}' ;;
*)
	exec real-kubectl "$@" ;;
esac
`

// completed adds the required fields that the Deployment in the record lacks.
const completed = `sed 's|^\( *\)template:|\1selector: {matchLabels: {app: web}}\n&\n\1  metadata: {labels: {app: web}}|'`

// objects creates the objects of a chart release that commands name.
const objects = `kubectl create namespace shop && kubectl create deployment web -n shop --image=nginx:1.27
kubectl create namespace kubecdc && kubectl create serviceaccount kubecdc -n kubecdc
for namespace in kubecdc default; do kubectl create configmap kubecdc -n $namespace --from-file=kubecdc.yaml; done
kubecdc rbac --config kubecdc.yaml --name kubecdc:kubecdc --service-account kubecdc/kubecdc | kubectl apply -f -
kubectl apply -f - <<'EOF'
{apiVersion: apps/v1, kind: Deployment, metadata: {name: kubecdc, namespace: kubecdc}, spec: &spec {selector: {matchLabels: &labels {app.kubernetes.io/component: agent}},
  template: {metadata: {labels: *labels}, spec: {containers: [{name: kubecdc, image: kubecdc}]}}}}
---
{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: kubecdc-node, namespace: kubecdc}, spec: {selector: {matchLabels: &labels {app.kubernetes.io/component: node}},
  template: {metadata: {labels: *labels}, spec: {containers: [{name: kubecdc, image: kubecdc}]}}}}
EOF
user=$(kubectl config view -o jsonpath='{.contexts[0].context.user}') cluster=$(kubectl config view -o jsonpath='{.contexts[0].context.cluster}')
for context in prod staging; do kubectl config set-context $context --user="$user" --cluster="$cluster"; done
kubecdc config check kubecdc.yaml alone.yaml relays.yaml
`

func newWorld(t *testing.T) *world {
	t.Helper()
	s, live := newPerson(t)
	staging := startJetStream(t)
	for _, url := range []string{live, staging} { // commands name several clusters
		nc, err := nats.Connect(url)
		if err != nil {
			t.Fatal(err)
		}
		js, err := nc.JetStream()
		if err == nil {
			_, err = js.AddStream(&nats.StreamConfig{Name: "KUBECDC", Subjects: []string{
				"kubecdc.>",
			}, Discard: nats.DiscardNew, MaxBytes: 1 << 30})
		}
		nc.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") }))
	t.Cleanup(hooks.Close)
	port, err := process.FreePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	home := s.home
	w := &world{session: s, live: live, day: time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)}
	webhook, completions := filepath.Join(home, "webhook"), filepath.Join(home, "bash_completion.d")
	alone := fmt.Sprintf(agentConfig, live, "127.0.0.1:0")
	record := strings.ReplaceAll(read(t, "cmd/agent/testdata/record.jsonl"), "2026-11-20", w.day)
	w.files = map[string]string{
		"kubecdc.yaml":  fmt.Sprintf(agentConfig, live, address) + clustered,
		"alone.yaml":    alone,
		"relays.yaml":   alone + fmt.Sprintf(relays, webhook, hooks.URL),
		"record.jsonl":  record,
		"rollout.jsonl": strings.ReplaceAll(read(t, "cmd/agent/testdata/rollout.jsonl"), "2026-11-20", w.day),
		"events.jsonl":  withLikenesses(record),
		"user.creds":    "", "ca.crt": "", "tls.crt": "", "tls.key": "",
	}
	w.names = strings.NewReplacer(
		"nats://127.0.0.1:4222", live, "nats://nats.example:4222", live, "nats://staging:4222", staging,
		"https://hooks.example", hooks.URL, "https://audit.example", hooks.URL,
		"/etc/kubecdc/webhook", webhook, "/etc/kubecdc/kubecdc.yaml", "kubecdc.yaml", "/etc/bash_completion.d",
		completions,
		"run --config kubecdc.yaml", "run --config alone.yaml", "--config F ", "--config alone.yaml ",
		"2026-11-20", w.day, "2026-10-01T00:00:00Z", w.day+"T14:04:30Z", "2026-11-01T00:00:00Z", w.day+"T14:07:30Z",
		"rv:48007", "rv:120", "rv:48211", "rv:140",
		"--at 2h", "--at 14:05", "diff 2h now", "diff 14:03 14:05", "--from 24h", "--from 14:03",
		"--speed 10", "--speed 1000", "create namespace kubecdc", "create namespace kubecdc --dry-run=client",
		"go tool pprof", "test -s", "--seconds 10", "--seconds 1", "config default > kubecdc.yaml",
		"config default > default.yaml",
	)
	tools := filepath.Join(home, "tools")
	err = errors.Join(os.Mkdir(tools, 0o700), os.WriteFile(webhook, []byte(hooks.URL+"/services/T/B/x"), 0o600),
		os.MkdirAll(filepath.Join(home, ".config", "fish", "completions"), 0o700), os.Mkdir(completions, 0o700),
		os.WriteFile(filepath.Join(tools, "kubectl"), []byte(kubectlOfPods), 0o700), //nolint:gosec // It is run.
		os.Symlink(build.Agent(t), filepath.Join(tools, "kubecdc")),
		os.Symlink(filepath.Join(w.path, "kubectl"), filepath.Join(tools, "real-kubectl")))
	jq, buildErr := tool.JQ.Path(t.Context(), root, os.Stderr)
	// jq ends after the command whose output it reads, also if that is interrupted.
	script := "#!/bin/sh\ntrap '' INT\nexec " + jq + ` "$@"` + "\n"
	err = errors.Join(err, buildErr,
		os.WriteFile(filepath.Join(tools, "jq"), []byte(script), 0o700)) //nolint:gosec // It is run.
	if err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, "PATH="+tools+":"+os.Getenv("PATH"), "XDG_DATA_HOME="+filepath.Join(home, "data"), "TZ=UTC",
		"KUBECDC_AGENT=http://"+address, "KUBECDC_PAGER=cat")
	w.open()
	w.shell(objects)
	w.agent = "kubecdc run --config " + filepath.Join(w.dir, "kubecdc.yaml")
	w.toggle(true)
	// Without a configuration, `kubecdc checkpoint` reads the checkpoint of an agent that runs its
	// own JetStream.
	w.untilShown("kubecdc run", "kubecdc run", endless[0].shows)
	return w
}

// likenesses are resources that commands read, but the record of cmd/agent lacks. They are made
// from its Deployments.
var likenesses = []*strings.Replacer{
	likeness("pods", "v1", "pods", "Pod"),
	likeness("roles.rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1", "roles", "Role"),
	likeness("rolebindings.rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding"),
	likeness("clusterroles.rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole"),
	likeness("clusterrolebindings.rbac.authorization.k8s.io", "rbac.authorization.k8s.io/v1", "clusterrolebindings",
		"ClusterRoleBinding"),
}

func likeness(scope, version, resource, kind string) *strings.Replacer {
	return strings.NewReplacer("deployments.apps", scope, `"apps/v1"`, `"`+version+`"`, `"deployments"`,
		`"`+resource+`"`, `"Deployment"`, `"`+kind+`"`,
		`"snapshot":"s2"`, `"snapshot":"s2-`+resource+`"`, "u-web", "u-"+resource)
}

// ofDeployments is what progress says about Deployments.
var ofDeployments = regexp.MustCompile(`\{"resource":"deployments\.apps"[^{}]*\}`)

func withLikenesses(record string) string {
	var all strings.Builder
	for line := range strings.Lines(record) {
		all.WriteString(ofDeployments.ReplaceAllStringFunc(line, func(entry string) string {
			entries := []string{entry}
			for _, l := range likenesses {
				entries = append(entries, l.Replace(entry))
			}
			return strings.Join(entries, ",")
		}))
		for _, l := range likenesses {
			if strings.Contains(line, `"deployments"`) {
				all.WriteString(l.Replace(line))
			}
		}
	}
	return all.String()
}

// open creates a new working directory for the commands of a page.
func (w *world) open() {
	w.t.Helper()
	w.dir = w.t.TempDir()
	for name, text := range w.files {
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

// toggle starts or ends the agent.
func (w *world) toggle(up bool) {
	w.t.Helper()
	if up == w.up {
		return
	}
	w.up = up
	if !up {
		w.end(w.agent)
		return
	}
	w.start(w.agent)
	w.shows(w.agent, `waiting for changes`)
}

// typed returns a command with the names of the page replaced by those of the test.
func (w *world) typed(page, line string) string {
	if strings.Contains(line, "kubecdc relay ") {
		w.named++ // a relay that resumes logs nothing
		line = relayName.ReplaceAllString(line, fmt.Sprintf("--name $1-%d", w.named))
		line = strings.ReplaceAll(line, "/etc/kubecdc/kubecdc.yaml", "relays.yaml")
		line = strings.ReplaceAll(line, "kubecdc.yaml", "relays.yaml")
	}
	line = w.names.Replace(line)
	line = strings.ReplaceAll(line, "--for-apply | ", "--for-apply | "+completed+" | ")
	if asksRecord.MatchString(line) && !strings.Contains(line, "kubecdc history") {
		line = strings.ReplaceAll(line, "14:00", "14:01") // the record's snapshots complete at 14:00:02
	}
	for range 2 { // two times may be adjacent
		line = timeOfDay.ReplaceAllString(line, "$1'yesterday $2'")
	}
	if podOfAgent.MatchString(line) {
		line = podOfAgent.ReplaceAllString(line,
			"$(kubectl get pods -n kubecdc -l app.kubernetes.io/component=agent -o jsonpath='{.items[0].metadata.name}')")
	}
	record := "events.jsonl"
	if strings.HasPrefix(page, "docs/guides/time-travel") || strings.HasPrefix(page, "docs/guides/audit-and") {
		record = "record.jsonl" // the pages show outputs for this record
		if ofRollout.MatchString(line) {
			record = "rollout.jsonl"
		}
	}
	switch {
	case asksRecord.MatchString(line) && !namesBus.MatchString(line):
		line = "export KUBECDC_BUS=file:" + record + "\n" + line
	case strings.Contains(line, "kubecdc tail") && !namesBus.MatchString(line) && !strings.Contains(line, "--config"):
		line = "export KUBECDC_BUS=" + w.live + "\n" + line
	}
	return line
}

// run runs a command of a page.
func (w *world) run(page string, c shown) {
	w.t.Helper()
	line, began := w.typed(page, c.line), time.Now()
	defer func() { w.t.Logf("%5.1fs %s: $ %s", time.Since(began).Seconds(), page, c.line) }()
	switch {
	case agentDown.MatchString(line):
		if up := w.up; up {
			w.toggle(false)
			defer w.toggle(true)
		}
	case strings.Contains(line, "before.yaml") && strings.HasPrefix(line, "kubectl"):
		w.shell(completed + " -i before.yaml")
	case strings.Contains(line, "https://127.0.0.1:40123"):
		serve := "kubecdc serve --at " + w.day + "T14:05:00Z --bus file:record.jsonl --kubeconfig served"
		w.start(serve)
		defer w.end(serve)
		line = "export KUBECONFIG=served\n" +
			strings.ReplaceAll(line, "https://127.0.0.1:40123", w.shows(serve, `serving at (\S+),`)[1])
	}
	if strings.HasPrefix(line, "kubectl get") && strings.Contains(line, "--watch") {
		// 1: it was interrupted while it watched; 130: before that, when it had printed the list
		line += " || [[ $? =~ ^(1|130)$ ]]"
	}
	if strings.HasPrefix(page, "docs/reference/") && strings.Contains(line, "kubecdc audit") {
		line += " || [[ $? == 3 ]]" // 3: the record does not have all of the span
	}
	for _, e := range endless {
		if e.command.MatchString(line) && !ends.MatchString(line) {
			w.untilShown(c.line, line, e.shows)
			return
		}
	}
	if strings.Contains(line, "kubectl diff") {
		line = "set +o pipefail\n" + line + " || [[ $? == 1 ]]" // 1: there are differences
	}
	out, err := w.try("fpath=(. " + w.home + ")\n" + line)
	if (err != nil) != fails.MatchString(c.output) {
		w.t.Errorf("%s: $ %s\n%s%v", page, c.line, out, err)
	}
	if m := scaled.FindStringSubmatch(line); m != nil {
		w.toggle(m[1] != "0")
	}
	if page == "docs/guides/time-travel.md" && c.output != "" {
		w.compare(c, out)
	}
}

// compare checks that the output of a command matches the one on the page. "..." on the page stands
// for any lines.
func (w *world) compare(c shown, out string) {
	w.t.Helper()
	plain := func(text string) string {
		return strings.TrimSpace(timing.ReplaceAllString(strings.ReplaceAll(text, w.day, "2026-11-20"), ""))
	}
	rest := plain(out)
	for i, part := range strings.Split(plain(c.output)+"\n", "...\n") {
		at := strings.Index(rest, strings.TrimSpace(part))
		if at < 0 || i == 0 && at > 0 {
			w.t.Errorf("$ %s\nthe page shows:\n%s\nit prints:\n%s", c.line, c.output, out)
			return
		}
		rest = rest[at+len(strings.TrimSpace(part)):]
	}
}

// untilShown runs a command that does not end by itself, and interrupts it, as Ctrl-C does, when it
// has printed the expected output.
func (w *world) untilShown(name, line string, shows *regexp.Regexp) {
	w.t.Helper()
	log, err := os.Create(filepath.Join(w.dir, "log"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(w.t.Context(), "bash", "-c", "trap : INT\n"+line)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), w.env...)
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	text, changes := []byte(nil), strings.Contains(line, "kubecdc tail")
	err = wait.For(w.t.Context(), time.Minute, func() error {
		text, err = os.ReadFile(log.Name())
		if err == nil && !shows.Match(text) {
			err = fmt.Errorf("it has not shown %s", shows)
		}
		if err != nil && changes { // creates or deletes Pods
			w.pods = 3 - w.pods
			w.shell(fmt.Sprintf("kubectl scale deployment web -n shop --replicas=%d", max(1, w.pods)))
		}
		return err
	})
	if err == nil {
		err = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
	} else {
		_ = cmd.Cancel()
	}
	if ended := cmd.Wait(); err != nil || ended != nil {
		w.t.Errorf("$ %s\n%s\n%v", name, bytes.TrimSpace(text), errors.Join(err, ended))
	}
}
