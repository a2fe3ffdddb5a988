// Package chart has the tests of charts/kubecdc.
//
// Here: what the chart renders, over the values of directory values, without a cluster. In package live: what a real API
// server, the real helm and the agent itself make of it. Both take helm from [Helm].
package chart
