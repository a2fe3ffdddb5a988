// Package past has no code: the packages below it answer questions about the past from a record.
// None of them knows who asks, how an answer is printed, or how an agent is configured.
//
// A question enters these rooms in one direction:
//
//	cmd/agent ──words, moment──▶ answer ──Selection──▶ record ──Query──▶ bus
//	                              │  ▲                   │ events
//	                              │  │                   ▼
//	screen/answers, serve/views ◀─┘  └──versions, certainty── timeline
//
// answer takes the question, and returns objects, differences, versions or a report, with their
// certainty. record decides which events are needed, and from where they are read; timeline folds
// them into versions and states, and judges what they prove. certainty has the causes of doubt, in
// words and in JSON: all of the others use it, and so does package serve/apiview. audit judges a
// whole span, and live compares a state with a running cluster: answer calls both.
//
// The caller prints, or serves, what it gets. A long answer is handed over while it is read
// (answer.Shower), and answer.Question.Show may show how far a reading is.
//
// "The path of one question" in docs/architecture.md follows one question through the packages.
package past
