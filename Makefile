# What a person runs is what CI runs (.ci/run). `make` alone lists the targets.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT  ?= $(shell git rev-parse --verify --quiet HEAD 2>/dev/null)
LDFLAGS := -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# The Go toolchain of releases. Machines with GOTOOLCHAIN=local build with their own, so what checks a release names it.
TOOLCHAIN          := $(shell sed -n 's/^toolchain //p' go.mod)
IDENTITY_TOOLCHAIN := $(shell sed -n 's/^toolchain //p' release/identity/go.mod)

# The version of a release, without v. A dry run makes up one for the commit.
export SNAPSHOT := 0.0.0-snapshot.g$(shell git rev-parse --short=12 HEAD 2>/dev/null)
RELEASE    ?= $(SNAPSHOT)
GORELEASER ?= goreleaser

# vulncheck: how old the database may be; 0: any age
VULN_MAX_AGE ?= 0

# The command that runs tests. CI sets one that also counts. The test module runs with -count=1: it starts the agent as a child, and Go's
# test cache would answer with the results of another agent.
GOTEST ?= go test

GOLANGCI_LINT_VERSION := v2.15.0
GOFUMPT_VERSION       := v0.12.0
HELM_DOCS_VERSION     := v1.14.2
GREMLINS_VERSION      := v0.6.0
ACTIONLINT_VERSION    := v1.7.12
TOOLS         := $(CURDIR)/.cache/bin
GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)
GOFUMPT       := $(TOOLS)/gofumpt-$(GOFUMPT_VERSION)
HELM_DOCS     := $(TOOLS)/helm-docs-$(HELM_DOCS_VERSION)
GREMLINS      := $(TOOLS)/gremlins-$(GREMLINS_VERSION)

# fuzz and profile
FUZZTIME ?= 30s
PKG      ?= ./internal/object
BENCH    ?= .

# test-crashes: what orders and times are drawn from (default: drawn; printed)
CRASH_SEED ?=

# test-faults: how many, and what they are drawn from (default: the time; printed)
FAULTS     ?= 200
FAULT_SEED ?=

# test-selection: how many, and the seed of the first
SELECTIONS     ?= 50
SELECTION_SEED ?=

# test-failover: how often the lead is taken from an agent in each way
FAILOVERS ?= 20

# test-log-identity: how often the stream, and the topic, is deleted and created again
RECREATIONS ?= 50

# The agent's packages. The tests that take longest mostly wait, so four packages run at a time.
UNITS := -p 4 ./...

# What takes more than Go, and has targets of its own: helm and root, Prometheus, buildah.
APART := ./chart/... ./kubelet/... ./prometheus/... ./image/...
# e2e is by far the longest: it is first, and the others run beside it.
TESTS  = ./e2e $$(go list ./... | grep -vxFf <(go list $(APART)))

# Of the test module, what the fast tier runs.
CHECKED := ./e2e ./mutate ./oracle/... ./process ./prose ./proxy ./style ./wait

# Of e2e, what CI runs with an agent that has the race detector.
RACED := ^Test(Faults|Failover|Reload|Truth|HTTPTruth|Selection)$$

# test-full-stream: for how long, and what it is drawn from (default: the time; printed)
FULL_STREAM      ?= 30m
FULL_STREAM_SEED ?=

# test-truth: for how long objects are written, and the former minor of Kubernetes (test/cluster/versions) with which it runs too
TRUTH  ?= 30m
FORMER := 1.36

# test-versions: the versions of Kubernetes, NATS, Kafka and kine; empty: all that test/versions pins, none: none, oldest: the oldest
VERSIONS       ?=
NATS_VERSIONS  ?=
KAFKA_VERSIONS ?=
KINE_VERSIONS  ?=

# test-lag: how often a replica that lags is read
LAG_READS ?= 1000

# test-flink: for how long objects change
FLINK ?= 3m

# The steps of the long tier: targets, with variables. The nightly workflow has a job for each (walk TestNightly).
LONG := test-schedules test-crashes test-faults test-selection test-hostile test-failover test-log-identity test-full-stream test-truth test-versions test-lag test-memory test-clients test-e2e "test-kafka NODES=3 LEADERS=4,400 ROTATIONS=3 QUOTA=600" "test-flink FLINK=1h" race-all fuzz mutants mutate

