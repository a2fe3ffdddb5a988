// Package style has the rules of the code's form that no linter has: the widths of comments and
// code, assignments of many values, and mutations in the headers of if statements. It also holds
// each word of the glossary to one meaning in exported names.
package style
