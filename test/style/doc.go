// Package style has rules that no linter has. Some are about the code's form: the widths of
// comments and code, assignments of many values, literals of many fields, and mutations in the
// headers of if statements. Another one is about words: each word of the glossary has one meaning
// in exported names.
package style
