// Package chart has the tests of charts/kubecdc.
//
// This package tests the rendered manifests, with the values of directory values and without a
// cluster. Package live tests the chart with a real API server, the real helm and the agent itself.
// Both take helm from [Helm].
package chart
