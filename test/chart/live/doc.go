// Package live tests charts/kubecdc with real parts: the API server and the controllers of package controlplane, helm, and the
// agent of this repository, which package kubelet runs as the chart says: with the chart's command line, ConfigMap, ServiceAccount,
// roles and security context, and with nothing else.
//
//	TestManifests   everything that the chart renders, over ../values, is what the API server takes
//	TestRelease     install, upgrade, rollback, uninstall, two releases side by side
//	TestRun         a release at work, in each mode; and one whose role lacks a rule, which the audit log tells
//
// KUBECDC_CHART=require fails where parts cannot be run (no Linux, not root) instead of skipping.
package live
