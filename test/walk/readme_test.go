package walk_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/kubecdc/kubecdc/test/controlplane"
)

const root = "../.."

// withEvents is the command of the quickstart that replaces `kubecdc run`.
const withEvents = `bin/kubecdc run --set 'watch=[{resources: ["*"], except: [leases.coordination.k8s.io]}]'`

// TestREADME runs each command of README and docs/start.
func TestREADME(t *testing.T) {
	if testing.Short() {
		t.Skip("runs each command of README and docs/start against a control plane")
	}
	// Commands that CI runs, with the step of CI that does.
	byCI := map[string]string{
		"make demo":  "DEMO_SECONDS=30 make demo",
		"make test":  "make test",
		"make image": "make test-image",
		// TestRunCluster of test/chart/live runs these, with another address of the bus, against a
		// real API server.
		"helm install kubecdc charts/kubecdc --namespace kubecdc --create-namespace --set bus.nats.url=nats://nats.messaging:4222": "make chart",
		"kubectl exec -n kubecdc deploy/kubecdc -- /kubecdc status":                                                                "make chart",
		"DEMO_SECONDS=30 make demo":                "DEMO_SECONDS=30 make demo",
		"KUBEBUILDER_ASSETS=DIR make demo":         "make test", // test/demo runs with the binaries of setup-envtest
		"KUBECONFIG_DEMO=~/.kube/config make demo": "make test", // test/demo follows a cluster that is not its own
	}
	start := read(t, "docs/start/quickstart.md")
	ci := read(t, ".ci/run")
	lines := []string{"make build"}
	// The first page configures the agent whose events the others receive. From the first release
	// on, pages name its chart (release/cut). The tests have that of the sources.
	released := regexp.MustCompile(`oci://ghcr\.io/kubecdc/charts/kubecdc --version \S+`)
	for _, page := range []string{start, read(t, "docs/start/consumer.md"), read(t, "README.md")} {
		page = released.ReplaceAllString(page, "charts/kubecdc")
		for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(page, -1) {
			for line := range strings.Lines(block[1]) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		for _, inline := range regexp.MustCompile("`((?:[A-Z_]+=\\S+ )?make [^`]*)`").FindAllStringSubmatch(page, -1) {
			lines = append(lines, inline[1])
		}
	}

	s, url := newPerson(t)
	steps := map[string]func(line string){
		"make build": func(string) {
			if out, err := exec.CommandContext(t.Context(), "make", "-C", root, "build").CombinedOutput(); err != nil {
				t.Fatalf("make build: %v\n%s", err, out)
			}
			bin, err := filepath.Abs(filepath.Join(root, "bin"))
			if err = errors.Join(err, os.Symlink(bin, filepath.Join(s.dir, "bin"))); err != nil {
				t.Fatal(err)
			}
		},
		"make help": func(line string) {
			s.has(line, s.shell("cd -P bin/.. && "+line), "demo", "See a cluster change")
		},
		"bin/kubecdc run": func(line string) {
			s.start(line)
			s.shows(line, `first snapshot complete`)
		},
		"bin/kubecdc tail --diff": func(line string) {
			s.start(line)
			s.change(line)
			s.shows(line, `(?s)updated +deployments +shop/web +by kubectl\b.*-   replicas: 1\n +\+   replicas: 3`)
			s.end(line)
		},
		"bin/kubecdc tail deployments,configmaps -n shop --since 1h": func(line string) {
			s.start(line)
			s.shows(line, `created +deployments +shop/web`)
			s.shows(line, `updated +deployments +shop/web .*replicas`)
			s.end(line)
		},
		"bin/kubecdc tail pods -l app=web --op created,deleted -o json": func(line string) {
			s.start(line)
			s.shell("kubectl scale deployment web -n shop --replicas=4")
			s.shows(line, `"type":"dev.kubecdc.object.created"`)
			s.end(line)
		},
		withEvents: func(line string) {
			s.end("bin/kubecdc run")
			s.start(line)
			s.shows(line, `resumed where the last run ended`)
		},
		"bin/kubecdc history deploy -A --with-events --since 1h": func(line string) {
			s.has(line, s.shell(line), "shop/web", "Event ", "SuccessfulCreate", "ScalingReplicaSet",
				"by deployment-controller")
		},
		"bin/kubecdc checkpoint show": func(line string) {
			s.has(line, s.shell(line), "deployments.apps", "checkpoint")
		},
		"bin/kubecdc snapshot deployments.apps -n shop": func(line string) {
			// The agent has just resumed. Until its watch has shown a bookmark, within about a
			// minute, it answers "try again".
			s.has(line, s.shell("timeout 100 bash -c 'until "+line+"; do sleep 1; done'"), "deployments.apps/shop")
		},
		"bin/kubecdc config default > kubecdc.yaml": func(line string) {
			s.shell(line)
			s.shell("grep -q 'nats://127.0.0.1:4222' kubecdc.yaml")
			// change what you need
			s.shell(
				"sed -i 's|nats://127.0.0.1:4222|" + url + "|; s|address: .*|address: \"127.0.0.1:0\"|' kubecdc.yaml")
		},
		"bin/kubecdc config schema > kubecdc.schema.json": func(line string) {
			s.shell(line)
			s.shell(
				"grep -q json-schema.org kubecdc.schema.json && grep -q 'schema=./kubecdc.schema.json' kubecdc.yaml")
		},
		"bin/kubecdc config check kubecdc.yaml": func(line string) {
			s.has(line, s.shell(line), "kubecdc.yaml: valid", url)
		},
		"bin/kubecdc config explain deployments.apps --config kubecdc.yaml": func(line string) {
			s.has(line, s.shell(line), "deployments.apps: captured", "object.apps.deployments.default.example")
		},
		"bin/kubecdc rbac --config kubecdc.yaml | kubectl apply -f -": func(line string) {
			s.shell("kubectl create namespace kubecdc && kubectl create serviceaccount kubecdc -n kubecdc")
			s.has(line, s.shell(line), "clusterrole.rbac.authorization.k8s.io/kubecdc created")
			can := "kubectl auth can-i watch deployments.apps --as system:serviceaccount:kubecdc:kubecdc"
			s.has(can, s.shell(can), "yes")
		},
		"bin/kubecdc run --config kubecdc.yaml": func(line string) {
			s.start(line)
			s.shows(line, `first snapshot complete`)
		},
		"nats sub --context ~/.local/share/kubecdc/*/bus.json 'kubecdc.>'": func(line string) {
			var bus struct{ URL, Token string }
			if err := json.Unmarshal([]byte(s.shell("cat "+strings.Fields(line)[3])), &bus); err != nil {
				t.Fatal(err)
			}
			nc, err := nats.Connect(bus.URL, nats.Token(bus.Token)) // as the client does with this context
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			sub, err := nc.SubscribeSync(strings.Split(line, "'")[1])
			if err = errors.Join(err, nc.Flush()); err != nil {
				t.Fatal(err)
			}
			s.shell("kubectl scale deployment web -n shop --replicas=5")
			if _, err := sub.NextMsg(time.Minute); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		},
		// test/consumers runs this with the client that README names. This test subscribes with
		// nats.go.
		"nats sub 'kubecdc.*.object.apps.deployments.>'": func(line string) {
			subject := strings.Split(line, "'")[1]
			nc, err := nats.Connect(url)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			sub, err := nc.SubscribeSync(subject)
			if err = errors.Join(err, nc.Flush()); err != nil {
				t.Fatal(err)
			}
			s.shell("kubectl scale deployment web -n shop --replicas=2")
			m, err := sub.NextMsg(time.Minute)
			if err != nil || !strings.HasSuffix(m.Subject, ".object.apps.deployments.shop.web") {
				t.Errorf("%s: %v %v", line, m, err)
			}
		},
	}
	steps["go run ./examples/go/follow -once 'kubecdc.*.*.apps.deployments.>'"] = func(line string) {
		// Go's caches of the user who runs the test, because the home directory of the session is
		// removed.
		caches, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOCACHE").Output()
		dirs := strings.Fields(string(caches))
		if err != nil || len(dirs) != 2 {
			t.Fatalf("go env: %v: %s", err, caches)
		}
		run := "cd -P bin/.. && GOMODCACHE=" + dirs[0] + " GOCACHE=" + dirs[1] + " " +
			strings.Replace(line, "-once", "-server "+url+" -once", 1)
		s.has(line, s.shell(run), `"resource":"deployments.apps"`, `"name":"web"`)
	}
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(start)
	if example == nil {
		t.Fatal("docs/start/quickstart.md has no configuration")
	}
	if err := os.WriteFile(filepath.Join(s.dir, "example.yaml"), []byte(example[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	done := map[string]bool{} // Both pages may have a command.
	for _, line := range lines {
		if done[line] {
			continue
		}
		done[line] = true
		if by, ok := byCI[line]; ok {
			if !strings.Contains(ci, by) {
				t.Errorf("%s: CI does not run %s", line, by)
			}
			delete(byCI, line)
			continue
		}
		step, ok := steps[line]
		if !ok {
			t.Fatalf("README or docs/start has a command that no test runs: %s", line)
		}
		t.Logf("$ %s", line)
		step(line)
		delete(steps, line)
	}
	for line := range steps {
		t.Errorf("neither README nor docs/start has: %s", line)
	}
	for line := range byCI {
		t.Errorf("neither README nor docs/start has: %s", line)
	}
	s.shell("bin/kubecdc config check example.yaml")
	s.end("bin/kubecdc run --config kubecdc.yaml")
	s.end(withEvents)
}

// TestREADMEIsShort limits README.md to 120 lines.
func TestREADMEIsShort(t *testing.T) {
	if n := strings.Count(read(t, "README.md"), "\n"); n > 120 {
		t.Errorf("README.md has %d lines, want at most 120", n)
	}
}

// newPerson returns a session with a cluster and a kubectl, and the URL of a NATS server.
func newPerson(t *testing.T) (_ *session, url string) {
	t.Helper()
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Stop)
	tools := t.TempDir()
	s := newSession(t, tools)
	kube := filepath.Join(s.home, ".kube")
	if err := errors.Join(os.Mkdir(kube, 0o700),
		cluster.WriteKubeconfig(filepath.Join(kube, "config"), controlplane.Admin),
		cluster.WriteKubectl(filepath.Join(tools, "kubectl"))); err != nil {
		t.Fatal(err)
	}
	return s, startJetStream(t)
}

// startJetStream starts a NATS server in this process and returns its URL.
func startJetStream(t *testing.T) string {
	t.Helper()
	bus, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	bus.Start()
	t.Cleanup(func() {
		bus.Shutdown()
		bus.WaitForShutdown()
	})
	return bus.ClientURL()
}

// change waits until the command follows the bus, and then creates and scales a Deployment.
func (s *session) change(line string) {
	s.t.Helper()
	s.shows(line, `UTC|following|waiting|^$`)
	s.shell("kubectl create namespace shop")
	s.shell("kubectl create deployment web -n shop --image=nginx:1.27")
	s.shows(line, `created +deployments +shop/web`)
	s.shell("kubectl scale deployment web -n shop --replicas=3")
}

// TestHelp checks that make help lists each target that CONTRIBUTING names.
func TestHelp(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "make", "-C", root, "--no-print-directory", "help").Output()
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`make ([a-z0-9-]+)").FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1)
	if len(named) < 10 {
		t.Errorf("CONTRIBUTING.md names %d targets: the test shows nothing", len(named))
	}
	for _, target := range named {
		if !regexp.MustCompile(`(?m)^ *\x1b\[1m` + target[1] + ` .* [A-Z]`).Match(out) {
			t.Errorf("make help does not list %s:\n%s", target[1], out)
		}
	}
}

// TestImageHasItsSources checks that Dockerfile and .dockerignore include all folders from which
// the agent is built.
func TestImageHasItsSources(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/agent")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	dockerfile, ignored := read(t, "Dockerfile"), read(t, ".dockerignore")
	folders := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^github\.com/kubecdc/kubecdc/([^/\n]+)`).FindAllSubmatch(out, -1) {
		folders[string(m[1])] = true
	}
	if !folders["cmd"] || !folders["internal"] {
		t.Fatalf("the agent is built of %v: the test shows nothing", folders)
	}
	for folder := range folders {
		if !strings.Contains(dockerfile, "\nCOPY "+folder+" "+folder+"\n") {
			t.Errorf("Dockerfile does not copy %s", folder)
		}
		if !strings.Contains(ignored, "\n!"+folder+"\n") {
			t.Errorf(".dockerignore leaves %s out", folder)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
