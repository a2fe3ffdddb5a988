// Package live tests charts/kubecdc with real parts: helm, the agent of this repository, and the
// API server and controllers of package controlplane. Package kubelet runs the agent with the
// chart's command line, ConfigMap, ServiceAccount, roles and security context, and with nothing
// else.
//
//	TestManifests   the API server accepts everything that the chart renders with ../values
//	TestRelease     install, upgrade, rollback, uninstall, two releases side by side
//	TestRun         a running release, in each mode; and one whose role lacks a rule, which the audit log shows
//
// With KUBECDC_CHART=require, tests fail instead of being skipped if parts cannot run (no Linux,
// not root).
package live
