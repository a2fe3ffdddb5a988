// Package prometheus runs Prometheus as a local process, for tests: on a free port of 127.0.0.1,
// with a data directory of its own and the given targets. Its tests cover the chart's monitoring of
// the agent (charts/kubecdc/monitoring): alerts by rule unit tests (promtool), each panel of the
// dashboard by its queries against a real agent.
//
//	p := prometheus.Start(t, prometheus.Options{Scrape: []prometheus.Scrape{{Job: "kubecdc", Targets: []string{"127.0.0.1:8080"}}}})
//	samples, err := p.Query(t.Context(), `sum(kubecdc_queue_events)`)
//
// # Binaries
//
// prometheus and promtool are those of Debian's package prometheus, which apt-get downloads (19 MB)
// and dpkg-deb unpacks into the user's cache directory, kubecdc/prometheus-<version>, once. Nothing
// is installed, and nothing outside of that directory is written. Later runs use these files, also
// without a network. If there is no apt, or it has no such package, the two are looked up on PATH.
//
// [Require] skips the test if neither is available. With KUBECDC_PROMETHEUS=require in the
// environment it fails the test instead, and with KUBECDC_PROMETHEUS=skip it always skips it.
//
// # Invariants
//
//   - The process ends with the one that started it, on Linux also when that one is killed (package
//     process), and by the handle it was started with, never by name.
//   - It writes to its directory only. When it does not get ready, the end of its log is in the
//     error.
//
// # Goroutines
//
// One for each running process, which waits for its end. They are gone when [Server.Stop] returns.
package prometheus
