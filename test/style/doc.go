// Package style has the rules of the code's form that no linter has. They are about the widths of
// comments and code, assignments of many values, and mutations in the headers of if statements.
package style
