package consumers_test

import "github.com/kubecdc/kubecdc/test/kit"

const (
	root     = "../.." // of the repository
	examples = root + "/examples"
)

var (
	python = kit.Kit{
		Name: "python", Needs: [][]string{{"python3", "-c", "import ensurepip, venv"}}, Pins: []string{
			examples + "/python/requirements.txt",
		},
		Steps: [][]string{
			{"python3", "-m", "venv", "venv"},
			{"venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"},
		},
	}
	javascript = kit.Kit{
		Name: "javascript", Needs: [][]string{{
			"node", "-e", "if (parseInt(process.versions.node) < 20) throw 'Node.js 20 is needed'",
		}, {"npm", "--version"}},
		Pins:  []string{examples + "/javascript/package.json", examples + "/javascript/package-lock.json"},
		Steps: [][]string{{"npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"}},
	}
	natsCLI = kit.Kit{
		Name: "natscli", Needs: [][]string{{"go", "version"}}, Pins: []string{"natscli/go.mod", "natscli/go.sum"},
		Steps: [][]string{{"go", "build", "-o", "nats", "github.com/nats-io/natscli/nats"}},
	}
)
