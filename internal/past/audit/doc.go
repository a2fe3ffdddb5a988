// Package audit judges whether a record has every change in a span of time, and reports what it
// lacks.
//
//	events ──Auditor.TakeEvent──▶ changes, contradictions ─┐
//	parts of the span ────────────────────────────────────┴─Auditor.Report──▶ Report
//
// Package timeline judges the certainty of each part of the span (timeline.Survey); this package
// has no judge of its own for that. It adds what no moment shows: objects that no agent observed,
// and versions that the record itself shows to be missing.
//
// Package screen/answers prints the Report.
//
// The package reads no record and no clock, starts no goroutine, and does no I/O.
package audit