# test-memory: for how many seconds the bus stops
MEMORY ?= 25

# test-kafka: how many Kafka nodes a test of leaders has
NODES ?= 1

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  \033[1m%-18s\033[0m %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## Build the agent: bin/kubecdc
	@test/demo/progress agent env CGO_ENABLED=0 go build -v -trimpath -ldflags '$(LDFLAGS)' -o bin/kubecdc ./cmd/agent

# Three tiers of tests, on two cores with warm caches: check (4 minutes), test (14 to 17 minutes), test-long (hours).
.PHONY: check
check: export GOTEST_FLAKY = 0
check: export KUBECDC_KAFKA = skip
check: lint docs control-plane ## The fast tier, before each commit: lint, docs, and the short tests, those of each guarantee with a real API server included
	failed=0; $(GOTEST) -short $(UNITS) ./.ci/gotest || failed=1; cd test && $(GOTEST) -short -count=1 -timeout 10m $(CHECKED) || failed=1; exit $$failed

.PHONY: test
test: control-plane kafka ## Run all tests that need no more than Go (and, for Kafka, JDK 17 and Maven), those against a real API server and JetStream included
	failed=0; $(GOTEST) $(UNITS) ./.ci/gotest || failed=1; cd test && $(GOTEST) -count=1 -timeout 40m -p 2 $(TESTS) || failed=1; exit $$failed

.PHONY: test-long
test-long: ## The long tier, each night: all tests in their long form, three Kafka nodes, all under the race detector, fuzzing, mutants (hours)
	@failed=; for step in $(LONG); do \
		echo "=== make $$step"; $(MAKE) $$step || failed="$$failed, make $$step"; done; \
		if [[ -n $$failed ]]; then echo "failed: $${failed#, }"; exit 1; fi

.PHONY: test-schedules
test-schedules: ## Play 10,000 random schedules of acknowledgements, failures and outages against the dispatcher (a minute)
	go test -count=1 -timeout 30m -run '^TestSchedules$$' ./internal/publish -rapid.checks=10000

.PHONY: test-crashes
test-crashes: ## Kill the agent before and after each record, acknowledgement and save of 40 scripts, with orders and times drawn from CRASH_SEED (minutes)
	CRASHES=all $(if $(CRASH_SEED),CRASH_SEED=$(CRASH_SEED)) go test -v -count=1 -timeout 1h -run '^TestCrashes$$' ./internal/informers

.PHONY: test-faults
test-faults: export KUBECDC_KAFKA = require
test-faults: control-plane kafka ## Do FAULTS (200) bad things in a row to an agent on NATS and one on Kafka, drawn from FAULT_SEED, and the long tests of resuming (half an hour)
	go test -count=1 -timeout 1h -run '^TestMachine$$' ./internal/informers -rapid.checks=$$((10 * $(FAULTS)))
	cd test && FAULTS=$(FAULTS) $(if $(FAULT_SEED),FAULT_SEED=$(FAULT_SEED)) go test -v -count=1 -timeout 3h \
		-run '^Test(Faults|KafkaFaults|Restart|QuietAgent|KilledInsideSnapshot|APIServers|CompactedWhileDown|Snapshot(OnDemand|Every)|BlackholedWatch|BufferingProxy|QuietEventsAreSettled|Checkpoint|ReplacedWhileDown|Rewound|DefinitionChanged|ServedVersionChanged|SelectionChanged)$$' ./e2e

.PHONY: test-selection
test-selection: control-plane ## Tell agents what to send in SELECTIONS (50) ways, drawn from SELECTION_SEED, and compare with what the rules say (ten minutes)
	cd test && SELECTIONS=$(SELECTIONS) $(if $(SELECTION_SEED),SELECTION_SEED=$(SELECTION_SEED)) go test -v -count=1 -timeout 2h \
		-run '^Test(Selection(Oracle|Content)?|PlantedSecrets|Haystack|RedactionHash)$$' ./e2e ./oracle/...

.PHONY: test-hostile
test-hostile: control-plane ## Attack agents as docs/security.md lists: hostile objects, readers, nodes, connections, local users and configurations (ten minutes)
	go test -v -count=1 -timeout 30m \
		-run '^Test(OtherUsersOfTheMachineReachNoRecord|Confined.*|RolesMayDoNothingElse|NoOutputShowsWhatCameFromTheEnvironment|Tenant.*|HostileDocumentCostsLittle)$$' \
		./cmd/agent ./internal/bus/nats ./internal/relay ./internal/config/yamldoc ./internal/explain
	cd test && KUBECDC_E2E_LONG=1 go test -v -count=1 -timeout 1h \
		-run '^Test(PlantedSecrets|HostileObjects|HostileConnections|TokenOfNodeConfiguresNobody)$$' ./e2e ./chart/live

.PHONY: test-failover
test-failover: control-plane ## Take the lead from an agent in five ways, FAILOVERS (20) times each, under load; and rolling updates
	cd test && FAILOVERS=$(FAILOVERS) go test -v -count=1 -timeout 2h \
		-run '^Test(Failover|FailoverOfThree|Leader.*|LeaseDeleted|StandbyAway|RollingUpdate.*)$$' ./e2e

.PHONY: test-log-identity
test-log-identity: export KUBECDC_KAFKA = require
test-log-identity: control-plane kafka ## Delete and create the stream and the topic again, RECREATIONS (50) times under load, exchange and restore them
	cd test && RECREATIONS=$(RECREATIONS) go test -v -count=1 -timeout 1h \
		-run '^Test(StreamIs.*|TopicIsRecreated|KafkaIsExchanged)$$' ./e2e

.PHONY: test-full-stream
test-full-stream: ## Fill a stream of three replicas again and again for FULL_STREAM (30m), make room as the documentation advises, and read all records back
	FULL_STREAM=$(FULL_STREAM) $(if $(FULL_STREAM_SEED),FULL_STREAM_SEED=$(FULL_STREAM_SEED)) go test -v -count=1 -timeout 2h -run '^TestFullStream$$' ./internal/bus/nats

.PHONY: test-truth
test-truth: export KUBECDC_KAFKA = require
test-truth: control-plane kafka ## Ask records that were written for TRUTH (30m) under all kinds of faults, on NATS and Kafka, then with a former Kubernetes (two hours)
	cd test && CGO_ENABLED=0 go run -trimpath ./controlplane/cmd/controlplane --build-only --version $(FORMER)
	cd test && TRUTH=$(TRUTH) go test -v -count=1 -timeout 2h -run '^TestTruthByQuestionForLong$$' ./e2e
	cd test && TRUTH=$(TRUTH) go test -v -count=1 -timeout 2h -run '^TestTruthByQuestionOfAnOlderServer$$' ./e2e

.PHONY: test-versions
test-versions: control-plane kafka ## Run the tests on the VERSIONS of Kubernetes, NATS_VERSIONS, KAFKA_VERSIONS and KINE_VERSIONS that people run (two hours, with builds three); UPDATE=1 writes their tables
	cd test && go run ./versions --kubernetes "$(VERSIONS)" --nats "$(NATS_VERSIONS)" --kafka "$(KAFKA_VERSIONS)" --kine "$(KINE_VERSIONS)" $(if $(UPDATE),--update)

.PHONY: test-lag
test-lag: ## Read a stream of three replicas to its end LAG_READS (1000) times by way of a replica that lags, while a writer continues (two minutes)
	LAG_READS=$(LAG_READS) go test -v -count=1 -timeout 30m -run '^TestReadsOfALaggingReplica$$' ./pkg/consume/fromnats

.PHONY: test-kafka
test-kafka: export KUBECDC_KAFKA = require
test-kafka: export NODES := $(NODES)
test-kafka: control-plane kafka ## Run the tests against real Kafka brokers, and fail where none can be had; NODES=3 for a cluster of three
	cd test && $(GOTEST) -count=1 -timeout 1h -p 1 ./kafka/...
	cd test && $(GOTEST) -count=1 -timeout 30m -p 1 -run Kafka ./consumers ./e2e

.PHONY: test-flink
test-flink: export KUBECDC_KAFKA = require
test-flink: control-plane kafka ## Compare a table of Flink with the cluster for FLINK (3m), while agent and relay are killed and history is lost (the first time, a download of 350 MB)
	cd test && FLINK=$(FLINK) go test -v -count=1 -timeout 3h ./flink

.PHONY: test-e2e
test-e2e: control-plane kafka ## Run the end-to-end tests at their largest sizes
	cd test && KUBECDC_E2E_LONG=1 $(GOTEST) -count=1 -timeout 2h ./e2e

.PHONY: test-memory
test-memory: control-plane ## Stop the bus for MEMORY (25) seconds under the largest loads, and measure the agent's memory
	cd test && MEMORY=$(MEMORY) go test -v -count=1 -timeout 1h -run '^TestMemory$$' ./e2e

.PHONY: test-clients
test-clients: export KUBECDC_CLIENTS ?= all
test-clients: control-plane ## Run programs of others against `kubecdc serve`: k9s, Helm, kubectl, libraries (an hour, later minutes); UPDATE=1 writes their table, KUBECDC_CLIENTS=require skips none
	@if ! ruby -e 'require "kubeclient"' 2>/dev/null && command -v apt-get >/dev/null && [[ $$(id -u) == 0 ]]; then \
		apt-get update -q && apt-get install -q -y --no-install-recommends ruby-kubeclient; fi
	cd test && $(GOTEST) -v -count=1 -timeout 3h ./clients $(if $(UPDATE),-update)

.PHONY: race
race: control-plane ## Run the short tests of the agent's packages, and some of e2e, with the race detector, the agent included (needs a C compiler)
	failed=0; $(GOTEST) -race -short ./... || failed=1; \
		cd test && KUBECDC_E2E_RACE=1 $(GOTEST) -count=1 -timeout 30m -run '$(RACED)' ./e2e || failed=1; exit $$failed

.PHONY: race-all
race-all: control-plane kafka ## Run all tests with the race detector, the agent included
	failed=0; $(GOTEST) -race ./... || failed=1; \
		cd test && KUBECDC_E2E_RACE=1 $(GOTEST) -count=1 -race -timeout 2h -p 1 $(TESTS) || failed=1; exit $$failed

.PHONY: mutants
mutants: control-plane ## Make small wrong changes to the agent, one at a time, and check that its tests catch each (some minutes); ONLY=queue,leader runs some
	cd test && go run ./mutants $(if $(ONLY),--only $(ONLY))

# A package that is named is tried whole; without one, each listed package's part of this night.
.PHONY: mutate
mutate: $(GREMLINS) ## Have a tool change covered conditions and operators of each package of test/mutate, and judge the changes that its tests do not catch; PKG=./internal/queue tries one whole, PART=3/7 a part (up to hours)
	cd test && go run ./mutate --gremlins $(GREMLINS) $(if $(filter-out file,$(origin PKG)),--package $(PKG)) $(if $(PART),--part $(PART))

.PHONY: lint
lint: prose $(GOLANGCI_LINT) $(GOFUMPT) ## Check formatting and language, lint the agent and its tests (test/cluster is only formatted: linting it takes all of Kubernetes)
	@unformatted=$$($(GOFUMPT) -l .); if [[ -n $$unformatted ]]; then \
		echo "not formatted, run '$(GOFUMPT) -w .':"; echo "$$unformatted"; exit 1; fi
	@named=$$(find cmd internal pkg test -type d \( -name util -o -name utils -o -name common -o -name helpers -o -name types \)); \
		if [[ -n $$named ]]; then echo "name these packages for what they are about: $$named"; exit 1; fi
	$(GOLANGCI_LINT) run ./...
	cd test && $(GOLANGCI_LINT) run --config ../.golangci.yml ./...
	cd image && $(GOLANGCI_LINT) run --config ../.golangci.yml ./...

# The directories whose comments `make prose` reads.
PROSE ?= $$(find . -name .cache -prune -o -name '*.go' -printf '%h\n' | sort -u)

.PHONY: prose
prose: ## Find sentences that are too long or hard to read, in documents, help texts, the chart, messages and the comments of PROSE (all)
	@failed=0; packages="$(PROSE)"; cd test && go build -o ../.cache/prose ./prose; \
		for what in docs help chart messages "comments $$packages"; do ../.cache/prose $$what || failed=1; done; exit $$failed

.PHONY: bench
bench: build ## Measure the agent beside its baselines, and every stage alone (long)
	cd test && go run ./bench/cmd/bench
	go test -run '^$$' -bench . -benchmem ./internal/...
	cd test && go test -count=1 -run '^$$' -bench . -benchtime 3x ./kafka

.PHONY: bench-quick
bench-quick: build ## Measure the agent beside its baselines, two minutes' worth
	cd test && go run ./bench/cmd/bench --quick

.PHONY: bench-buses
bench-buses: ## Measure the way to each bus beside its client used bare, in some minutes
	cd test && go run ./bench/cmd/bench --buses all

.PHONY: bench-crds
bench-crds: build ## Measure a start with 1,000 custom resources on a real control plane beside a stock informer, in about ten minutes
	cd test && go run ./bench/cmd/bench --only crds

.PHONY: bench-filters
bench-filters: build ## Measure what filters cost, alone and within the agent
	cd test && go run ./bench/cmd/bench --only filters

.PHONY: bench-record
bench-record: build ## Ask about the past of a week and of ten, on JetStream and Kafka; the records are written once (13 GB of the user's cache)
	cd test && go run ./bench/cmd/bench --only record

.PHONY: demo
demo: ## See a cluster change: a real control plane, the agent and tail in this terminal, or your own cluster with KUBECONFIG_DEMO
	@MAKE='$(MAKE)' test/demo/run

.PHONY: screenshots
screenshots: build ## Draw the terminal images in docs/images
	cd test && go run ./screenshots

.PHONY: dist
dist: build ## Write what a release has besides the binary: manual pages and completions, in dist
	rm -rf dist/man dist/completions && mkdir -p dist/completions
	bin/kubecdc man dist/man
	bin/kubecdc completion bash > dist/completions/kubecdc.bash
	bin/kubecdc completion zsh > dist/completions/_kubecdc
	bin/kubecdc completion fish > dist/completions/kubecdc.fish
	bin/kubecdc completion powershell > dist/completions/kubecdc.ps1

.PHONY: helm
helm: ## Build the helm that the chart is tested with (minutes, once)
	@cd test && go run ./chart/cmd/helm >/dev/null

HELM_DOCS_RUN = $(HELM_DOCS) --chart-search-root charts/kubecdc --chart-to-generate charts/kubecdc --sort-values-order file --skip-version-footer -l warning

# chart/live takes longest: it is first.
.PHONY: chart
chart: export KUBECDC_CHART = require
chart: control-plane helm $(HELM_DOCS) ## Check the chart: lint, what it renders, and install, run, upgrade and remove it on a real API server (Linux, root)
	@$(HELM_DOCS_RUN) --dry-run | diff charts/kubecdc/README.md - || { echo 'charts/kubecdc/README.md is not current, run: make chart-readme'; exit 1; }
	cd test && $(GOTEST) -count=1 -timeout 30m -p 2 ./chart/live ./chart/... ./kubelet

.PHONY: chart-readme
chart-readme: $(HELM_DOCS) ## Write charts/kubecdc/README.md from the values' comments
	$(HELM_DOCS_RUN)

.PHONY: monitoring
monitoring: export KUBECDC_PROMETHEUS = require
monitoring: control-plane ## Check alerts and dashboard with a real Prometheus, which Debian's packages provide
	cd test && $(GOTEST) -count=1 -timeout 20m ./prometheus

.PHONY: image
image: ## Build the image for amd64 and arm64 with buildah: dist/kubecdc-image.tar, and what is in it (SBOM)
	image/build $(VERSION) $(COMMIT)

.PHONY: test-image
test-image: export KUBECDC_IMAGE = require
test-image: ## Build the image twice, compare, look inside and run it (Linux, root, buildah)
	cd test && $(GOTEST) -count=1 -timeout 30m ./image

.PHONY: release-check
release-check: export GOTOOLCHAIN = $(TOOLCHAIN)
release-check: ## Check the recipe of a release, the workflows, and the identity that users verify signatures with
	cd release && $(GOTEST) -count=1 ./...
	cd release/identity && GOTOOLCHAIN=$(IDENTITY_TOOLCHAIN) $(GOTEST) -count=1 ./...
	go run github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION) .github/workflows/*.yaml

.PHONY: vulncheck
vulncheck: export GOTOOLCHAIN = $(TOOLCHAIN)
vulncheck: ## Fail if the agent calls code with a known vulnerability (govulncheck, with a pinned database)
	cd release && go run ./vulncheck --max-age $(VULN_MAX_AGE) .. ./cmd/agent ./pkg/...

.PHONY: release-parts
release-parts: export GOTOOLCHAIN = $(TOOLCHAIN)
release-parts: ## Make the image and the chart of a release: dist/parts (buildah)
	release/parts $(RELEASE)

.PHONY: release-verify
release-verify: ## Check what goreleaser has made: files, sums, SBOMs, toolchain, versions
	cd release && go run ./verify $(RELEASE)

.PHONY: release-dry-run
release-dry-run: export GOTOOLCHAIN = $(TOOLCHAIN)
release-dry-run: release-parts ## Make a whole release without signatures, publish nothing, and check it (goreleaser, buildah)
	$(GORELEASER) release --snapshot --clean --skip=sign
	cd release && go run ./verify $(SNAPSHOT)

.PHONY: release-cut
release-cut: ## Cut the release RELEASE (1.2.3): changelog, commit and tag; refuses without green versions, clients and hostile tests
	cd release && go run ./cut v$(RELEASE)

.PHONY: docs
docs: prose ## Check that references and guarantees are current, that links lead somewhere, and the language (make prose)
	go test -count=1 -run '^Test(Default|Docs|Configurations|Schema|Reference|AsyncAPI)' ./internal/config ./cmd/agent ./pkg/consume
	cd test && go test -count=1 -run '^Test(Guarantees|Tiers|Nightly|Links|Index|NamedPages|CommandBlocks|READMEIsShort)' ./walk

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s)
	@grep -rEo '^func Fuzz[A-Za-z0-9_]*' --include='*_test.go' cmd internal pkg | sed 's/:func / /' | sort | \
	while read -r file name; do \
		echo "== $$name ($$(dirname "$$file"))"; \
		go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$file")" </dev/null; \
	done

.PHONY: profile
profile: ## Profile the benchmarks BENCH of package PKG; profiles go to .cache/profile
	@mkdir -p .cache/profile
	go test -run '^$$' -bench '$(BENCH)' -benchmem -cpuprofile .cache/profile/cpu.prof -memprofile .cache/profile/mem.prof \
		-o .cache/profile/profile.test $(PKG)
	go tool pprof -top -nodecount 20 .cache/profile/profile.test .cache/profile/cpu.prof
	go tool pprof -top -nodecount 20 -sample_index alloc_space .cache/profile/profile.test .cache/profile/mem.prof

.PHONY: control-plane
control-plane: ## Build etcd, kube-apiserver and kube-controller-manager for the tests (minutes, once)
	cd test && CGO_ENABLED=0 go run -trimpath ./controlplane/cmd/controlplane --build-only

.PHONY: kafka
kafka: ## Install Kafka for the tests, where there are a JDK 17 and Maven (seconds, once), and say where not
	@cd test && go run ./kafka/cmd/kafka --install-only

.PHONY: clean
clean: ## Remove what was built here: bin, dist and .cache
	rm -rf bin dist .cache

# Tools are built from source and kept beside the repository's other caches, one file for each version.
$(GOLANGCI_LINT):
	@echo "installing golangci-lint $(GOLANGCI_LINT_VERSION), takes some minutes, once"
	@mkdir -p $(TOOLS)/tmp
	@GOBIN=$(TOOLS)/tmp GOFLAGS= go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@mv $(TOOLS)/tmp/golangci-lint $@

$(HELM_DOCS):
	@echo "installing helm-docs $(HELM_DOCS_VERSION)"
	@mkdir -p $(TOOLS)/tmp
	@GOBIN=$(TOOLS)/tmp GOFLAGS= go install github.com/norwoodj/helm-docs/cmd/helm-docs@$(HELM_DOCS_VERSION)
	@mv $(TOOLS)/tmp/helm-docs $@

$(GREMLINS):
	@echo "installing gremlins $(GREMLINS_VERSION)"
	@mkdir -p $(TOOLS)/tmp
	@GOBIN=$(TOOLS)/tmp GOFLAGS= go install github.com/go-gremlins/gremlins/cmd/gremlins@$(GREMLINS_VERSION)
	@mv $(TOOLS)/tmp/gremlins $@

$(GOFUMPT):
	@echo "installing gofumpt $(GOFUMPT_VERSION)"
	@mkdir -p $(TOOLS)/tmp
	@GOBIN=$(TOOLS)/tmp GOFLAGS= go install mvdan.cc/gofumpt@$(GOFUMPT_VERSION)
	@mv $(TOOLS)/tmp/gofumpt $@
