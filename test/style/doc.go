// Package style has the rules of the code's form that no linter has: the widths of comments and
// code, how many values a statement assigns, and what the header of an if statement may change. It
// also holds each word of the glossary to one meaning in exported names.
package style
